"""The middleware that carries the question in and the answer out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from server_ext.asgi import TokenRequests, current_exchange

ASKING = [(b"x-harmony-tokens", b"1")]
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream; charset=utf-8")]}
ANSWERED = {**START, "headers": [*START["headers"], (b"x-harmony-tokens", b"1")]}  # type: ignore[misc]
BODY = {"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True}
END = {"type": "http.response.body", "body": b""}


class App:
    """Sends what it is told, and keeps what it was called with."""

    def __init__(self, *messages: Any, active: bool = True) -> None:
        self.messages = messages
        self.active = active
        self.calls: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append((receive, send, current_exchange()))
        for message in self.messages:
            exchange = current_exchange()
            if exchange is not None and message["type"] == "http.response.body":
                exchange.active = self.active
            await send(message)


async def receive() -> Any:
    raise AssertionError("the middleware reads nothing")


async def sent(app: App, headers: Any, *, times: int = 1, **scope: Any) -> list[Any]:
    """What goes out through the middleware, added so many times."""
    out: list[Any] = []

    async def send(message: Any) -> None:
        out.append(message)

    wrapped: Any = app
    for _ in range(times):
        wrapped = TokenRequests(wrapped)
    await wrapped({"type": "http", "headers": headers, **scope}, receive, send)
    assert current_exchange() is None
    assert app.calls[-1][0] is receive
    return out


async def test_a_stream_with_tokens_carries_the_answer() -> None:
    assert await sent(App(START, BODY, END), ASKING) == [ANSWERED, BODY, END]


async def test_the_answer_is_given_once_however_often_the_middleware_is_added() -> None:
    assert await sent(App(START, BODY, END), ASKING, times=3) == [ANSWERED, BODY, END]


async def test_a_stream_without_tokens_does_not() -> None:
    assert await sent(App(START, BODY, END, active=False), ASKING) == [START, BODY, END]


async def test_a_request_that_does_not_ask_is_passed_on_as_it_is() -> None:
    app = App(START, BODY, END)
    assert await sent(app, [(b"accept", b"*/*")]) == [START, BODY, END]
    assert app.calls[0][1].__name__ == "send", "not wrapped"
    assert app.calls[0][2] is None


@pytest.mark.parametrize("content_type", [b"application/json", b"text/plain"])
async def test_what_is_no_stream_is_passed_on_at_once(content_type: bytes) -> None:
    start = {**START, "headers": [(b"content-type", content_type)]}
    assert await sent(App(start), ASKING) == [start]
    assert await sent(App(start, BODY, END), ASKING) == [start, BODY, END]
    assert await sent(App({"type": "http.response.start", "status": 204}), ASKING) == [{"type": "http.response.start", "status": 204}]


async def test_the_start_of_a_stream_waits_for_its_first_chunk() -> None:
    assert await sent(App(START), ASKING) == []


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_other_connections_are_passed_on(kind: str) -> None:
    app = App()
    await sent(app, ASKING, type=kind)
    assert app.calls[0][2] is None


async def test_an_exception_passes_and_the_question_is_forgotten() -> None:
    async def app(*_: Any) -> None:
        assert current_exchange() is not None
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await TokenRequests(app)({"type": "http", "headers": ASKING}, receive, receive)
    assert current_exchange() is None


async def test_tasks_of_a_request_see_its_exchange_and_the_next_request_does_not() -> None:
    seen: list[Any] = []

    async def app(scope: Any, *_: Any) -> None:
        seen.append(await asyncio.create_task(look()))
        if scope.get("next"):  # as a server may start it: inside the one before
            await TokenRequests(app)({"type": "http", "headers": []}, receive, receive)
            seen.append(await asyncio.create_task(look()))

    async def look() -> Any:
        return current_exchange()

    await TokenRequests(app)({"type": "http", "headers": ASKING, "next": True}, receive, receive)
    first, second, after = seen
    assert first is after is not None
    assert second is None
