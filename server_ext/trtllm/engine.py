"""What the tap must know of TensorRT-LLM: its names, how to read what its engine says, and how to free the parser of a request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from server_ext.tap import EngineOutput, report_once

__all__ = ["FUNCTION", "PROCESSOR", "ROUTE", "SERVER", "free_parser", "read_call", "read_result", "server_name"]

SERVER: Final = "tensorrt_llm.serve.openai_server"
PROCESSOR: Final = "ResponsesStreamingProcessor"
FUNCTION: Final = "responses_api_process_streaming_events"
ROUTE: Final = "/v1/responses"


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
    return EngineOutput(output.token_ids_diff, True, _plain(output.finish_reason), _plain(output.stop_reason))


def read_call(call: tuple[tuple[Any, ...], Mapping[str, Any]]) -> EngineOutput:
    """Read the `GenerationResult` among the arguments of a call, whatever its place and name there.

    Raises:
        LookupError: If there is none.
    """
    args, kwargs = call
    for value in (*args, *kwargs.values()):
        if hasattr(value, "outputs"):
            return read_result(value)
    raise LookupError("no argument has outputs")


def free_parser(free: Callable[[], Any]) -> None:
    """Free the parser that the Harmony adapter keeps for a request, for ever, on the Responses path. Never raises.

    Args:
        free: Calls `cleanup_stream_state` of that adapter.
    """
    try:
        free()
    except Exception as error:
        loss = "The parser of a response stays in memory, as it does without the extension."
        report_once(server_name(), "HarmonyAdapter.cleanup_stream_state", error, loss)


def _plain(value: Any) -> Any:
    """A member of an enumeration of strings as the string that it is."""
    return str.__str__(value) if isinstance(value, str) else value
