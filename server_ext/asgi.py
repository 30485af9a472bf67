"""Who asks for token frames: a pure ASGI middleware that carries the question in and the answer out, for any ASGI server.

Not Starlette's `BaseHTTPMiddleware`: that one stands between the server's poll for a disconnected client and the socket. `receive` is
handed on as it is, and so is `send` unless the request asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any, Final

from server_ext.tap import ANSWER, asks_for_tokens

__all__ = ["Exchange", "TokenRequests", "current_exchange"]

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_MARK: Final = "server_ext.token_requests"
_current: ContextVar[Exchange | None] = ContextVar("server_ext_exchange", default=None)


class Exchange:
    """One request that asks for token frames.

    Attributes:
        active: Whether its response gets them. For the code that makes the stream to set, before its first body chunk.
    """

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active = False


def current_exchange() -> Exchange | None:
    """The request being served, if it asks for token frames. For code that runs in the request's task, or in a task started there."""
    return _current.get()


class TokenRequests:
    """The middleware.

    Args:
        app: The ASGI application behind it.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http" or _MARK in scope:  # marked: the middleware was added twice
            await self.app(scope, receive, send)
            return
        scope[_MARK] = True
        exchange = Exchange() if asks_for_tokens(scope["headers"]) else None
        # Set for every request: a server may start a task for the next request of a connection in the context of the one before.
        token = _current.set(exchange)
        try:
            await self.app(scope, receive, send if exchange is None else _Answer(exchange, send))
        finally:
            _current.reset(token)


class _Answer:
    """Sends a response, with the answer header if it has token frames.

    The start of an event stream is held back until its first body chunk, because some servers only begin to make the stream when they
    are asked for that chunk. The servers we know make it at once.
    """

    __slots__ = ("_exchange", "_held", "_send")

    def __init__(self, exchange: Exchange, send: Send) -> None:
        self._exchange = exchange
        self._send = send
        self._held: Message | None = None

    async def __call__(self, message: Message) -> None:
        if self._held is not None:
            start, self._held = self._held, None
            if self._exchange.active:
                start = {**start, "headers": [*start["headers"], ANSWER]}
            await self._send(start)
        elif message["type"] == "http.response.start" and _is_event_stream(message):
            self._held = message
            return
        await self._send(message)


def _is_event_stream(start: Message) -> bool:
    return any(name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in start.get("headers", ()))
