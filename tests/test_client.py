"""The wrapped clients: what they ask for, what they leave alone, options, wrapping, reports, stopping early."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from functools import cached_property
from typing import Any

import openai
import pytest
from openai import AsyncStream, Stream
from openai.types.responses import Response, ResponseStreamEvent

from harmony_client._stream import AsyncRepairedStream, RepairedStream
from harmony_client.client import AsyncHarmonyOpenAI, HarmonyOpenAI, report_of, wrap
from harmony_client.report import Report
from tests.clients import (
    ASK,
    BARE_CALL,
    KINDS,
    PARIS,
    RESPONSE,
    Server,
    Socket,
    answer,
    entered,
    events_of,
    faulty,
    frames,
    next_of,
    result,
    streamed,
    types_of,
    with_tokens,
)

both = pytest.mark.parametrize("kind", KINDS)


# --- what is asked for, and what is left alone ------------------------------------------------------


@both
async def test_token_batches_are_not_asked_for_if_the_option_says_so(kind: str) -> None:
    server = Server(answer())
    stream = await streamed(server.client(kind, request_tokens=False))
    await events_of(stream)
    assert server.sent_header is None
    assert (report_of(stream).tokens_requested, report_of(stream).tokens_offered) == (False, False)


@both
@pytest.mark.parametrize("name", ["x-harmony-tokens", "X-Harmony-Tokens"])
async def test_a_header_that_the_caller_set_stays(kind: str, name: str) -> None:
    server = Server(answer())
    await events_of(await streamed(server.client(kind), extra_headers={name: "0"}))
    assert server.sent_header == "0"
    await events_of(await streamed(server.client(kind), extra_headers={name: openai.omit}))
    assert server.sent_header is None
    await events_of(await streamed(server.client(kind, default_headers={name: "7"})))
    assert server.sent_header == "7"
    await events_of(await streamed(server.client(kind, http_client=server.http(kind, headers={name: "8"}))))
    assert server.sent_header == "8"
    await events_of(await streamed(server.client(kind, request_tokens=False), extra_headers={name: "1"}))
    assert server.sent_header == "1"


@both
async def test_other_headers_of_the_caller_go_along(kind: str) -> None:
    server = Server(answer())
    await events_of(await streamed(server.client(kind), extra_headers={"x-mine": "1"}))
    assert (server.sent_header, server.requests[-1].headers["x-mine"]) == ("1", "1")


@both
async def test_calls_without_streaming_and_other_endpoints_are_untouched(kind: str) -> None:
    whole = {**RESPONSE, "status": "completed"}
    server = Server([json.dumps(whole).encode()], headers={"content-type": "application/json"})
    client = server.client(kind)
    response = await result(client.responses.create(**ASK))
    assert type(response) is Response
    assert server.sent_header is None
    chat = Server([b"data: [DONE]\n\n"]).client(kind)
    stream = await result(chat.chat.completions.create(model="m", messages=[], stream=True))
    assert type(stream) in (Stream, AsyncStream)


@both
async def test_a_stream_that_starts_in_the_middle_passes_unrepaired(kind: str) -> None:
    server = Server(answer()[4:])
    client = server.client(kind)
    stream = await result(client.responses.retrieve("resp_1", stream=True, starting_after=3))
    assert type(stream) in (Stream, AsyncStream)
    assert types_of(await events_of(stream))[0] == "output_text.delta"
    assert server.sent_header is None
    with pytest.raises(TypeError, match="starting_after"):
        report_of(stream)


@both
async def test_mode_off_is_the_plain_sdk(kind: str) -> None:
    server = Server(answer())
    stream = await streamed(server.client(kind, mode="off"))
    assert type(stream) in (Stream, AsyncStream)
    assert server.sent_header is None
    with pytest.raises(TypeError, match='mode="off"'):
        report_of(stream)


@both
async def test_mode_observe_hands_the_events_out_untouched_and_reports(kind: str) -> None:
    server = Server(faulty())
    stream = await streamed(server.client(kind, mode="observe"))
    events = await events_of(stream)
    assert events == await events_of(await streamed(server.plain(kind)))
    assert "part-added-inserted" in report_of(stream).repair_codes


@both
async def test_a_stream_class_of_the_users_own_is_left_alone(kind: str) -> None:
    class Own(Stream[ResponseStreamEvent]):
        pass

    class AsyncOwn(AsyncStream[ResponseStreamEvent]):
        pass

    own: Any = Own if kind == "sync" else AsyncOwn
    client = Server(answer()).client(kind)
    stream = await result(client.post("/responses", cast_to=Response, body={}, stream=True, stream_cls=own))
    assert type(stream) is own


@both
@pytest.mark.parametrize("tools", [[{"type": "function", "name": "get_weather"}], []])
async def test_the_tools_of_the_request_decide_about_bare_recipients(kind: str, tools: list[Any]) -> None:
    server = Server(with_tokens(BARE_CALL))
    stream = await streamed(server.client(kind), tools=tools)
    added = next(event for event in await events_of(stream) if event.type == "response.output_item.added")
    assert (added.item.type, added.item.name) == ("function_call", "get_weather")
    assert ("recipient-unknown" in report_of(stream).repair_codes) is not bool(tools)
    assert server.sent_body["tools"] == tools


@both
async def test_tools_in_the_extra_body_count(kind: str) -> None:
    server = Server(with_tokens(BARE_CALL))
    tools = [{"type": "function", "name": "get_weather"}]
    stream = await streamed(server.client(kind), extra_body={"tools": tools})
    await events_of(stream)
    assert "recipient-unknown" not in report_of(stream).repair_codes


# --- options and wrapping -----------------------------------------------------------------------------


@both
async def test_copies_keep_the_options_and_may_change_them(kind: str) -> None:
    reports: list[Report] = []
    client = Server(answer()).client(kind, preambles="drop", on_report=reports.append)
    assert client.copy()._harmony == client._harmony == client.with_options(timeout=3)._harmony
    copied = client.with_options(timeout=3, mode="observe").copy(deltas="live")
    assert (copied.timeout, copied._harmony.mode, copied._harmony.deltas, copied._harmony.preambles) == (3, "observe", "live", "drop")
    await events_of(await streamed(copied))
    assert len(reports) == 1
    assert client._harmony.mode == "repair"


@both
async def test_wrapping_does_not_change_the_given_client(kind: str) -> None:
    server = Server(faulty())
    plain = server.plain(kind)
    before, resource = dict(vars(plain)), plain.responses
    wrapped = wrap(plain, mode="observe")
    assert isinstance(wrapped, HarmonyOpenAI if kind == "sync" else AsyncHarmonyOpenAI)
    assert type(await streamed(plain)) in (Stream, AsyncStream)
    assert type(await streamed(wrapped)) in (RepairedStream, AsyncRepairedStream)
    assert plain.responses is resource is not wrapped.responses
    assert vars(plain).keys() - before.keys() == {"responses"}
    assert wrapped._client is plain._client


def test_wrapping_keeps_the_class_and_the_state_of_the_client() -> None:
    class Mine(openai.OpenAI):
        __slots__ = ("slotted",)

        def __init__(self, tenant: str) -> None:
            super().__init__(api_key="k")
            self.tenant = tenant
            self.slotted = "s"

        @cached_property
        def bound(self) -> Mine:
            return self

    mine = Mine("a")
    assert mine.bound is mine
    wrapped = wrap(mine)
    assert isinstance(wrapped, Mine)
    assert type(wrapped).__name__ == "HarmonyMine"
    assert (wrapped.tenant, wrapped.api_key, wrapped.slotted) == ("a", "k", "s")
    assert wrapped.bound is wrapped
    assert type(wrap(mine)) is type(wrapped)


def test_a_copy_method_that_names_its_own_class_still_gives_a_wrapped_client() -> None:
    class Mine(openai.OpenAI):
        def copy(self, **options: Any) -> Any:
            return Mine(api_key=self.api_key, **options)

    copied = wrap(Mine(api_key="k"), preambles="drop").copy(timeout=3, mode="observe")
    assert isinstance(copied, Mine)
    assert (copied.timeout, copied._harmony.preambles, copied._harmony.mode) == (3, "drop", "observe")


def test_wrapping_again_changes_only_the_options_that_are_named() -> None:
    once = wrap(openai.AzureOpenAI(api_key="k", api_version="1", azure_endpoint="http://a"), preambles="drop")
    twice = wrap(once, mode="observe")
    assert type(twice) is type(once)
    assert (twice._harmony.mode, twice._harmony.preambles) == ("observe", "drop")
    assert once._harmony.mode == "repair"


def test_only_clients_of_the_sdk_can_be_wrapped() -> None:
    for other in (object(), openai.OpenAI, None):
        with pytest.raises(TypeError, match="OpenAI or AsyncOpenAI client"):
            wrap(other)  # type: ignore[type-var]


def test_options_with_unknown_names_or_values_are_refused() -> None:
    with pytest.raises(ValueError, match="mode must be one of 'repair', 'observe', 'off', not 'on'"):
        HarmonyOpenAI(api_key="k", mode="on")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="preambles"):
        wrap(openai.OpenAI(api_key="k"), preambles="show")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="modus"):
        wrap(openai.OpenAI(api_key="k"), modus="repair")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        HarmonyOpenAI(api_key="k", base_ulr="http://x")

    async def hook(report: Report) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        HarmonyOpenAI(api_key="k", on_report=hook)


# --- reports --------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("events", [answer(), faulty(), with_tokens(PARIS)], ids=["correct", "faulty", "tokens"])
async def test_the_report_is_delivered_once_and_before_the_terminal_event(kind: str, events: list[Any]) -> None:
    seen: list[Any] = []
    client = Server(events).client(
        kind, on_report=lambda report: seen.append((report, report.ending, report.verdict)), on_mismatch="ignore"
    )
    stream = await streamed(client)
    event = None
    while event is None or event.type != "response.completed":
        event = await next_of(stream)
    assert [(report is report_of(stream) is stream.report, ending) for report, ending, _ in seen] == [(True, "completed")]
    assert await events_of(stream) == []
    await result(stream.close())
    assert len(seen) == 1


@both
async def test_a_hook_that_raises_is_logged_and_the_stream_goes_on(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def hook(report: Report) -> None:
        raise ZeroDivisionError

    events = await events_of(await streamed(Server(answer()).client(kind, on_report=hook)))
    assert types_of(events)[-1] == "completed"
    assert [(record.name, record.levelno) for record in caplog.records if record.exc_info] == [("harmony_client", logging.ERROR)]


@both
async def test_the_report_can_be_had_from_all_that_leads_to_the_stream(kind: str) -> None:
    client = Server(answer()).client(kind)
    stream = await streamed(client)
    assert report_of(stream) is report_of(stream.response) is stream.report
    raw = await result(client.responses.with_raw_response.create(**ASK, stream=True))
    with pytest.raises(TypeError, match="after parse"):
        report_of(raw)
    assert report_of(raw.parse()) is report_of(raw) is report_of(raw.http_response)


@both
async def test_what_has_no_report_is_refused_with_a_reason(kind: str) -> None:
    server = Server(answer())
    manager = server.client(kind).responses.stream(**ASK)
    for other in (await streamed(server.plain(kind)), manager, object(), None, ValueError("x")):
        with pytest.raises(TypeError, match="belongs to no repaired response stream"):
            report_of(other)
    if kind == "async":  # the manager of the helper holds a coroutine that was never awaited
        async with manager:
            pass


# --- stopping early -----------------------------------------------------------------------------------


async def close_stream(stream: Any) -> None:
    await result(stream.close())


async def leave_context(stream: Any) -> None:
    async with entered(stream):
        pass


async def close_http_response(stream: Any) -> None:
    response = stream.response
    await result(response.aclose() if hasattr(stream, "__aiter__") else response.close())


@both
@pytest.mark.parametrize("stop", [close_stream, leave_context, close_http_response])
@pytest.mark.parametrize("taken", [0, 1, 5])
async def test_closing_early_ends_the_report_and_the_http_response_at_once(kind: str, stop: Any, taken: int) -> None:
    reports: list[Report] = []
    server = Server([b"".join(frames(answer()))])
    stream = await streamed(server.client(kind, on_report=reports.append))
    for _ in range(taken):
        await next_of(stream)
    assert reports == []
    await stop(stream)
    assert [report.ending for report in reports] == ["closed"]
    assert report_of(stream).verdict == "unverifiable"
    assert server.bodies[-1].closed
    assert await events_of(stream) == []
    await stop(stream)
    assert len(reports) == 1


@both
async def test_leaving_the_helper_early_ends_the_report_and_the_http_response_at_once(kind: str) -> None:
    reports: list[Report] = []
    server = Server(answer())
    async with entered(server.client(kind, on_report=reports.append).responses.stream(**ASK)) as stream:
        await next_of(stream)
        assert reports == []
    assert [report.ending for report in reports] == ["closed"]
    assert report_of(stream) is reports[0]
    assert server.bodies[-1].closed


@both
async def test_leaving_a_streaming_response_early_ends_the_report(kind: str) -> None:
    reports: list[Report] = []
    client = Server(answer()).client(kind, on_report=reports.append)
    async with entered(client.responses.with_streaming_response.create(**ASK, stream=True)) as response:
        await next_of(await result(response.parse()))
    assert [report.ending for report in reports] == ["closed"]


def test_a_stream_that_is_dropped_half_read_is_closed_and_reported() -> None:
    reports: list[Report] = []
    server = Server(answer())
    client = server.client("sync", on_report=reports.append)
    for _ in client.responses.create(**ASK, stream=True):
        break
    gc.collect()
    assert [report.ending for report in reports] == ["closed"]
    assert server.bodies[-1].closed


async def test_cancellation_passes_untouched_and_closes_the_connection() -> None:
    reports: list[Report] = []
    with Socket(answer()[:5], then="hang") as server:
        client = server.client("async", on_report=reports.append)
        events: list[Any] = []
        task = asyncio.create_task(events_of(await streamed(client), events))
        while len(events) < 5:
            await asyncio.sleep(0.001)
        task.cancel("mine")
        with pytest.raises(asyncio.CancelledError, match="mine"):
            await task
        assert [report.ending for report in reports] == ["closed"]
        assert await asyncio.to_thread(server.client_closed.wait, 10)


async def test_closing_from_another_task_ends_the_iteration() -> None:
    with Socket(answer()[:5], then="hang") as server:
        stream = await streamed(server.client("async"))
        events: list[Any] = []
        task = asyncio.create_task(events_of(stream, events))
        while len(events) < 5:
            await asyncio.sleep(0.001)
        await stream.close()
        assert await asyncio.wait_for(task, 10) is events
        assert report_of(stream).ending == "closed"


@both
async def test_a_server_that_stays_open_after_its_terminal_event_is_not_waited_for(kind: str) -> None:
    with Socket(answer(), then="hang") as server:
        client = server.client(kind)
        events = await events_of(await streamed(client))
        assert types_of(events)[-1] == "completed"
        assert await asyncio.to_thread(server.client_closed.wait, 10)
