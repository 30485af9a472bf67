"""Bodies, responses and errors of both HTTP libraries: httpx, which openai 2 and respx use, and httpx2, which openai 3 uses.

Neither is imported here before it is needed: what is asked for by a request, or waits in `sys.modules`, is there already.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from harmony_client import wire
from harmony_client._options import WATCH_EXTENSION
from harmony_client.testing._draft import Ending

if TYPE_CHECKING:
    from harmony_client.report import Report

__all__ = ["FAMILIES", "Play", "asked", "body_of", "family_of", "json_response", "of_both", "sdk_family", "stream_response"]

FAMILIES: Final = ("httpx", "httpx2")
_FAILURES: Final[Mapping[Ending, tuple[str, str]]] = {
    "reset": ("ReadError", "[Errno 104] Connection reset by peer"),
    "timeout": ("ReadTimeout", "The read operation timed out"),
    "cut-off": ("RemoteProtocolError", "peer closed connection without sending complete message body (incomplete chunked read)"),
}


@dataclass(slots=True)
class Play:
    """A reply as it was sent once.

    Attributes:
        request: The body of the request.
        chunks: The body, as it is cut up; empty if the request did not ask for a stream.
        ending: What happens after the last chunk.
        streamed: Whether the request asked for a stream.
        frames: Number of SSE frames that the whole stream has.
        read: Chunks that were read.
        ended: Whether the ending was read too.
        closed: Whether the stream was closed.
        report: The report of the wrapped client that read it, or `None`: another one read it, or none.
    """

    request: dict[str, Any]
    chunks: Sequence[bytes] = ()
    ending: Ending = "end"
    streamed: bool = True
    frames: int = 0
    read: int = 0
    ended: bool = False
    closed: bool = False
    report: Report | None = None


class _Body:
    """The body of a response, for synchronous and asynchronous clients. Where respx repeats a response, it is read again."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def __iter__(self) -> Iterator[bytes]:
        play = self._play
        for chunk in play.chunks:
            play.read += 1
            yield chunk
        play.ended = True
        if play.ending in _FAILURES:
            name, message = _FAILURES[play.ending]
            raise of_both(name)(message)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk

    def close(self) -> None:
        self._play.closed = True

    async def aclose(self) -> None:
        self._play.closed = True


def body_of(play: Play) -> Any:
    """The stream of a response of either library."""
    return _stream_class(_loaded())(play)


@cache
def _stream_class(modules: tuple[str, ...]) -> type[_Body]:
    names = ("SyncByteStream", "AsyncByteStream")
    return type("ScriptedBody", (_Body, *(getattr(sys.modules[module], name) for module in modules for name in names)), {})


def of_both(name: str) -> type[Exception]:
    """An exception class that is httpx's and httpx2's of that name, as far as they are loaded: respx raises for both clients."""
    return _error_class(name, _loaded())


@cache
def _error_class(name: str, modules: tuple[str, ...]) -> type[Exception]:
    bases = tuple(getattr(sys.modules[module], name) for module in modules)
    return bases[0] if len(bases) == 1 else type(name, bases, {"__module__": __name__})


def _loaded() -> tuple[str, ...]:
    return tuple(module for module in FAMILIES if module in sys.modules) or (sdk_family().__name__,)


def sdk_family() -> Any:
    """The library that the installed SDK's own clients use."""
    import openai

    roots = [cls.__module__.partition(".")[0] for cls in openai.DefaultHttpxClient.__mro__]
    return importlib.import_module(next(root for root in roots if root in FAMILIES))


def family_of(request: Any) -> Any:
    """The library that a request belongs to; without a request httpx, which respx uses."""
    roots = [cls.__module__.partition(".")[0] for cls in type(request).__mro__]
    return importlib.import_module(next((root for root in roots if root in FAMILIES), "httpx"))


def asked(request: Any) -> tuple[dict[str, Any], bool]:
    """The body of a request, and whether it asks for a stream."""
    try:
        body = json.loads(request.read())
    except ValueError:
        body = None
    if not isinstance(body, dict):  # responses.retrieve() has its arguments in the query
        return {}, "stream=true" in str(request.url).lower()
    return body, bool(body.get("stream"))


def stream_response(request: Any, play: Play, *, tokens: bool) -> Any:
    """The streamed response that plays a reply."""
    headers = {"content-type": "text/event-stream; charset=utf-8"} | ({wire.HEADER: wire.HEADER_VALUE} if tokens else {})
    extensions = {WATCH_EXTENSION: partial(setattr, play, "report")}  # a wrapped client's stream leaves its report there
    return family_of(request).Response(200, headers=headers, stream=body_of(play), request=request, extensions=extensions)


def json_response(request: Any, status: int, content: Any) -> Any:
    """A response without a stream."""
    return family_of(request).Response(status, json=content, request=request)
