"""Exceptions of the server's own code over a response whose tokens the client has all the same."""

from __future__ import annotations

import asyncio
from typing import Final

from server_ext.tap import logger
from server_ext.trtllm.engine import server_name

__all__ = ["STOPS", "log_failure"]

STOPS: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
"""What says that the work is to end. Everything else is a failure: a panic of openai-harmony's parser is no `Exception` either."""


def log_failure(error: BaseException) -> None:
    """Log an exception of the server's that does not reach the client. Its text can quote the model, so that it is only for DEBUG."""
    logger.error("%s: %s over the last engine response of a stream; its tokens were sent", server_name(), type(error).__name__)
    logger.debug("The exception of the line above", exc_info=error)
