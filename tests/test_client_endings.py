"""How a stream ends for the application: errors of both families, broken connections, and any bytes at all."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import openai
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

from harmony_client import errors, sse
from harmony_client.body import MAX_EVENTS_AFTER_DONE
from harmony_client.client import outcome_of, report_of, wrap
from harmony_client.report import Report
from tests.clients import (
    ASK,
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
async def test_an_empty_body_is_a_broken_connection(kind: str) -> None:
    with pytest.raises(openai.APIConnectionError) as caught:
        await events_of(await streamed(Server([]).client(kind)))
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


# --- the outcome --------------------------------------------------------------------------------------


def ended(status: str) -> list[dict[str, Any]]:
    """The answer's stream with another status."""
    events = answer()
    events[-1] = {**events[-1], "type": f"response.{status}", "response": {**events[-1]["response"], "status": status}}
    return events


@both
@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
async def test_the_outcome_of_a_stream_with_a_terminal_event_is_its_response(kind: str, status: str) -> None:
    async with entered(Server(ended(status)).client(kind).responses.stream(**ASK)) as stream:
        events = await events_of(stream)
        outcome = outcome_of(stream)
    assert outcome.ending == status
    assert outcome.error is None
    assert isinstance(outcome.response, Response)
    assert outcome.response.status == status
    assert outcome.response.output_text == text_of(events)


@both
async def test_the_outcome_of_a_cut_stream_is_the_error_with_what_came(kind: str) -> None:
    stream = await streamed(Server(NO_TERMINAL).client(kind))
    with pytest.raises(openai.APIConnectionError) as caught:
        await events_of(stream)
    for source in (stream, caught.value):
        outcome = outcome_of(source)
        assert (outcome.ending, outcome.error) == ("error", caught.value)
        assert outcome.response is not None
        assert outcome.response.output_text == '{"city": "Paris"}'


@both
async def test_the_outcome_of_a_stream_in_the_middle_is_what_has_come_so_far(kind: str) -> None:
    stream = await streamed(Server(answer()).client(kind))
    assert outcome_of(stream) == (None, None, None)
    for _ in range(5):
        await next_of(stream)
    outcome = outcome_of(stream)
    assert outcome.ending is None
    assert outcome.response is not None
    assert outcome.response.output_text == '{"city":'
    await result(stream.close())
    assert outcome_of(stream).ending == "closed"
    assert outcome_of(stream).response == outcome.response


@both
async def test_the_outcome_of_a_broken_connection_that_was_not_raised_still_has_the_error(kind: str) -> None:
    stream = await streamed(Server(NO_TERMINAL).client(kind, on_disconnect="incomplete"))
    events = await events_of(stream)
    outcome = outcome_of(stream)
    assert (outcome.ending, events[-1].type) == ("incomplete", "response.incomplete")
    assert isinstance(outcome.error, openai.APIConnectionError)
    assert outcome.response is not None
    assert outcome.response.incomplete_details is None


def test_only_a_repaired_stream_has_an_outcome() -> None:
    with pytest.raises(TypeError, match="outcome_of"):
        outcome_of(object())


@both
@pytest.mark.parametrize(
    "body", [b"<html>504 Gateway Time-out</html>", b'{"type": "response.created"}\n{"type": "response.completed"}\n', b"ok"]
)
async def test_a_body_that_is_no_event_stream_is_an_error_that_says_so(kind: str, body: bytes) -> None:
    stream = await streamed(Server([body], headers={"content-type": "text/html"}).client(kind))
    with pytest.raises(openai.APIError, match="no event stream but text/html") as caught:
        await events_of(stream)
    error: Any = caught.value
    assert (error.code, error.retryable, error.partial) == ("not-a-stream", False, None)
    assert body[:4].decode() in error.body


class Schema(pydantic.BaseModel):
    city: str


@both
@pytest.mark.parametrize("ending", ["reset", "clean end", "error event", "response.failed", "response.incomplete"])
async def test_a_cut_structured_answer_ends_as_any_other_and_not_in_a_parse_error(kind: str, ending: str) -> None:
    cut = answer('{"city":"V', 'ik"}')[:5]
    base = cut[0]["response"]
    rest: dict[str, list[Any]] = {
        "error event": [ERROR_EVENT],
        "response.failed": [{"type": "response.failed", "response": {**base, "status": "failed"}, "sequence_number": 9}],
        "response.incomplete": [{"type": "response.incomplete", "response": {**base, "status": "incomplete"}, "sequence_number": 9}],
    }
    server = Server([*cut, *rest.get(ending, [])], error=HTTP.ReadError("reset") if ending == "reset" else None)
    async with entered(server.client(kind, on_mismatch="ignore").responses.stream(**ASK, text_format=Schema)) as stream:
        seen: list[Any] = []
        if ending.startswith("response."):
            await events_of(stream, seen)
            assert seen[-1].type == ending
        else:
            with pytest.raises(openai.APIError):
                await events_of(stream, seen)
        outcome = outcome_of(stream)
    assert outcome.response is not None
    if ending != "response.failed":
        assert outcome.response.output_text == '{"city":"V'


def test_an_error_of_the_client_survives_pickling() -> None:
    with pytest.raises(openai.APIConnectionError) as caught:
        list(Server(NO_TERMINAL).client("sync").responses.create(**ASK, stream=True))
    again: Any = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert (str(again), again.code, again.partial, again.report.ending) == (str(caught.value), "disconnected", again.partial, "error")


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(TypeError, match=r"wrap\(\) has no option tokens; it has deltas"):
        wrap(openai.OpenAI(api_key="k"), tokens=True)  # type: ignore[call-arg]
