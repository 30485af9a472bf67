"""Every way to a response stream, from every kind of client, synchronous and not: all see the repaired stream."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import AsyncStream, Stream
from openai.types.responses import Response, ResponseStreamEvent

from harmony_client.checker import check
from harmony_client.client import report_of, wrap
from tests.clients import (
    ASK,
    KINDS,
    PARIS,
    Answer,
    Server,
    answer,
    entered,
    events_of,
    faulty,
    result,
    streamed,
    text_of,
    types_of,
    with_tokens,
)

# --- ways to a stream: (events, what report_of() takes) -----------------------------------------------


async def create(client: Any) -> Any:
    stream = await streamed(client)
    return await events_of(stream), stream


async def create_in_a_context(client: Any) -> Any:
    async with entered(await streamed(client)) as stream:
        return await events_of(stream), stream


async def helper(client: Any) -> Any:
    async with entered(client.responses.stream(**ASK)) as stream:
        return await events_of(stream), stream


async def helper_with_text_format(client: Any) -> Any:
    async with entered(client.responses.stream(**ASK, text_format=Answer)) as stream:
        events = await events_of(stream)
        final = await result(stream.get_final_response())
    assert final.output_parsed == Answer(city="Paris")
    return events, stream


async def retrieve(client: Any) -> Any:
    stream = await result(client.responses.retrieve("resp_1", stream=True))
    return await events_of(stream), stream


async def retrieve_by_helper(client: Any) -> Any:
    async with entered(client.responses.stream(response_id="resp_1")) as stream:
        return await events_of(stream), stream


async def raw_response(client: Any) -> Any:
    raw = await result(client.responses.with_raw_response.create(**ASK, stream=True))
    stream = await result(raw.parse())
    return await events_of(stream), raw


async def streaming_response(client: Any) -> Any:
    async with entered(client.responses.with_streaming_response.create(**ASK, stream=True)) as response:
        stream = await result(response.parse())
        return await events_of(stream), response


async def post(client: Any) -> Any:
    stream_cls = (Stream if isinstance(client, openai.OpenAI) else AsyncStream)[ResponseStreamEvent]
    body = {**ASK, "stream": True}
    stream = await result(client.post("/responses", cast_to=Response, body=body, stream=True, stream_cls=stream_cls))
    return await events_of(stream), stream


RAW_WAYS = [create, create_in_a_context, retrieve, raw_response, streaming_response, post]
HELPERS = [helper, helper_with_text_format, retrieve_by_helper]
WAYS = [*RAW_WAYS, *HELPERS]


# --- kinds of clients ---------------------------------------------------------------------------------


class Mine(openai.OpenAI):
    def __init__(self, server: Server) -> None:
        super().__init__(api_key="k", base_url="http://server/v1", http_client=server.http("sync"))
        self.server = server


class AsyncMine(openai.AsyncOpenAI):
    def __init__(self, server: Server) -> None:
        super().__init__(api_key="k", base_url="http://server/v1", http_client=server.http("async"))
        self.server = server


def ours(server: Server, kind: str) -> Any:
    return server.client(kind)


def copied(server: Server, kind: str) -> Any:
    return server.client(kind).with_options(timeout=5).copy(max_retries=1)


def wrapped(server: Server, kind: str) -> Any:
    return wrap(server.plain(kind))


def wrapped_azure(server: Server, kind: str) -> Any:
    azure = openai.AzureOpenAI if kind == "sync" else openai.AsyncAzureOpenAI
    client = azure(api_key="k", api_version="1", azure_endpoint="http://azure", http_client=server.http(kind))
    return wrap(client)


def wrapped_azure_copy(server: Server, kind: str) -> Any:
    return wrapped_azure(server, kind).with_options(timeout=5)


def wrapped_subclass(server: Server, kind: str) -> Any:
    return wrap((Mine if kind == "sync" else AsyncMine)(server))


CLIENTS = [ours, copied, wrapped, wrapped_azure, wrapped_azure_copy, wrapped_subclass]


def name(function: Any) -> str:
    return str(function.__name__)


matrix = [
    pytest.mark.parametrize("kind", KINDS),
    pytest.mark.parametrize("way", WAYS, ids=name),
    pytest.mark.parametrize("make", CLIENTS, ids=name),
]


@matrix[0]
@matrix[1]
@matrix[2]
async def test_a_faulty_stream_comes_out_well_formed(kind: str, way: Any, make: Any) -> None:
    server = Server(faulty())
    events, source = await way(make(server, kind))
    assert types_of(events) == [event["type"].removeprefix("response.") for event in answer()]
    assert text_of(events) == '{"city": "Paris"}'
    assert check([event.to_dict(mode="json", warnings=False) for event in events]) == []
    report = report_of(source)
    assert (report.verdict, report.mode, report.ending) == ("match", "events", "completed")
    assert "part-added-inserted" in report.repair_codes


@matrix[0]
@matrix[1]
@matrix[2]
async def test_token_batches_are_asked_for_and_make_the_stream(kind: str, way: Any, make: Any) -> None:
    server = Server(with_tokens(PARIS), headers={"x-harmony-tokens": "1"})
    client = make(server, kind)
    report = None
    if way is helper_with_text_format:
        events, source = await helper(client)
    else:
        events, source = await way(client)
    report = report_of(source)
    assert server.sent_header == "1"
    assert text_of(events) == '{"city":"Paris"}'
    assert not any("harmony" in event.type for event in events)
    assert (report.mode, report.tokens_requested, report.tokens_offered, report.output_tokens) == ("tokens", True, True, len(PARIS))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS, ids=name)
async def test_a_correct_stream_gives_the_very_objects_that_the_sdk_gives(kind: str, way: Any) -> None:
    server = Server(answer())
    expected, _ = await way(server.plain(kind))
    events, source = await way(server.client(kind))
    assert events == expected
    assert [type(event) for event in events] == [type(event) for event in expected]
    assert report_of(source).repairs == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS, ids=name)
async def test_every_way_closes_the_http_response(kind: str, way: Any) -> None:
    server = Server([*answer(), b": and more\n\n", b"data: [DONE]\n\n"])
    await way(server.client(kind))
    (body,) = server.bodies
    assert body.closed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS, ids=name)
async def test_nothing_is_read_behind_the_terminal_event(kind: str, way: Any) -> None:
    server = Server([*answer(), b": the server never ends", b": nor does this"])
    await way(server.client(kind))
    (body,) = server.bodies
    assert body.read == len(answer())
