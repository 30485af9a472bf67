"""What the client's tests share: streams to serve, transports that serve them, one way to drive both kinds of client."""

from __future__ import annotations

import contextlib
import copy
import gzip
import importlib
import inspect
import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import openai
import pydantic

from harmony_client import wire
from harmony_client.client import AsyncHarmonyOpenAI, HarmonyOpenAI

#: openai 3 runs on httpx2, openai 2 on httpx.
HTTP: Any = importlib.import_module("httpx2" if int(openai.VERSION.partition(".")[0]) >= 3 else "httpx")
KINDS = ["sync", "async"]
ASK: dict[str, Any] = {"model": "gpt-oss-120b", "input": "Where is my order?"}


class Answer(pydantic.BaseModel):
    """What the answer of :func:`answer` parses into."""

    city: str


# --- streams --------------------------------------------------------------------------------------

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1790000000,
    "model": "gpt-oss-120b",
    "status": "in_progress",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
PART = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def answer(*deltas: str, response: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """A correct stream: one message, its text in these deltas."""
    deltas = deltas or ('{"city":', ' "Paris"}')
    base = {**RESPONSE, **(response or {})}
    text = "".join(deltas)
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    part = {**PART, "text": text}
    done = {**item, "status": "completed", "content": [part]}
    events = [
        {"type": "response.created", "response": base},
        {"type": "response.in_progress", "response": base},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **at, "part": PART},
        *({"type": "response.output_text.delta", **at, "delta": delta, "logprobs": []} for delta in deltas),
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {**base, "status": "completed", "output": [done]}},
    ]
    return copy.deepcopy([{**event, "sequence_number": number} for number, event in enumerate(events)])


def faulty(*deltas: str) -> list[dict[str, Any]]:
    """The same without its content_part.added and with the item's index shifted: openai 3 raises on it."""
    events = [event for event in answer(*deltas) if event["type"] != "response.content_part.added"]
    for event in events:
        if "output_index" in event:
            event["output_index"] = 1
    return events


#: ``<|channel|>final<|message|>{"city":"Paris"}<|return|>``
PARIS = [200005, 17196, 200008, 10848, 17500, 7534, 72782, 18583, 200002]
#: ``<|channel|>commentary to=get_weather<|message|>{"city":"Paris"}<|call|>``
BARE_CALL = [200005, 12606, 815, 316, 49687, 170154, 200008, 10848, 17500, 7534, 72782, 18583, 200012]


def with_tokens(token_ids: list[int], batch_size: int = 3) -> list[dict[str, Any]]:
    """A stream with token batches whose own item events and snapshot say nothing of value."""
    opening, terminal = answer()[:2], answer()[-1]
    starts = range(0, len(token_ids), batch_size)
    batches = []
    for number, start in enumerate(starts):
        ids = token_ids[start : start + batch_size]
        last = start + batch_size >= len(token_ids)
        batch = wire.TokenBatch(number, start, ids, done=last, finish_reason="stop" if last else None)
        batches.append(json.loads(wire.encode_batch(batch).split(b"data: ")[1]))
    return [*opening, *batches, terminal]


def frame(event: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n".encode()


def frames(events: Iterable[dict[str, Any]]) -> list[bytes]:
    return [frame(event) for event in events]


# --- transports -----------------------------------------------------------------------------------


class Body(HTTP.SyncByteStream, HTTP.AsyncByteStream):  # type: ignore[misc]
    """A response body in chunks, for both kinds of client; it can break, and knows whether it was closed."""

    def __init__(self, chunks: Iterable[bytes], error: Exception | None = None) -> None:
        self.chunks = list(chunks)
        self.error = error
        self.read = 0
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.chunks:
            self.read += 1
            yield chunk
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1


class Server:
    """Answers every request with the same body, and keeps the requests and bodies."""

    def __init__(self, events: Iterable[Any] = (), *, error: Exception | None = None, **response: Any) -> None:
        self.chunks = [frame(event) if isinstance(event, dict) else event for event in events]
        self.error = error
        self.headers = {"content-type": "text/event-stream", **response.pop("headers", {})}
        self.response = {"status_code": 200, **response}
        self.requests: list[Any] = []
        self.bodies: list[Body] = []

    def __call__(self, request: Any) -> Any:
        self.requests.append(request)
        self.bodies.append(Body(self.chunks, self.error))
        return HTTP.Response(headers=self.headers, stream=self.bodies[-1], **self.response)

    @property
    def sent_header(self) -> str | None:
        """The header that asks for token batches, as the last request carried it."""
        value: str | None = self.requests[-1].headers.get(wire.HEADER)
        return value

    @property
    def sent_body(self) -> Any:
        return json.loads(self.requests[-1].content)

    def http(self, kind: str, **options: Any) -> Any:
        client = HTTP.Client if kind == "sync" else HTTP.AsyncClient
        return client(transport=HTTP.MockTransport(self), **options)

    def plain(self, kind: str, **options: Any) -> Any:
        """A client of the SDK."""
        client = openai.OpenAI if kind == "sync" else openai.AsyncOpenAI
        return client(api_key="k", base_url="http://server/v1", http_client=self.http(kind), max_retries=0, **options)

    def client(self, kind: str, **options: Any) -> Any:
        """A client of ours."""
        client = HarmonyOpenAI if kind == "sync" else AsyncHarmonyOpenAI
        http_client = options.pop("http_client", None) or self.http(kind)
        return client(api_key="k", base_url="http://server/v1", http_client=http_client, max_retries=0, **options)


def gzipped(events: Iterable[dict[str, Any]]) -> Server:
    return Server([gzip.compress(b"".join(frames(events)))], headers={"content-encoding": "gzip"})


class Socket:
    """A real HTTP server for one request: sends a chunked body; then ``end``, ``drop``, ``reset`` or ``hang``."""

    def __init__(self, events: Iterable[dict[str, Any]], then: str) -> None:
        self.events = list(events)
        self.then = then
        self.client_closed = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self) -> Socket:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()
        self.thread.join(10)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/v1"

    def client(self, kind: str, **options: Any) -> Any:
        client = HarmonyOpenAI if kind == "sync" else AsyncHarmonyOpenAI
        return client(api_key="k", base_url=self.base_url, max_retries=0, **options)

    def serve(self) -> None:
        connection = self.listener.accept()[0]
        with connection, contextlib.suppress(BrokenPipeError):
            request = connection.makefile("rb")
            headers = dict(line.lower().split(b": ") for line in iter(request.readline, b"\r\n") if b": " in line)
            request.read(int(headers.get(b"content-length", 0)))
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for chunk in frames(self.events):
                connection.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            if self.then == "end":
                connection.sendall(b"0\r\n\r\n")
            elif self.then == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif self.then == "hang":
                connection.settimeout(10)
                with contextlib.suppress(ConnectionResetError):
                    assert connection.recv(1) == b""
                self.client_closed.set()


# --- one way to drive both kinds of client ----------------------------------------------------------


async def result(value: Any) -> Any:
    """The value, or what it gives when awaited."""
    return await value if inspect.isawaitable(value) else value


async def events_of(stream: Any, into: list[Any] | None = None) -> list[Any]:
    """All events of a stream; those before an error are in ``into``."""
    events: list[Any] = [] if into is None else into
    if hasattr(stream, "__aiter__"):
        async for event in stream:
            events.append(event)
    else:
        for event in stream:
            events.append(event)
    return events


async def next_of(stream: Any) -> Any:
    """The next event of a stream."""
    return await anext(stream) if hasattr(stream, "__anext__") else next(stream)


@contextlib.asynccontextmanager
async def entered(manager: Any) -> AsyncIterator[Any]:
    """Enter a context manager of either kind."""
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


async def streamed(client: Any, **options: Any) -> Any:
    """The raw stream of a request."""
    return await result(client.responses.create(**ASK, stream=True, **options))


def types_of(events: Iterable[Any]) -> list[str]:
    return [event.type.removeprefix("response.") for event in events]


def text_of(events: Iterable[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")
