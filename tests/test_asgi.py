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
    """Sends what it is told, and keeps what it was called with. Begins its stream before the message of the type `begins`."""

    def __init__(self, *messages: Any, begins: str = "http.response.start", fails: bool = False) -> None:
        self.messages = messages
        self.begins = begins
        self.fails = fails
        self.calls: list[Any] = []
        self.ends = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        exchange = current_exchange()
        self.calls.append((receive, send, exchange))
        for message in self.messages:
            if exchange is not None and message["type"] == self.begins:
                exchange.begin(self.end)
            await send(message)
        if self.fails:
            raise RuntimeError("no")

    def end(self) -> None:
        self.ends += 1


async def receive() -> Any:
    raise AssertionError("the middleware reads nothing")


async def sent(app: App, headers: Any, *, times: int = 1, late_route: str = "", **scope: Any) -> list[Any]:
    """What goes out through the middleware, added so many times."""
    out: list[Any] = []

    async def send(message: Any) -> None:
        out.append(message)

    wrapped: Any = app
    for _ in range(times):
        wrapped = TokenRequests(wrapped, late_route)
    try:
        await wrapped({"type": "http", "path": "/v1/responses", "headers": headers, **scope}, receive, send)
    except RuntimeError:
        out.append("raised")
    assert current_exchange() is None
    assert app.calls[-1][0] is receive
    return out


async def test_a_stream_with_tokens_carries_the_answer_from_its_start() -> None:
    assert await sent(App(START, BODY, END), ASKING) == [ANSWERED, BODY, END]
    assert await sent(App(START), ASKING) == [ANSWERED]


async def test_the_answer_is_given_once_however_often_the_middleware_is_added() -> None:
    app = App(START, BODY, END)
    assert await sent(app, ASKING, times=3) == [ANSWERED, BODY, END]
    assert app.ends == 1


async def test_a_stream_without_tokens_does_not() -> None:
    assert await sent(App(START, BODY, END, begins="never"), ASKING) == [START, BODY, END]


async def test_a_request_that_does_not_ask_is_passed_on_as_it_is() -> None:
    app = App(START, BODY, END)
    assert await sent(app, [(b"accept", b"*/*")]) == [START, BODY, END]
    assert app.calls[0][1].__name__ == "send", "not wrapped"
    assert app.calls[0][2] is None


@pytest.mark.parametrize("late_route", ["", "/responses"])
@pytest.mark.parametrize("content_type", [b"application/json", b"text/plain"])
async def test_what_is_no_stream_is_passed_on_at_once_and_unanswered(content_type: bytes, late_route: str) -> None:
    start = {**START, "headers": [(b"content-type", content_type), (b"x-accepted", b"text/event-stream")]}
    assert await sent(App(start), ASKING, late_route=late_route) == [start]
    assert await sent(App(start, BODY, END), ASKING, late_route=late_route) == [start, BODY, END]
    assert await sent(App({"type": "http.response.start", "status": 204}), ASKING) == [{"type": "http.response.start", "status": 204}]


async def test_only_on_the_late_route_the_start_of_a_stream_waits_for_its_first_chunk() -> None:
    for path, waits in (
        ("/v1/responses", True),
        ("/prefix/v1/responses", True),
        ("/v1/chat/completions", False),
        ("/v1/responses/1", False),
    ):
        out: list[Any] = []
        seen: list[int] = []

        async def app(scope: Any, receive: Any, send: Any, out: list[Any] = out, seen: list[int] = seen) -> None:
            await send(START)
            seen.append(len(out))
            exchange = current_exchange()
            assert exchange is not None
            exchange.begin()
            await send(BODY)

        async def send(message: Any, out: list[Any] = out) -> None:
            out.append(message)

        await TokenRequests(app, "/v1/responses")({"type": "http", "path": path, "headers": ASKING}, receive, send)
        assert (seen, out) == (([0], [ANSWERED, BODY]) if waits else ([1], [START, BODY])), path


async def test_a_start_that_waits_goes_out_even_if_no_chunk_comes() -> None:
    for fails in (False, True):
        assert await sent(App(START, begins="never", fails=fails), ASKING, late_route="/responses") == [START, *["raised"] * fails]


async def test_the_end_of_a_response_is_told_however_it_comes() -> None:
    for app in (App(START, BODY, END), App(START, BODY, fails=True)):
        await sent(app, ASKING)
        assert app.ends == 1
    ended = asyncio.Event()
    began = asyncio.Event()

    async def endless(*_: Any) -> None:
        exchange = current_exchange()
        assert exchange is not None
        exchange.begin(ended.set)
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(TokenRequests(endless)({"type": "http", "path": "/", "headers": ASKING}, receive, receive))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_other_connections_are_passed_on(kind: str) -> None:
    app = App()
    await sent(app, ASKING, type=kind)
    [(_, _, exchange)] = app.calls
    assert exchange is None


async def test_an_exception_passes_and_the_question_is_forgotten() -> None:
    async def app(*_: Any) -> None:
        assert current_exchange() is not None
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await TokenRequests(app)({"type": "http", "path": "/", "headers": ASKING}, receive, receive)
    assert current_exchange() is None


async def test_tasks_of_a_request_see_its_exchange_and_the_next_request_does_not() -> None:
    seen: list[Any] = []

    async def app(scope: Any, *_: Any) -> None:
        seen.append(await asyncio.create_task(look()))
        if scope.get("next"):  # as a server may start it: inside the one before
            await TokenRequests(app)({"type": "http", "path": "/", "headers": []}, receive, receive)
            seen.append(await asyncio.create_task(look()))

    async def look() -> Any:
        return current_exchange()

    await TokenRequests(app)({"type": "http", "path": "/", "headers": ASKING, "next": True}, receive, receive)
    first, second, after = seen
    assert first is after is not None
    assert second is None
