"""The wrapped clients: options, headers, what is left alone, how streams end, errors, reports, and the SDK's private names."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import inspect
import json
import logging
from functools import cached_property
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import AsyncStream, Stream
from openai.types.responses import Response, ResponseStreamEvent

import harmony_client.client as client_module
from harmony_client import errors, sse
from harmony_client._events import EventFactory, event_classes
from harmony_client._stream import AsyncRepairedStream, RepairedStream
from harmony_client.body import MAX_EVENTS_AFTER_DONE
from harmony_client.client import AsyncHarmonyOpenAI, HarmonyOpenAI, report_of, wrap
from harmony_client.report import Report
from tests.clients import (
    ASK,
    BARE_CALL,
    HTTP,
    KINDS,
    PARIS,
    RESPONSE,
    Server,
    Socket,
    answer,
    entered,
    events_of,
    faulty,
    frame,
    frames,
    gzipped,
    next_of,
    result,
    streamed,
    text_of,
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
@pytest.mark.parametrize(("tools", "items"), [([{"type": "function", "name": "get_weather"}], "function_call"), ([], "function_call")])
async def test_the_tools_of_the_request_decide_about_bare_recipients(kind: str, tools: list[Any], items: str) -> None:
    server = Server(with_tokens(BARE_CALL))
    stream = await streamed(server.client(kind), tools=tools)
    added = next(event for event in await events_of(stream) if event.type == "response.output_item.added")
    assert (added.item.type, added.item.name) == (items, "get_weather")
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


# --- errors -------------------------------------------------------------------------------------------

NO_TERMINAL = answer()[:6]
ERROR_EVENT = {"type": "error", "code": "overloaded", "message": "too busy", "param": None, "sequence_number": 6}
IN_STREAM = "in the stream"

FAILURES: dict[str, tuple[Server, type[Exception], type[errors.StreamError], str]] = {
    "error event": (Server([*NO_TERMINAL, ERROR_EVENT]), openai.APIError, errors.ServerError, "server-error"),
    "chat-style error": (Server([*NO_TERMINAL, {"error": {"message": "no"}}]), openai.APIError, errors.ServerError, "server-error"),
    "clean end": (Server(NO_TERMINAL), openai.APIConnectionError, errors.DisconnectedError, "disconnected"),
    "reset": (Server(NO_TERMINAL, error=HTTP.ReadError("reset")), openai.APIConnectionError, errors.DisconnectedError, "disconnected"),
    "socket error": (
        Server(NO_TERMINAL, error=ConnectionResetError()),
        openai.APIConnectionError,
        errors.DisconnectedError,
        "disconnected",
    ),
    "timeout": (Server(NO_TERMINAL, error=HTTP.ReadTimeout("slow")), openai.APITimeoutError, errors.DisconnectedError, "timeout"),
    "deep JSON": (Server([*NO_TERMINAL, b"data: " + b'{"a":' * 99_999 + b"\n\n"]), openai.APIError, errors.LimitError, "json-too-deep"),
}


@both
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_is_one_error_of_both_families_that_carries_everything_received(kind: str, failure: str) -> None:
    server, sdk_class, plain_class, code = FAILURES[failure]
    reports: list[Report] = []
    stream = await streamed(server.client(kind, on_report=reports.append))
    events: list[Any] = []
    with pytest.raises(sdk_class) as caught:
        await events_of(stream, events)
    error: Any = caught.value
    assert isinstance(error, plain_class)
    assert isinstance(error, openai.APIError)
    assert (error.code, error.report, error.report.ending) == (code, reports[0], "error")
    assert error.request is server.requests[-1]
    assert error.message == str(error) != ""
    assert isinstance(error.partial, Response)
    assert error.partial.output_text == text_of(events) == '{"city": "Paris"}'
    assert types_of(events)[-3:] == ["output_text.done", "content_part.done", "output_item.done"]
    assert report_of(error) is report_of(stream)
    assert len(reports) == 1
    assert server.bodies[-1].closed
    assert await events_of(stream) == []


@both
async def test_what_the_server_said_stands_in_the_body_of_the_error(kind: str) -> None:
    with pytest.raises(openai.APIError) as caught:
        await events_of(await streamed(FAILURES["error event"][0].client(kind)))
    error: Any = caught.value
    assert (error.body["code"], error.retryable, error.param, error.type) == ("overloaded", True, None, "error")
    assert "too busy" in error.message


@both
async def test_the_cause_of_a_broken_connection_is_chained(kind: str) -> None:
    with pytest.raises(openai.APITimeoutError) as caught:
        await events_of(await streamed(FAILURES["timeout"][0].client(kind)))
    assert isinstance(caught.value.__cause__, HTTP.ReadTimeout)


@both
async def test_the_helper_raises_the_same_errors(kind: str) -> None:
    with pytest.raises(openai.APIConnectionError) as caught:
        async with entered(Server(NO_TERMINAL).client(kind).responses.stream(**ASK)) as stream:
            await events_of(stream)
    assert report_of(caught.value) is report_of(stream)


@both
async def test_a_json_error_body_with_status_200_is_an_error(kind: str) -> None:
    server = Server([b'{"error": {"message": "Unknown role",', b' "code": 400}}'], headers={"content-type": "application/json"})
    with pytest.raises(openai.APIError, match="Unknown role") as caught:
        await events_of(await streamed(server.client(kind)))
    assert isinstance(caught.value, errors.ServerError)
    assert caught.value.partial is None


@both
async def test_a_body_that_is_no_stream_is_an_error(kind: str) -> None:
    for body in ([], [b"<html>gateway</html>"]):
        with pytest.raises(openai.APIConnectionError) as caught:
            await events_of(await streamed(Server(body).client(kind)))
        assert caught.value.partial is None  # type: ignore[attr-defined]


@both
async def test_an_endless_line_is_an_error_at_the_limit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_LINE_BYTES", 10_000)
    server = Server([*NO_TERMINAL, b"data: ", *[b"x" * 1000] * 20])
    with pytest.raises(openai.APIError) as caught:
        await events_of(await streamed(server.client(kind)))
    assert isinstance(caught.value, errors.LimitError)
    assert caught.value.partial.output_text == '{"city": "Paris"}'  # type: ignore[union-attr]
    assert server.bodies[-1].read < len(server.chunks)


@both
@pytest.mark.parametrize("then", ["reset", "drop", "end"])
async def test_a_connection_that_breaks_on_a_real_socket_is_a_connection_error(kind: str, then: str) -> None:
    with Socket(NO_TERMINAL, then) as server:
        events: list[Any] = []
        with pytest.raises(openai.APIConnectionError) as caught:
            await events_of(await streamed(server.client(kind)), events)
        assert isinstance(caught.value, errors.DisconnectedError)
        assert caught.value.retryable


@both
async def test_a_silent_server_is_a_timeout(kind: str) -> None:
    with Socket(NO_TERMINAL, then="hang") as server:
        with pytest.raises(openai.APITimeoutError) as caught:
            await events_of(await streamed(server.client(kind, timeout=0.2)))
        assert isinstance(caught.value, errors.DisconnectedError)
        assert caught.value.code == "timeout"


@both
@pytest.mark.parametrize("failure", ["reset", "timeout", "clean end"])
async def test_a_broken_connection_may_end_in_response_incomplete_instead(kind: str, failure: str) -> None:
    stream = await streamed(FAILURES[failure][0].client(kind, on_disconnect="incomplete"))
    events = await events_of(stream)
    assert types_of(events)[-1] == "incomplete"
    assert events[-1].response.output_text == '{"city": "Paris"}'
    assert report_of(stream).verdict == "unverifiable"


@both
async def test_a_mismatch_raises_if_asked_to(kind: str) -> None:
    events = answer()
    events[-1]["response"]["output"][0]["content"][0]["text"] = "something else"
    stream = await streamed(Server(events).client(kind, on_mismatch="raise"))
    with pytest.raises(openai.APIError) as caught:
        await events_of(stream)
    assert isinstance(caught.value, errors.VerificationError)
    assert report_of(caught.value).verdict == "mismatch"


@both
async def test_errors_before_the_stream_are_the_sdks_own(kind: str) -> None:
    server = Server([b'{"error": {"message": "slow down"}}'], status_code=429, headers={"content-type": "application/json"})
    with pytest.raises(openai.RateLimitError):
        await streamed(server.client(kind))


@both
async def test_response_failed_is_an_event_and_no_error(kind: str) -> None:
    failed = {**answer()[-1], "type": "response.failed"}
    failed["response"] = {**RESPONSE, "status": "failed", "error": {"code": "server_error", "message": "no"}}
    stream = await streamed(Server([*NO_TERMINAL, failed]).client(kind))
    assert types_of(await events_of(stream))[-1] == "failed"
    assert report_of(stream).ending == "failed"


# --- bytes ----------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
async def test_any_chunking_gives_the_same_objects(kind: str, line_end: bytes) -> None:
    whole = b"".join(frames(answer("Straße ", "⛴ ", "🙂"))).replace(b"\n", line_end)
    expected = await events_of(await streamed(Server([whole]).client(kind)))
    bytewise = [whole[i : i + 1] for i in range(len(whole))]
    assert await events_of(await streamed(Server(bytewise).client(kind))) == expected
    assert text_of(expected) == "Straße ⛴ 🙂"


@both
async def test_a_compressed_body_is_read(kind: str) -> None:
    assert text_of(await events_of(await streamed(gzipped(answer()).client(kind)))) == '{"city": "Paris"}'


@both
async def test_a_response_that_was_read_already_is_iterated_all_the_same(kind: str) -> None:
    def handler(request: Any) -> Any:
        return HTTP.Response(200, content=b"".join(frames(answer())))

    client_class = HTTP.Client if kind == "sync" else HTTP.AsyncClient
    client = Server().client(kind, http_client=client_class(transport=HTTP.MockTransport(handler)))
    stream = await streamed(client)
    await next_of(stream)
    await result(stream.close())
    assert report_of(stream).ending == "closed"
    assert types_of(await events_of(await streamed(client)))[-1] == "completed"


@both
async def test_what_is_no_event_is_skipped_and_counted(kind: str) -> None:
    noise = [b"\xef\xbb\xbf: hello\n\n", *frames(answer()[:3]), b"data: {broken\n\n", b"data\n\n", b"retry: 3\n\n", b"data: [1]\n\n"]
    rest = frames(answer()[3:])
    stream = await streamed(Server([*noise, *rest[:-1], rest[-1].rstrip()]).client(kind))
    events = await events_of(stream)
    assert events == await events_of(await streamed(Server(answer()).plain(kind)))
    assert (report_of(stream).skipped_data, report_of(stream).verdict) == (2, "match")


@both
@pytest.mark.parametrize("done", [b"[DONE]", b"DONE", b"[DONE", b'"[DONE]"'])
async def test_a_done_that_comes_early_or_is_misspelt_is_passed_over(kind: str, done: bytes) -> None:
    record = b"data: " + done + b"\n\n"
    events = answer()
    stream = await streamed(Server([*events[:5], record, *events[5:], record]).client(kind))
    assert types_of(await events_of(stream))[-1] == "completed"
    assert report_of(stream).skipped_data == 0


@both
async def test_a_server_that_goes_on_and_on_after_done_is_left(kind: str) -> None:
    delta = NO_TERMINAL[4]
    endless = [{**delta, "sequence_number": number} for number in range(6, 1000)]
    server = Server([*NO_TERMINAL, b"data: [DONE]\n\n", *endless])
    with pytest.raises(openai.APIConnectionError):
        await events_of(await streamed(server.client(kind)))
    assert server.bodies[-1].read == len(NO_TERMINAL) + 1 + MAX_EVENTS_AFTER_DONE + 1


@both
async def test_half_an_event_at_the_end_is_no_broken_record(kind: str) -> None:
    stream = await streamed(Server([*NO_TERMINAL, frame(answer()[6])[:80]]).client(kind))
    with pytest.raises(openai.APIConnectionError):
        await events_of(stream)
    assert report_of(stream).skipped_data == 0


PIECES = st.one_of(
    st.sampled_from([*frames(answer()), *frames(faulty()), *frames(with_tokens(PARIS)), b"data: [DONE]\n\n", frame(ERROR_EVENT)]),
    st.sampled_from(
        [b"\n", b"\r", b"data: ", b"event: response.created\n", b"{", b"}", b'"type":', b"null", b"[", b"\xef\xbb\xbf", b"\xff"]
    ),
    st.binary(max_size=8),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=30), st.sampled_from(["repair", "observe"]))
def test_whatever_bytes_come_the_stream_ends_well_or_with_an_error_of_the_sdk(pieces: list[bytes], mode: Any) -> None:
    reports: list[Report] = []
    client = Server(pieces).client("sync", mode=mode, on_report=reports.append, on_mismatch="ignore")
    with contextlib.suppress(openai.APIError):
        list(client.responses.create(**ASK, stream=True))
    assert [report.ending is not None for report in reports] == [True]


# --- event objects ------------------------------------------------------------------------------------

MALFORMED: list[dict[str, Any]] = [
    {"type": "response.output_text.delta", "delta": None},
    {"type": "response.output_text.delta", "delta": 3, "logprobs": {}, "item_id": [], "extra": {"a": 1}},
    {"type": "response.output_item.added", "item": {"type": "message", "content": None}, "output_index": "x"},
    {"type": "response.output_item.done", "item": {"type": "unheard-of", "x": 1}, "output_index": 0, "sequence_number": 1},
    {"type": "response.completed", "response": {"output": [{"type": "function_call"}, 3]}, "sequence_number": -1},
    {"type": "response.completed", "response": None},
    {"type": "vendor.ping", "sequence_number": 1},
    {"type": "response.unheard_of.delta", "delta": "x"},
    {"type": "error", "message": None, "code": 3},
]


@pytest.mark.parametrize("data", [*answer(), *MALFORMED], ids=lambda data: data["type"])
def test_an_event_is_the_object_that_the_sdk_makes_of_it(data: dict[str, Any]) -> None:
    client = openai.OpenAI(api_key="k")
    theirs: Any = client._process_response_data(data=data, cast_to=ResponseStreamEvent, response=None)  # type: ignore[arg-type]
    ours = EventFactory(None).event(data)
    assert type(ours) is type(theirs)
    assert ours == theirs
    assert ours.model_fields_set == theirs.model_fields_set
    assert ours.to_dict(warnings=False) == theirs.to_dict(warnings=False)


@pytest.mark.parametrize("key", ["_fields_set", "_BaseModel__cls", "_cls", "self", "__class__", "__dict__", "model_config"])
def test_no_key_that_a_server_sends_breaks_the_event(key: str) -> None:
    poison = {key: "x", "type": "response.completed", "response": {"output": 3, key: {key: []}}}
    assert EventFactory(None).event(poison).type == "response.completed"


def test_lone_surrogates_survive() -> None:
    event = EventFactory(None).event({**answer()[4], "delta": "\ud83d"})
    assert event.delta == "\ud83d"


@both
async def test_a_strict_client_stays_strict(kind: str) -> None:
    events = answer()
    events[4]["logprobs"] = "none"
    client = Server(events).client(kind, mode="observe", _strict_response_validation=True)
    with pytest.raises(openai.APIResponseValidationError):
        await events_of(await streamed(client))
    assert types_of(await events_of(await streamed(Server(events).client(kind))))[-1] == "completed"


@pytest.mark.skipif(HTTP.__name__ == "httpx" or importlib.util.find_spec("httpx") is None, reason="needs openai 3 and httpx")
@both
async def test_an_httpx_client_under_openai_3_works_and_its_errors_count(kind: str) -> None:
    import httpx

    class Breaking(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self) -> Any:
            yield from frames(NO_TERMINAL)
            raise httpx.ReadTimeout("slow")

        async def __aiter__(self) -> Any:
            for chunk in self:
                yield chunk

    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Breaking()))
    http_client: Any = httpx.Client(transport=transport) if kind == "sync" else httpx.AsyncClient(transport=transport)
    stream = await streamed(Server().client(kind, http_client=http_client))
    with pytest.raises(openai.APITimeoutError):
        await events_of(stream)


# --- the SDK's private names --------------------------------------------------------------------------

WHAT_TO_DO = {
    "request": "client.py overrides request(cast_to, options, *, stream, stream_cls); follow its new signature there.",
    "stream": "_stream.py overrides Stream.__stream__, which Stream.__init__ calls for self._iterator; find what yields events now.",
    "stream_cls": "client.py swaps Stream[ResponseStreamEvent]; find what Responses.create and retrieve pass now.",
    "union": "_events.py reads the event classes from the union ResponseStreamEvent; find where they are listed now.",
    "helper": "report_of() finds the HTTP response of the responses.stream() helper in ResponseStream._response.",
    "strict": "_stream.py reads client._strict_response_validation, or else strict clients become lenient.",
    "http": "client.py reads client._client.headers, or else the HTTP client's own x-harmony-tokens header is overwritten.",
    "construct": "_events.py falls back on BaseModel.construct(**data), the SDK's recursive one.",
    "resources": "wrap() drops cached properties, which hold the old client; find how client.responses is kept now.",
    "options": "client.py reads options.headers and options.params, _stream.py options.json_data and options.extra_json.",
}


@pytest.mark.parametrize("name", WHAT_TO_DO)
def test_canary_the_sdk_still_has_what_this_package_relies_on(name: str) -> None:
    assert CANARIES[name](), f"openai {openai.VERSION} broke a name that this package relies on. {WHAT_TO_DO[name]}"


def same_request() -> bool:
    wanted = ["self", "cast_to", "options", "stream", "stream_cls"]
    return all(list(inspect.signature(cls.request).parameters) == wanted for cls in (openai.OpenAI, openai.AsyncOpenAI))


def same_stream() -> bool:
    wanted = ["self", "cast_to", "response", "client", "options"]
    source = [inspect.getsource(cls.__init__) for cls in (Stream, AsyncStream)]
    signatures = [list(inspect.signature(cls.__init__).parameters) for cls in (Stream, AsyncStream)]
    return signatures == [wanted, wanted] and all("self._iterator = self.__stream__()" in text for text in source)


def same_stream_cls() -> bool:
    from openai.resources.responses.responses import AsyncResponses, Responses

    calls = [(Responses, "=Stream[ResponseStreamEvent]"), (AsyncResponses, "=AsyncStream[ResponseStreamEvent]")]
    return all(text in inspect.getsource(method) for cls, text in calls for method in (cls.create, cls.retrieve))


def same_helper() -> bool:
    from openai.lib.streaming.responses._responses import AsyncResponseStream, ResponseStream

    sources = [inspect.getsource(cls.__init__) for cls in (ResponseStream, AsyncResponseStream)]
    return all("self._response = raw_stream.response" in source for source in sources)


def same_options() -> bool:
    from openai._models import FinalRequestOptions

    return {"headers", "params", "json_data", "extra_json"} <= FinalRequestOptions.model_fields.keys()


def sdk() -> Any:
    return openai.OpenAI(api_key="k")


CANARIES = {
    "request": same_request,
    "stream": same_stream,
    "stream_cls": same_stream_cls,
    "union": lambda: len(event_classes()) > 50 and "response.output_text.delta" in event_classes(),
    "helper": same_helper,
    "strict": lambda: sdk()._strict_response_validation is False,
    "http": lambda: "user-agent" in sdk()._client.headers,
    "construct": lambda: isinstance(Response.construct(output=[{"type": "message"}]).output[0], openai.BaseModel),
    "resources": lambda: isinstance(openai.OpenAI.__dict__["responses"], cached_property),
    "options": same_options,
}


def test_the_public_names_are_the_ones_promised() -> None:
    assert client_module.__all__ == ["AsyncHarmonyOpenAI", "HarmonyOpenAI", "report_of", "wrap"]
