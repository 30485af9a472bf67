"""Puts the tap into TensorRT-LLM's server module: what is there, is it as expected, replace one name.

TensorRT-LLM looks up `ResponsesStreamingProcessor` (1.2 and later) or `responses_api_process_streaming_events` (1.1) as a global of
`tensorrt_llm.serve.openai_server` at each request, so that name is all that has to be replaced. Nothing is replaced where a symbol is
missing or has another signature. Installing twice changes nothing.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from server_ext.asgi import TokenRequests
from server_ext.tap import report_once
from server_ext.trtllm.engine import server_name

__all__ = ["FUNCTION", "PROCESSOR", "SERVER", "Finding", "inspect_server", "install", "install_in_new_servers"]

SERVER: Final = "tensorrt_llm.serve.openai_server"
PROCESSOR: Final = "ResponsesStreamingProcessor"
FUNCTION: Final = "responses_api_process_streaming_events"
_METHODS: Final = ("process_single_output", "get_final_response_non_store")
_PARAMETERS: Final = ("request", "generator")
_MARK: Final = "_server_ext_middleware"


class Finding(NamedTuple):
    """Something in TensorRT-LLM that is not as the extension expects it.

    Attributes:
        symbol: Its name.
        problem: What is wrong with it.
        loss: What it costs, if the rest still works; `""` where it makes token frames impossible.
    """

    symbol: str
    problem: str
    loss: str = ""


def install() -> bool:
    """Install the tap. Logs why, if it cannot be.

    Returns:
        Whether the tap is installed, now or before.
    """
    try:
        server = importlib.import_module(SERVER)
        blocking = [finding for finding in inspect_server(server) if not finding.loss]
        for symbol, problem, _ in blocking:
            report_once(server_name(), symbol, problem)
        if not blocking:
            _replace(server)
        return not blocking
    except Exception as error:
        report_once(server_name(), SERVER, repr(error))
        return False


def install_in_new_servers() -> bool:
    """Install the tap, and the middleware in every server that is made from now on: for loaders that come without middleware.

    Returns:
        Whether both are installed, now or before.
    """
    return install() and _add_middleware_to_new_servers()


def inspect_server(server: Any) -> list[Finding]:
    """What in the server's modules is not as expected; nothing is changed.

    Args:
        server: The module `tensorrt_llm.serve.openai_server`.
    """
    if hasattr(server, PROCESSOR):
        return [*_inspect_processor(getattr(server, PROCESSOR)), *_inspect_adapter(), *_inspect_application(server)]
    if hasattr(server, FUNCTION):
        return [*_inspect_function(getattr(server, FUNCTION)), *_inspect_application(server)]
    return [Finding(f"{SERVER}.{PROCESSOR}", "there is none")]


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
        report_once(server_name(), "OpenAIServer", repr(error))
        return False


def _with_middleware(original: Callable[..., None]) -> Callable[..., None]:
    """`OpenAIServer.__init__`, which makes the application as `self.app`, and the middleware added to that."""

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            self.app.add_middleware(TokenRequests)
        except Exception as error:
            report_once(server_name(), "OpenAIServer.app.add_middleware", repr(error))

    setattr(init, _MARK, True)
    return init


# --- what is expected ---------------------------------------------------------------------------------------------------------------


def _inspect_processor(processor: Any) -> list[Finding]:
    try:
        own = importlib.import_module("tensorrt_llm.serve.responses_utils").ResponsesStreamingProcessor
    except Exception as error:
        return [Finding(f"tensorrt_llm.serve.responses_utils.{PROCESSOR}", repr(error))]
    if processor is not own and getattr(processor, "__base__", None) is not own:
        return [Finding(f"{SERVER}.{PROCESSOR}", "is not the class of tensorrt_llm.serve.responses_utils")]
    findings = [_inspect_method(own, name) for name in _METHODS]
    if "use_harmony" not in _parameters(own.__init__):
        findings.append(Finding(f"{PROCESSOR}.__init__", "has no parameter use_harmony"))
    return [finding for finding in findings if finding is not None]


def _inspect_method(owner: Any, name: str) -> Finding | None:
    import inspect

    method = getattr(owner, name, None)
    symbol = f"{PROCESSOR}.{name}"
    if not callable(method):
        return Finding(symbol, "there is none")
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method) or inspect.isgeneratorfunction(method):
        return Finding(symbol, "is a coroutine or a generator now")
    if len(_parameters(method)) < 2:
        return Finding(symbol, "does not take an engine result")
    return None


def _inspect_function(function: Any) -> list[Finding]:
    parameters = _parameters(function)
    return [Finding(FUNCTION, f"has no parameter {name}") for name in _PARAMETERS if name not in parameters]


def _inspect_adapter() -> list[Finding]:
    loss = "the parser of each response stays in memory, as it does without the extension"
    try:
        module = importlib.import_module("tensorrt_llm.serve.harmony_adapter")
    except Exception as error:
        return [Finding("tensorrt_llm.serve.harmony_adapter", repr(error), loss)]
    if not callable(getattr(module, "get_harmony_adapter", None)):
        return [Finding("get_harmony_adapter", "there is none", loss)]
    if not hasattr(getattr(module, "HarmonyAdapter", None), "cleanup_stream_state"):
        return [Finding("HarmonyAdapter.cleanup_stream_state", "there is none", loss)]
    return []


def _inspect_application(server: Any) -> list[Finding]:
    if isinstance(getattr(server, "OpenAIServer", None), type):
        return []
    return [Finding(f"{SERVER}.OpenAIServer", "is not a class", "only --middleware can load the extension")]


def _parameters(function: Any) -> list[str]:
    import inspect

    return list(inspect.signature(function).parameters)
