"""Puts the tap into TensorRT-LLM's server module: what is there, is it as expected, replace one name.

TensorRT-LLM looks up `ResponsesStreamingProcessor` (1.2 and later) or `responses_api_process_streaming_events` (1.1) as a global of
`tensorrt_llm.serve.openai_server` at each request, so that name is all that has to be replaced. Nothing is replaced where a symbol is
missing or has another signature. Installing twice changes nothing.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any, Final

from server_ext.asgi import TokenRequests
from server_ext.tap import report_once
from server_ext.trtllm.engine import FUNCTION, PROCESSOR, ROUTE, SERVER, server_name

__all__ = ["install", "install_in_new_servers", "late_route"]

_MARK: Final = "_server_ext_middleware"


def install() -> bool:
    """Install the tap. Logs why, if it cannot be.

    Returns:
        Whether the tap is installed, now or before.
    """
    from server_ext.trtllm.inspection import inspect_server

    try:
        server = importlib.import_module(SERVER)
        blocking = [finding for finding in inspect_server(server) if finding.blocks]
        for finding in blocking:
            report_once(server_name(), finding.symbol, finding.problem)
        if not blocking:
            _replace(server)
        return not blocking
    except Exception as error:
        report_once(server_name(), SERVER, error)
        return False


def install_in_new_servers() -> bool:
    """Install the tap, and the middleware in every server that is made from now on: for loaders that come without middleware.

    Returns:
        Whether both are installed, now or before.
    """
    return install() and _add_middleware_to_new_servers()


def late_route() -> str:
    """The `late_route` of `TokenRequests` for this server: 1.1 begins to make a stream only when it is asked for the first chunk."""
    server = sys.modules.get(SERVER)
    return ROUTE if hasattr(server, FUNCTION) and not hasattr(server, PROCESSOR) else ""


def _replace(server: Any) -> None:
    if hasattr(server, PROCESSOR):
        from server_ext.trtllm.processor import TokenProcessor

        setattr(server, PROCESSOR, TokenProcessor)
        return
    from server_ext.trtllm.generator import is_tapped, tapped

    if not is_tapped(getattr(server, FUNCTION)):
        setattr(server, FUNCTION, tapped(getattr(server, FUNCTION)))


def _add_middleware_to_new_servers() -> bool:
    try:
        server_class = importlib.import_module(SERVER).OpenAIServer
        original = server_class.__init__
        if not hasattr(original, _MARK):
            server_class.__init__ = _with_middleware(original)
        return True
    except Exception as error:
        report_once(server_name(), "OpenAIServer", error)
        return False


def _with_middleware(original: Callable[..., None]) -> Callable[..., None]:
    """`OpenAIServer.__init__`, which makes the application as `self.app`, and the middleware added to that."""

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            self.app.add_middleware(TokenRequests, late_route=late_route())
        except Exception as error:
            report_once(server_name(), "OpenAIServer.app.add_middleware", error)

    setattr(init, _MARK, True)
    return init
