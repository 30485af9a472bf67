"""What the tap must know of TensorRT-LLM's engine: how to read a result, and how to free the parser of a request."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from server_ext.tap import EngineOutput, logger, report_once

__all__ = ["free_parser", "log_failed_snapshot", "read_result", "server_name"]


def server_name() -> str:
    """Name and version of the server, `"tensorrt-llm/1.2.1"`."""
    return f"tensorrt-llm/{getattr(sys.modules.get('tensorrt_llm'), '__version__', 'unknown')}"


def read_result(result: Any) -> EngineOutput:
    """Read a `GenerationResult`, as `process_single_output` gets it once per engine response.

    `token_ids_diff` are the ids of this engine response. After a trimmed stop token those of the last one can be empty, and `stop_reason`
    is its id.
    """
    output = result.outputs[0]
    if not result._done:
        return EngineOutput(output.token_ids_diff)
    return EngineOutput(output.token_ids_diff, True, output.finish_reason, output.stop_reason)


def free_parser(free: Callable[[], Any]) -> None:
    """Free the parser that the Harmony adapter keeps for a request, for ever, on the Responses path. Never raises.

    Args:
        free: Calls `cleanup_stream_state` of that adapter.
    """
    try:
        free()
    except Exception as error:
        loss = "The parser of a response stays in memory, as it does without the extension."
        report_once(server_name(), "HarmonyAdapter.cleanup_stream_state", repr(error), loss)


def log_failed_snapshot(error: BaseException) -> None:
    """Log an exception of the server's that the stream survives because the client has the tokens."""
    logger.error("%s could not build the terminal response; the stream ends with its tokens", server_name(), exc_info=error)
