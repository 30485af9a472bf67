"""Who asks for token frames: a pure ASGI middleware that carries the question in and the answer out, for any ASGI server.

Not Starlette's `BaseHTTPMiddleware`: that one stands between the server's poll for a disconnected client and the socket. `receive` is
handed on as it is, and so is `send` unless the request asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

from server_ext.tap import ANSWER, asks_for_tokens

__all__ = ["Exchange", "TokenRequests", "current_exchange"]

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_current: ContextVar[Exchange | None] = ContextVar("server_ext_exchange", default=None)


class Exchange:
    """One request that asks for token frames.

    Attributes:
        active: Whether its response gets them.
        at_end: Called once the response is over, also where the client left in the middle of it. Must not raise.
    """

    __slots__ = ("active", "at_end")

    def __init__(self) -> None:
        self.active = False
        self.at_end: Callable[[], object] | None = None

    def begin(self, at_end: Callable[[], object] | None = None) -> None:
        """Say that the response gets token frames: before it starts, or, on the late route, before its first body chunk."""
        self.active = True
        self.at_end = at_end


def current_exchange() -> Exchange | None:
    """The request being served, if it asks for token frames. For code that runs in the request's task, or in a task started there."""
    return _current.get()


class TokenRequests:
    """The middleware. Added twice it is as good as once: the inner one has the exchange that is used.

    Args:
        app: The ASGI application behind it.
        late_route: End of the path of the route whose code begins to make a stream only when it is asked for its first body chunk, so
            that the start of the response has to wait for that; `""` where the code begins before the response starts.
    """

    def __init__(self, app: Any, late_route: str = "") -> None:
        self.app = app
        self.late_route = late_route

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange() if asks_for_tokens(scope["headers"]) else None
        # Set for every request: a server may start a task for the next request of a connection in the context of the one before.
        token = _current.set(exchange)
        try:
            if exchange is None:
                await self.app(scope, receive, send)
            else:
                await self._serve(exchange, scope, receive, send)
        finally:
            _current.reset(token)

    async def _serve(self, exchange: Exchange, scope: MutableMapping[str, Any], receive: Any, send: Send) -> None:
        late = bool(self.late_route) and scope["path"].endswith(self.late_route)
        answer = _Answer(exchange, send, late=late)
        try:
            await self.app(scope, receive, answer)
        finally:
            if exchange.at_end is not None:
                exchange.at_end()
            await answer.release()


class _Answer:
    """Sends a response, with the answer header if it is an event stream that has token frames."""

    __slots__ = ("_exchange", "_held", "_late", "_send")

    def __init__(self, exchange: Exchange, send: Send, *, late: bool) -> None:
        self._exchange = exchange
        self._send = send
        self._late = late
        self._held: Message | None = None

    async def __call__(self, message: Message) -> None:
        if _begins_event_stream(message):
            self._held = message
            if not self._late:
                await self.release()
        else:
            await self.release()
            await self._send(message)

    async def release(self) -> None:
        """Send the start of the stream, if it still waits."""
        start, self._held = self._held, None
        if start is not None:
            await self._send({**start, "headers": [*start["headers"], ANSWER]} if self._exchange.active else start)


def _begins_event_stream(message: Message) -> bool:
    headers = message.get("headers", ())  # only the start of a response has some
    return any(name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)
