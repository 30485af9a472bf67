"""One failure, one outcome: how streams end, and what they carry when they end badly."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from harmony_client.errors import DisconnectedError, LimitError, ServerError, StreamError, VerificationError
from harmony_client.output import MAX_ITEMS
from harmony_client.repair import MAX_EARLY_EVENTS, StreamRepairer
from tests.judge import Event, play
from tests.recordings import load
from tests.streams import Call, Message, Reasoning, build

ANSWER = [Reasoning(texts=[["Think."]]), Message(texts=[["It ", "rains."]])]


def until(events: list[Event], type_: str, nth: int = 0) -> list[Event]:
    """The events up to and with the nth of a type."""
    places = [number for number, event in enumerate(events) if event["type"] == type_]
    return events[: places[nth] + 1]


CUT = until(build(ANSWER), "response.output_text.delta")
WHOLE = build(ANSWER)[:-1]


def partial_texts(failure: StreamError | None) -> list[str]:
    assert failure is not None
    assert failure.partial is not None
    return ["".join(part["text"] for part in item["content"]) for item in failure.partial["output"]]


# --- the connection ends or breaks --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [(None, "disconnected"), (ConnectionResetError("reset by peer"), "disconnected"), (TimeoutError("read timed out"), "timeout")],
)
def test_an_end_with_an_open_item_is_an_error_with_everything_received(error: Any, code: str) -> None:
    stream = play(CUT, error=error)
    assert isinstance(stream.failure, DisconnectedError)
    assert stream.failure.code == code
    assert stream.failure.retryable
    assert stream.failure.__cause__ is error
    assert partial_texts(stream.failure) == ["Think.", "It "]
    assert stream.failure.partial is not None
    assert [item["status"] for item in stream.failure.partial["output"]] == ["completed", "incomplete"]
    assert stream.failure.partial["status"] == "incomplete"
    assert stream.report.ending == "error"
    assert stream.report.error == code
    assert stream.report.verdict == "unverifiable"
    assert stream.failure.report is stream.report
    assert stream.events[-1]["type"] == "response.output_item.done"
    assert stream.violations() == []


def test_a_clean_end_with_every_item_closed_gets_a_terminal_event() -> None:
    stream = play(WHOLE)
    assert stream.failure is None
    assert stream.terminal is not None
    assert stream.terminal["response"]["status"] == "completed"
    assert [item["id"] for item in stream.terminal["response"]["output"]] == ["rs_0", "msg_1"]
    assert stream.report.repair_codes == {"terminal-synthesized"}
    assert stream.report.verdict == "unverifiable"


def test_a_broken_connection_is_an_error_even_with_every_item_closed() -> None:
    stream = play(WHOLE, error=ConnectionResetError())
    assert isinstance(stream.failure, DisconnectedError)
    assert partial_texts(stream.failure) == ["Think.", "It rains."]


def test_an_end_before_anything_came_is_an_error_without_a_partial_response() -> None:
    stream = play([])
    assert isinstance(stream.failure, DisconnectedError)
    assert stream.failure.partial is None
    assert stream.events == []


def test_an_end_right_after_created_is_an_error_not_an_empty_success() -> None:
    stream = play(build([])[:2])
    assert isinstance(stream.failure, DisconnectedError)
    assert stream.failure.partial is not None
    assert stream.failure.partial["output"] == []


@pytest.mark.parametrize("error", [None, ConnectionResetError()])
def test_on_request_a_broken_connection_ends_in_response_incomplete(error: Any) -> None:
    stream = play(CUT, error=error, on_disconnect="incomplete")
    assert stream.failure is None
    assert stream.terminal is not None
    assert stream.terminal["type"] == "response.incomplete"
    assert [item["status"] for item in stream.terminal["response"]["output"]] == ["completed", "incomplete"]
    assert stream.violations() == []


@pytest.mark.parametrize("on_disconnect", ["error", "incomplete"])
def test_a_call_with_cut_arguments_is_never_closed_as_complete(on_disconnect: str) -> None:
    events = until(build([Call(['{"city":', '"Oslo"}'])]), "response.function_call_arguments.delta")
    stream = play(events, on_disconnect=on_disconnect)
    done = stream.items[0].done
    assert done is not None
    assert done["status"] == "incomplete"
    assert done["arguments"] == '{"city":'


# --- the server says it failed --------------------------------------------------------------------------


def test_response_failed_is_the_last_event_and_open_items_are_closed_before_it() -> None:
    failed = build([], "failed")[-1] | {"sequence_number": 99}
    stream = play([*CUT, failed])
    assert stream.failure is None
    assert stream.events[-1] == failed
    assert stream.events[-2]["type"] == "response.output_item.done"
    assert stream.report.ending == "failed"
    assert stream.report.server_response == failed["response"]
    assert stream.violations() == []


def test_an_error_event_before_response_failed_is_swallowed() -> None:
    failed = build([], "failed")[-1] | {"sequence_number": 99}
    stream = play([*CUT, {"type": "error", "code": "server_error", "message": "no", "sequence_number": 98}, failed])
    assert stream.failure is None
    assert "error" not in [event["type"] for event in stream.events]
    assert stream.events[-1] == failed


@pytest.mark.parametrize(
    ("said", "message", "retryable"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}, "slow down", True),
        ({"type": "error", "code": "invalid_prompt", "message": "bad prompt"}, "bad prompt", False),
        ({"error": {"message": "Unknown role", "type": "BadRequestError", "code": 400}}, "Unknown role", False),
        ({"error": {"message": "overloaded", "code": 503}}, "overloaded", True),
        ({"error": "just words"}, "just words", False),
        ({"type": "error", "error": {"message": "nested", "code": "server_error"}}, "nested", True),
    ],
)
@pytest.mark.parametrize("rest", [[], [{"type": "response.in_progress", "response": {}}]])
def test_an_error_in_the_stream_is_raised_once_with_what_came_before(said: Event, message: str, retryable: bool, rest: list[Event]) -> None:
    stream = play([*CUT, said, *rest])
    assert isinstance(stream.failure, ServerError)
    assert message in str(stream.failure)
    assert stream.failure.retryable is retryable
    assert stream.failure.body
    assert partial_texts(stream.failure) == ["Think.", "It "]
    assert stream.violations() == []


def test_an_error_after_the_last_token_is_replaced_by_the_answer_only_if_the_batch_said_so() -> None:
    recording = next(recording for recording in load("main") if recording.scenario == "duplicate_end" and recording.pattern == "20")
    events = recording.events(frames=True)
    rescued = play(events)
    assert rescued.terminal is not None
    assert rescued.terminal["type"] == "response.completed"
    assert {"error-swallowed", "terminal-synthesized"} <= rescued.report.repair_codes
    for event in events:
        event.pop("snapshot_error", None)
    failed = play(events)
    assert failed.terminal is not None
    assert failed.terminal["type"] == "response.failed"
    assert failed.violations() == []


# --- the application stops, or the terminal event comes --------------------------------------------------


def test_after_close_nothing_more_comes_and_the_report_says_closed() -> None:
    repairer = StreamRepairer()
    for event in CUT:
        repairer.receive(event)
    repairer.close()
    assert repairer.finished
    assert repairer.failure is None
    assert repairer.receive(WHOLE[-1]) == []
    assert repairer.receive_eof() == []
    assert repairer.report.ending == "closed"


def test_a_second_response_in_the_stream_is_only_reported() -> None:
    repairer = StreamRepairer()
    first = build(ANSWER)
    out = [event for given in first for event in repairer.receive(given)]
    assert out == first
    assert [event for given in build([Message([["Again"]])]) for event in repairer.receive(given)] == []
    assert repairer.report.repair_codes == {"terminal-repeated"}


def test_why_an_answer_is_incomplete_is_said_only_where_it_is_known() -> None:
    events = build(ANSWER, "incomplete")
    events[-1]["response"]["incomplete_details"] = None
    unknown = play(events)
    assert unknown.events == events
    broken = play(CUT, on_disconnect="incomplete")
    assert broken.terminal is not None
    assert broken.terminal["response"]["incomplete_details"] is None
    assert (broken.report.ending, broken.report.error) == ("incomplete", "disconnected")
    recording = next(recording for recording in load("v12") if recording.scenario == "truncated_answer")
    by_tokens = play(recording.events(frames=True))
    assert by_tokens.terminal is not None
    assert by_tokens.terminal["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_errors_and_reports_survive_pickling() -> None:
    failure = play(CUT).failure
    again = pickle.loads(pickle.dumps(failure))
    assert type(again) is DisconnectedError
    assert (str(again), again.code, again.partial, again.retryable) == (str(failure), "disconnected", failure.partial, True)
    assert again.report == failure.report


def test_a_cut_structured_answer_gets_no_text_done_that_a_parser_would_raise_on() -> None:
    cut = until(build([Message(texts=[['{"city":', '"Oslo"}']])]), "response.output_text.delta")
    stream = play(cut, structured=True)
    assert "response.output_text.done" not in [event["type"] for event in stream.events]
    assert stream.report.repair_codes >= {"text-done-withheld"}
    assert stream.violations() == []
    assert stream.failure is not None
    assert stream.failure.partial["output"][0]["content"][0]["text"] == '{"city":'
    whole = play(build([Message(texts=[['{"city":', '"Oslo"}']])]), structured=True)
    assert "text-done-withheld" not in whole.report.repair_codes


# --- mismatch ---------------------------------------------------------------------------------------------


def mismatched() -> list[Event]:
    events = build(ANSWER)
    events[-1]["response"]["output"][1]["content"][0]["text"] = "It snows."
    return events


def test_a_mismatch_is_logged_without_content(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="harmony_client"):
        stream = play(mismatched(), on_mismatch="warn")
    assert stream.report.verdict == "mismatch"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "snows" not in caplog.text
    assert "item 1" in caplog.text


def test_a_mismatch_is_raised_in_place_of_the_terminal_event_on_request() -> None:
    stream = play(mismatched(), on_mismatch="raise")
    assert isinstance(stream.failure, VerificationError)
    assert stream.terminal is None
    assert stream.failure.partial is not None
    assert stream.report.ending == "error"


def test_a_mismatch_can_be_ignored_and_is_still_in_the_report(caplog: pytest.LogCaptureFixture) -> None:
    stream = play(mismatched(), on_mismatch="ignore")
    assert stream.report.verdict == "mismatch"
    assert caplog.records == []
    (difference,) = stream.report.unexpected_differences
    assert (difference.output_index, difference.field, difference.streamed, difference.server) == (1, "text", "It rains.", "It snows.")


# --- bounds -----------------------------------------------------------------------------------------------


def test_events_before_created_are_held_in_order_up_to_a_bound() -> None:
    early: list[Event] = [{"type": "vendor:tick", "n": number} for number in range(3)]
    stream = play([*early, *build(ANSWER)])
    assert stream.events[0]["type"] == "response.created"
    assert stream.events[1:4] == early
    flood: list[Event] = [{"type": "vendor:tick"}] * (MAX_EARLY_EVENTS + 1)
    stopped = play(flood)
    assert isinstance(stopped.failure, LimitError)
    assert stopped.failure.code == "too-many-early-events"


def test_more_items_than_a_response_may_have_end_it_with_what_came_before() -> None:
    events = build([])[:2]
    events += [
        {"type": "response.output_item.added", "output_index": 10**9 + number, "item": {"type": "message", "id": f"m{number}"}}
        for number in range(MAX_ITEMS + 1)
    ]
    stream = play(events)
    assert isinstance(stream.failure, LimitError)
    assert stream.failure.code == "too-many-items"
    assert stream.failure.partial is not None
    assert len(stream.failure.partial["output"]) == MAX_ITEMS


def test_more_parts_than_an_item_may_have_end_it_with_what_came_before() -> None:
    events = until(build(ANSWER), "response.output_item.added", 1)
    for number in range(100):
        part = {"type": "output_text", "text": "x", "annotations": []}
        common = {"item_id": "msg_1", "output_index": 1, "content_index": number, "part": part}
        events += [{"type": "response.content_part.added", **common}, {"type": "response.content_part.done", **common}]
    stream = play(events)
    assert isinstance(stream.failure, LimitError)
    assert stream.failure.code == "too-many-parts"
    assert partial_texts(stream.failure)[1] == "x" * 64


def test_a_snapshot_with_a_million_items_is_refused() -> None:
    events = build(ANSWER)
    events[-1]["response"]["output"] = [{"type": "message"}] * 1_000_000
    stream = play(events)
    assert isinstance(stream.failure, LimitError)
    assert partial_texts(stream.failure) == ["Think.", "It rains."]
