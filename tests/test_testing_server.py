"""Scripted replies on their way: transports, streams, errors, chunks; and what the server complains about."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import openai
import pytest

from harmony_client import AsyncHarmonyOpenAI, HarmonyOpenAI, StreamError, report_of
from harmony_client.testing import Reply, ScriptedServer
from harmony_client.wire import HEADER
from tests.clients import ASK, HTTP, KINDS, entered, events_of, result, streamed, text_of, types_of

ANSWER = "It is sunny in Paris."
TRT: dict[str, Any] = {"faults": "tensorrt-llm", "tokens_per_batch": 5}
#: Both libraries, as far as they are installed.
FAMILIES = [name for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]


def harmony(server: ScriptedServer, kind: str, **options: Any) -> Any:
    """A wrapped client of the server."""
    return _client(server, kind, HarmonyOpenAI, AsyncHarmonyOpenAI, options)


def plain(server: ScriptedServer, kind: str) -> Any:
    """A client of the SDK."""
    return _client(server, kind, openai.OpenAI, openai.AsyncOpenAI, {})


def _client(server: ScriptedServer, kind: str, sync: Any, asynchronous: Any, options: dict[str, Any]) -> Any:
    http = server.http_client() if kind == "sync" else server.async_http_client()
    return (sync if kind == "sync" else asynchronous)(base_url="http://gpu/v1", api_key="k", http_client=http, max_retries=0, **options)


# --- the server -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [True, False])
async def test_replies_are_given_in_order_and_read_whole(kind: str, tokens: bool) -> None:
    with ScriptedServer() as server:
        server.reply(calls=[("get_weather", {"city": "Paris"})], tokens=tokens, **TRT)
        server.reply(ANSWER, reasoning="I have to look.", tokens=tokens, **TRT)
        client = harmony(server, kind)
        call = await events_of(await streamed(client))
        answer = await events_of(await streamed(client))
    assert [event.arguments for event in call if event.type == "response.function_call_arguments.done"] == ['{"city":"Paris"}']
    assert text_of(answer) == ANSWER
    assert [report.basis for report in server.reports] == ["tokens" if tokens else "events"] * 2


@pytest.mark.parametrize("kind", KINDS)
async def test_the_helper_stream_reads_a_reply(kind: str) -> None:
    with ScriptedServer() as server:
        server.reply(ANSWER, **TRT)
        async with entered(harmony(server, kind).responses.stream(**ASK)) as stream:
            events = await events_of(stream)
        assert server.reports == [report_of(stream)]
    assert types_of(events)[-1] == "completed"


@pytest.mark.parametrize("kind", KINDS)
async def test_the_stock_client_loses_what_the_faults_lose(kind: str) -> None:
    with ScriptedServer() as server:
        server.reply(ANSWER, **TRT)
        events = await events_of(await streamed(plain(server, kind)))
    assert text_of(events) != ANSWER
    assert server.reports == []


@pytest.mark.parametrize("kind", KINDS)
async def test_tokens_go_to_those_who_ask(kind: str) -> None:
    server = ScriptedServer()
    server.reply("A")
    server.reply("B")
    server.reply("C", tokens=False)
    await events_of(await streamed(plain(server, kind)))
    await events_of(await streamed(harmony(server, kind)))
    await events_of(await streamed(harmony(server, kind)))
    assert [b"token_batch" in b"".join(made.plays[0].chunks) for made in server.replies] == [False, True, False]
    assert [report.tokens_offered for report in server.reports] == [True, False]


@pytest.mark.parametrize("kind", KINDS)
async def test_without_streaming_the_whole_response_comes(kind: str) -> None:
    with ScriptedServer() as server:
        server.reply(ANSWER)
        response = await result(harmony(server, kind).responses.create(**ASK))
    assert response.output_text == ANSWER
    assert response.model == ASK["model"]


@pytest.mark.parametrize("kind", KINDS)
async def test_without_streaming_a_response_that_cannot_be_made_is_an_error(kind: str) -> None:
    server = ScriptedServer()
    server.reply(ANSWER, faults="broken-ending")
    with pytest.raises(openai.InternalServerError, match="could not make its response"):
        await result(harmony(server, kind).responses.create(**ASK))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stored_response_is_streamed_again(kind: str) -> None:
    with ScriptedServer() as server:
        server.reply(ANSWER)
        events = await events_of(await result(harmony(server, kind).responses.retrieve("resp_1", stream=True)))
    assert text_of(events) == ANSWER
    assert server.requests == [{}]


async def test_the_requests_are_kept() -> None:
    with ScriptedServer() as server:
        server.reply("A")
        server.reply("B")
        for question in ("one", "two"):
            await events_of(await streamed(harmony(server, "sync").with_options(), extra_body={"input": question}))
    assert [request["input"] for request in server.requests] == ["one", "two"]


@pytest.mark.parametrize("kind", KINDS)
async def test_when_no_reply_is_left_the_client_is_told_at_once(kind: str) -> None:
    server = ScriptedServer()
    server.reply("A")
    client = harmony(server, kind)
    await events_of(await streamed(client))
    with pytest.raises(openai.NotFoundError, match="no reply is left for request 2: 1 scripted, all given"):
        await streamed(client.with_options(max_retries=5))
    assert server.complaints() == ["POST http://gpu/v1/responses came when no reply was left."]


# --- the body -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", ["frame", "byte", 1, 7, 4096, 10**9])
def test_the_body_comes_in_pieces_of_any_size(chunk: Any) -> None:
    reply = Reply("Größe 🙂", chunk=chunk)
    pieces = list(reply.stream())
    assert b"".join(pieces).count(b"\n\n") == len(reply.frames())
    if chunk != "frame":
        size = 1 if chunk == "byte" else chunk
        assert {len(piece) for piece in pieces[:-1]} <= {size}
    else:
        assert len(pieces) == len(reply.frames())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", ["byte", 7])
async def test_a_client_does_not_mind_the_pieces(kind: str, chunk: Any) -> None:
    with ScriptedServer() as server:
        server.reply("Größe 🙂", chunk=chunk)
        assert text_of(await events_of(await streamed(harmony(server, kind)))) == "Größe 🙂"


CUTS = [("reset", openai.APIConnectionError, "ReadError"), ("timeout", openai.APITimeoutError, "ReadTimeout"), ("end", StreamError, None)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("cut_by", "error", "cause"), CUTS)
async def test_a_stream_can_end_anywhere(kind: str, cut_by: Any, error: type[Exception], cause: str | None) -> None:
    with ScriptedServer() as server:
        server.reply(ANSWER, cut_after=9, cut_by=cut_by)
        events: list[Any] = []
        with pytest.raises(error) as caught:
            await events_of(await streamed(harmony(server, kind)), events)
    assert ANSWER.startswith(text_of(events))
    assert text_of(events)
    if cause is not None:
        assert isinstance(caught.value.__cause__, getattr(HTTP, cause))


@pytest.mark.parametrize("kind", KINDS)
async def test_the_stock_client_gets_the_error_of_its_library(kind: str) -> None:
    server = ScriptedServer()
    server.reply(ANSWER, cut_after=5)
    with pytest.raises((HTTP.ReadError, openai.APIConnectionError)) as caught:  # new versions of the SDK map it
        await events_of(await streamed(plain(server, kind)))
    assert isinstance(caught.value, HTTP.ReadError) or isinstance(caught.value.__cause__, HTTP.ReadError)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_broken_ending_loses_the_last_batch_but_not_its_tokens(kind: str) -> None:
    with ScriptedServer() as server:
        server.reply(ANSWER, faults="broken-ending", tokens_per_batch=100)
        events = await events_of(await streamed(harmony(server, kind)))
        server.reply(ANSWER, faults="broken-ending", tokens_per_batch=100, tokens=False)
        with pytest.raises(openai.APIConnectionError, match="peer closed connection"):
            await events_of(await streamed(harmony(server, kind)))
    assert text_of(events) == ANSWER


def test_cutting_after_no_frame_at_all_leaves_an_empty_body() -> None:
    assert list(Reply("A", cut_after=0, cut_by="end").stream()) == []


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_stream_is_one_of_either_library(family: str) -> None:
    http = importlib.import_module(family)
    reply = Reply("Hi")
    transport = http.MockTransport(lambda request: http.Response(200, stream=reply.stream()))
    with http.Client(transport=transport) as client, client.stream("GET", "http://gpu/") as response:
        assert response.read() == b"".join(reply.plays[-1].chunks)
    async with http.AsyncClient(transport=transport) as client:
        assert (await client.get("http://gpu/")).content == b"".join(reply.plays[-1].chunks)
    assert [play.closed for play in reply.plays] == [True, True]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("asks", [True, False])
def test_a_reply_answers_requests_of_either_library(family: str, asks: bool) -> None:
    http = importlib.import_module(family)
    reply = Reply("Hi")
    with http.Client(transport=http.MockTransport(reply)) as client:
        response = client.post("http://gpu/", json={"stream": True}, headers={HEADER: "1"} if asks else {})
    assert isinstance(response, http.Response)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert (HEADER in response.headers) is (b"token_batch" in response.content) is asks


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cut_raises_what_every_client_catches(family: str) -> None:
    http = importlib.import_module(family)
    with pytest.raises(http.ReadTimeout):
        list(Reply("Hi", cut_after=1, cut_by="timeout").stream())


# --- what it complains about ------------------------------------------------------------------------------


def left_undone(script: dict[str, Any], use: Callable[[Any], Any], *, client: Any = harmony) -> str:
    """The complaint about a reply that is used in one way."""
    with pytest.raises(AssertionError) as caught, ScriptedServer() as server:
        server.reply("A", **script)
        use(client(server, "sync"))
    (complaint,) = str(caught.value).splitlines()
    return complaint


def read(client: Any) -> None:
    for _ in client.responses.create(**ASK, stream=True):
        pass


def read_some(client: Any) -> Any:
    stream = client.responses.create(**ASK, stream=True)
    next(iter(stream))
    return stream


def test_a_reply_that_is_never_requested() -> None:
    assert left_undone({}, lambda client: None) == "reply 1 (answer 'A') was never requested."


def test_a_fault_that_is_never_requested() -> None:
    script = {"faults": ["empty-ids", "no-index"], "cut_after": 3}
    expected = "reply 1 (answer 'A') was never requested, so empty-ids, no-index, cut_after=3 were never used."
    assert left_undone(script, lambda client: None) == expected


def test_a_fault_that_a_request_without_streaming_does_not_use() -> None:
    complaint = left_undone({"faults": "empty-ids"}, lambda client: client.responses.create(**ASK))
    assert complaint == "reply 1 (answer 'A') was requested without streaming, so empty-ids was never used."


@pytest.mark.parametrize("client", [harmony, plain])
def test_a_stream_that_is_never_read(client: Any) -> None:
    complaint = left_undone({}, lambda client: client.responses.create(**ASK, stream=True), client=client)
    assert complaint == "reply 1 (answer 'A') was requested, but its stream was never read."


def test_a_stream_that_is_left_open() -> None:
    kept = []
    complaint = left_undone({}, lambda client: kept.append(read_some(client)), client=plain)
    assert complaint.startswith("reply 1 (answer 'A'): its stream was left open after chunk 1 of ")


def test_a_stream_that_is_closed_early_cannot_be_verified() -> None:
    complaint = left_undone({}, lambda client: read_some(client).close())
    assert complaint == (
        "reply 1 (answer 'A'): the verdict is 'unverifiable', not 'match' (the stream ended as 'closed'). "
        "If that is what the test is about, script the reply with verdict='unverifiable'."
    )


def test_a_cut_that_comes_too_late() -> None:
    complaint = left_undone({"cut_after": 99}, read)
    assert complaint == "reply 1 (answer 'A') was to be cut (reset) after frame 99, but its stream has only 14."


def test_a_cut_that_the_application_does_not_reach() -> None:
    complaint = left_undone({"cut_after": 5}, lambda client: read_some(client).close())
    assert complaint == "reply 1 (answer 'A') was to be cut (reset) after frame 5, but its stream was left after chunk 1."


def test_a_verdict_that_the_test_did_not_announce() -> None:
    complaint = left_undone({"faults": "empty-terminal-text"}, read)
    assert complaint == (
        "reply 1 (answer 'A'): the verdict is 'mismatch', not 'match' (text of item 0). "
        "If that is what the test is about, script the reply with verdict='mismatch'."
    )


def test_a_verdict_that_was_announced_and_did_not_come() -> None:
    assert "the verdict is 'match', not 'mismatch'" in left_undone({"verdict": "mismatch"}, read)


@pytest.mark.parametrize(
    ("script", "use"),
    [
        ({"faults": "empty-terminal-text", "verdict": "mismatch"}, read),
        ({"faults": "empty-terminal-text", "verdict": "any"}, read),
        ({"faults": "no-terminal"}, read),
        ({"faults": "error-ending", "tokens": False}, read),
        ({"optional": True}, lambda client: None),
        ({"optional": True}, lambda client: client.responses.create(**ASK, stream=True)),
        ({"verdict": "unverifiable"}, lambda client: read_some(client).close()),
        ({"verdict": "any"}, lambda client: client.with_options(mode="off").responses.create(**ASK)),
    ],
)
def test_what_the_test_announces_is_no_complaint(script: dict[str, Any], use: Callable[[Any], Any]) -> None:
    with ScriptedServer() as server:
        server.reply("A", **script)
        use(harmony(server, "sync"))


def test_an_error_of_the_test_is_not_hidden_by_complaints() -> None:
    with pytest.raises(KeyError), ScriptedServer() as server:
        server.reply("A")
        raise KeyError("the test's own")


def test_several_complaints_are_lines() -> None:
    server = ScriptedServer()
    server.reply("A")
    server.reply("B", reasoning="Hm.")
    assert server.complaints() == ["reply 1 (answer 'A') was never requested.", "reply 2 (reasoning, answer 'B') was never requested."]


def test_nothing_of_the_sdk_is_imported_before_it_is_needed() -> None:
    code = "import sys, harmony_client.testing as t; t.Reply('Hi', faults='empty-ids').body(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"openai", "httpx", "httpx2", "respx", "pytest", "pydantic"} & set(loaded) == set()


def test_a_response_without_a_request_is_httpxs() -> None:
    httpx = importlib.import_module("httpx")
    reply = Reply("Hi")
    response = reply.response()
    assert isinstance(response, httpx.Response)
    assert json.loads(response.read().split(b"data: ")[1].split(b"\n")[0])["type"] == "response.created"
