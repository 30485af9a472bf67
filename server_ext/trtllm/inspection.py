"""Is TensorRT-LLM as the extension expects it? All that can be seen without running it, and what could not be looked at."""

from __future__ import annotations

import dis
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from server_ext.trtllm.engine import FUNCTION, PROCESSOR, SERVER

__all__ = ["Finding", "inspect_server"]

EVERYTHING: Final = "there are no token frames"
PARSER: Final = "the parser of each response stays in memory, as it does without the extension"
LOADERS: Final = "only --middleware can load the extension"

_METHODS: Final = ("process_single_output", "get_final_response_non_store")
_PARAMETERS: Final = ("request", "generator")
_RESULTS: Final = {"CompletionOutput": ("token_ids_diff", "finish_reason", "stop_reason"), "GenerationResult": ("outputs", "_done")}


class Finding(NamedTuple):
    """Something in TensorRT-LLM that is not as the extension expects it, or could not be looked at.

    Attributes:
        symbol: Its name.
        problem: What is wrong with it, or why it could not be looked at.
        loss: What it costs.
        seen: Whether it was looked at. What was not does not keep the extension from working, which fails open.
    """

    symbol: str
    problem: str
    loss: str = EVERYTHING
    seen: bool = True

    @property
    def blocks(self) -> bool:
        """Whether it makes token frames impossible."""
        return self.seen and self.loss == EVERYTHING

    def __str__(self) -> str:
        return f"{self.symbol}: {self.problem}; " + (self.loss if self.seen else f"if it is not as expected, {self.loss}")


def inspect_server(server: Any) -> list[Finding]:
    """What in the server's modules is not as expected, or could not be looked at; nothing is changed.

    Args:
        server: The module `tensorrt_llm.serve.openai_server`.

    Raises:
        Exception: What code of the server's does that runs when a class or module of its is looked at.
    """
    parts: tuple[Callable[[Any], Iterator[Finding]], ...]
    if hasattr(server, PROCESSOR):
        parts = (_processor, _adapter, _results, _application)
    elif hasattr(server, FUNCTION):
        parts = (_function, _results, _application)
    else:
        return [Finding(f"{SERVER}.{PROCESSOR}", "there is none")]
    return [finding for part in parts for finding in part(server)]


def _processor(server: Any) -> Iterator[Finding]:
    try:
        own = importlib.import_module("tensorrt_llm.serve.responses_utils").ResponsesStreamingProcessor
    except Exception as error:
        yield Finding(f"tensorrt_llm.serve.responses_utils.{PROCESSOR}", _not_imported(error))
        return
    ours = getattr(sys.modules.get("server_ext.trtllm.processor"), "TokenProcessor", own)  # if it was put there before
    if not isinstance(own, type) or all(server.ResponsesStreamingProcessor is not known for known in (own, ours)):
        yield Finding(f"{SERVER}.{PROCESSOR}", "is not the server's own class: something else has replaced it")
        return
    for name in _METHODS:
        yield from _method(own, name)
    yield from _constructor(own)
    yield from _attribute(own, "stream_request_id", PARSER)


def _constructor(owner: Any) -> Iterator[Finding]:
    parameters, symbol = _parameters(owner.__init__), f"{PROCESSOR}.__init__"
    if parameters is None:
        yield _unreadable(symbol)
    elif "use_harmony" not in parameters:
        yield Finding(symbol, "has no parameter use_harmony")


def _method(owner: Any, name: str) -> Iterator[Finding]:
    method, symbol = getattr(owner, name, None), f"{PROCESSOR}.{name}"
    if not callable(method):
        yield Finding(symbol, "there is none")
    elif inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method) or inspect.isgeneratorfunction(method):
        yield Finding(symbol, "is a coroutine or a generator now")
    elif (parameters := _parameters(method)) is None:
        yield _unreadable(symbol)
    elif len(parameters) < 2:
        yield Finding(symbol, "does not take an engine result")


def _function(server: Any) -> Iterator[Finding]:
    parameters = _parameters(getattr(server, FUNCTION))
    if parameters is None:
        yield Finding(FUNCTION, "its signature cannot be read")
        return
    for name in _PARAMETERS:
        if name not in parameters:
            yield Finding(FUNCTION, f"has no parameter {name}")
    if "harmony_adapter" not in parameters:
        yield Finding(FUNCTION, "has no parameter harmony_adapter", PARSER)


def _adapter(_: Any) -> Iterator[Finding]:
    try:
        module = importlib.import_module("tensorrt_llm.serve.harmony_adapter")
    except Exception as error:
        yield Finding("tensorrt_llm.serve.harmony_adapter", _not_imported(error), PARSER)
        return
    if not callable(getattr(module, "get_harmony_adapter", None)):
        yield Finding("get_harmony_adapter", "there is none", PARSER)
    if not hasattr(getattr(module, "HarmonyAdapter", None), "cleanup_stream_state"):
        yield Finding("HarmonyAdapter.cleanup_stream_state", "there is none", PARSER)


def _results(_: Any) -> Iterator[Finding]:
    name = "tensorrt_llm.executor.result"
    try:
        module = importlib.import_module(name)
    except Exception as error:
        yield Finding(name, _not_imported(error), seen=False)
        return
    for class_name, attributes in _RESULTS.items():
        owner = getattr(module, class_name, None)
        if not isinstance(owner, type):
            yield Finding(f"{name}.{class_name}", "is not a class", seen=False)
            continue
        for attribute in attributes:
            yield from _attribute(owner, attribute)


def _application(server: Any) -> Iterator[Finding]:
    owner = getattr(server, "OpenAIServer", None)
    if isinstance(owner, type):
        yield from _attribute(owner, "app", LOADERS)
    else:
        yield Finding(f"{SERVER}.OpenAIServer", "is not a class", LOADERS)


# --- looking ------------------------------------------------------------------------------------------------------------------------


def _attribute(owner: type, name: str, loss: str = EVERYTHING) -> Iterator[Finding]:
    """Whether the instances of a class have an attribute: as one of the class, as a field, or because its code sets it."""
    if hasattr(owner, name) or name in getattr(owner, "__dataclass_fields__", ()):
        return
    members = [member for base in owner.__mro__[:-1] for member in vars(base).items()]
    if any(_sets(member, name) for _, member in members):
        return
    # Compiled code does not show what it sets, nor does a __getattr__ what it answers.
    shows = all(key != "__getattr__" and (key != "__init__" or hasattr(member, "__code__")) for key, member in members)
    yield Finding(f"{owner.__name__}.{name}", "there is none" if shows else "its code does not show it", loss, seen=shows)


def _sets(member: Any, name: str) -> bool:
    code = getattr(inspect.unwrap(member), "__code__", None)
    if code is None or name not in code.co_names:
        return False
    return any(step.opname == "STORE_ATTR" and step.argval == name for step in dis.get_instructions(code))


def _parameters(function: Any) -> list[str] | None:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def _unreadable(symbol: str) -> Finding:
    return Finding(symbol, "its signature cannot be read", seen=False)


def _not_imported(error: Exception) -> str:
    return f"cannot be imported ({type(error).__name__})"
