"""The seam: the frames of one response, and that a tap never raises."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_client.errors import FrameError
from harmony_client.wire import MAX_BATCH_IDS, MAX_TOKEN_ID, TokenBatch, encode_batch
from server_ext import tap
from server_ext.tap import MAX_REPORTS, EngineOutput, Tap, TokenFrames, asks_for_tokens, report_once
from tests.recordings import load

NAME = "engine/1.0"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "_reported", set())


class Index:
    """An integer as numerical libraries have them."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def given_output(output: EngineOutput) -> EngineOutput:
    return output


@given(st.lists(st.lists(st.integers(0, MAX_TOKEN_ID), max_size=30)))
def test_frames_are_those_that_the_wire_module_writes(batches: list[list[int]]) -> None:
    quick, plain = TokenFrames(NAME), TokenFrames(NAME)
    for ids in batches:
        assert quick.frame(ids) == encode_batch(plain.take(ids)).decode()
    assert (quick.batch, quick.start) == (plain.batch, plain.start)


@pytest.mark.parametrize("ids", [[-1], [MAX_TOKEN_ID + 1], [1.5], ["a"], [None], [2**40], [1, [2]], [0] * (MAX_BATCH_IDS + 1)], ids=str)
def test_ids_that_are_none_are_refused_in_the_first_frame_and_later(ids: list[Any]) -> None:
    frames = TokenFrames(NAME)
    with pytest.raises(FrameError):
        TokenFrames(NAME).frame(ids)
    frames.frame([1])
    with pytest.raises(FrameError):
        frames.frame(ids)


def test_integers_of_another_type_are_written_as_integers() -> None:
    frames = TokenFrames(NAME)
    frames.frame([1])
    assert '"token_ids":[7,1,300]' in frames.frame([Index(7), True, Index(300)])  # type: ignore[list-item]


def test_a_recorded_stream_is_numbered_alike() -> None:
    recording = load("main")[0]
    frames = TokenFrames(recording.server)
    plain = [frames.take(batch.token_ids) for batch in recording.batches]
    assert [batch[:3] for batch in plain] == [batch[:3] for batch in recording.token_batches()]


def test_a_tap_says_how_generation_ended_in_a_frame_of_its_own() -> None:
    tapped = Tap(NAME, given_output)
    assert tapped.receive(EngineOutput([5])) == encode_batch(TokenBatch(0, 0, [5], server=NAME)).decode()
    assert (tapped.open, tapped.done) == (True, False)
    assert tapped.receive(EngineOutput([6, 7], True, "stop", 200002)) == encode_batch(TokenBatch(1, 1, [6, 7])).decode()
    assert tapped.done
    end = TokenBatch(2, 3, [], True, "stop", 200002, 3, "ValueError")
    assert tapped.close(ValueError("no text of it")) == encode_batch(end).decode()
    assert (tapped.open, tapped.done, tapped.close(), tapped.receive(EngineOutput([8]))) == (False, False, "", "")


def test_an_engine_response_without_ids_has_no_frame() -> None:
    tapped = Tap(NAME, given_output)
    assert tapped.receive(EngineOutput([])) == ""
    assert '"batch":0' in tapped.receive(EngineOutput([1]))
    assert tapped.receive(EngineOutput([], True, "stop")) == ""
    assert '"batch":1,"start":1,"token_ids":[]' in tapped.close()


def test_a_response_without_any_engine_response_can_be_closed() -> None:
    assert '"done":true' in Tap(NAME, given_output).close()


def test_a_tap_can_be_sent_to_another_process_at_any_time() -> None:
    tapped, sent = Tap(NAME, given_output), Tap(NAME, given_output)
    for output in (EngineOutput([1]), EngineOutput([2, 3]), EngineOutput([4], True, "length")):
        sent = pickle.loads(pickle.dumps(sent))
        assert tapped.receive(output) == sent.receive(output)
    assert tapped.close() == sent.close()


@pytest.mark.parametrize(
    ("output", "symbol"),
    [
        (object(), "object.outputs"),
        (EngineOutput([MAX_TOKEN_ID + 1]), "engine response"),
        (EngineOutput(None), "engine response"),  # type: ignore[arg-type]
    ],
    ids=["attribute", "id", "no ids"],
)
def test_after_trouble_a_tap_is_silent_and_one_line_says_why(output: Any, symbol: str, caplog: pytest.LogCaptureFixture) -> None:
    def read(result: Any) -> EngineOutput:
        return result if isinstance(result, EngineOutput) else EngineOutput(result.outputs)

    tapped = Tap(NAME, read)
    assert tapped.receive(EngineOutput([1]))
    assert [tapped.receive(output), tapped.receive(EngineOutput([2])), tapped.close()] == ["", "", ""]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"{NAME}: {symbol}: ")


def test_an_ending_that_cannot_be_written_is_trouble_too(caplog: pytest.LogCaptureFixture) -> None:
    tapped = Tap(NAME, given_output)
    assert tapped.receive(EngineOutput([1], True, object()))  # type: ignore[arg-type]
    assert (tapped.close(), tapped.open) == ("", False)
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == ["last engine response"]


def test_the_same_trouble_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    for symbol in ("a", "a", "b", "a"):
        report_once(NAME, symbol, "gone")
    assert [record.getMessage() for record in caplog.records] == [
        f"{NAME}: {symbol}: gone. Served without token frames; nothing else changes." for symbol in ("a", "b")
    ]


def test_an_exception_is_reported_by_its_type_whatever_its_text(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(1000):
        report_once(NAME, "a", ValueError(f"the model wrote {number}"), "So be it.")
        report_once(NAME, "a", FrameError("bad-ids", f"id {number}"), "So be it.")
    assert [record.getMessage() for record in caplog.records] == [
        f"{NAME}: a: ValueError. So be it.",
        f"{NAME}: a: FrameError bad-ids. So be it.",
    ]
    assert all(record.exc_info is None for record in caplog.records)


def test_a_missing_attribute_is_reported_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    for error in (AttributeError("no"), AttributeError("no", name="x", obj=caplog)):
        report_once(NAME, "a", error)
    assert [record.getMessage().split(": ")[1:] for record in caplog.records] == [
        [symbol, "AttributeError. Served without token frames; nothing else changes."] for symbol in ("a", "LogCaptureFixture.x")
    ]


def test_only_at_level_debug_an_exception_is_logged_whole(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "server_ext"):
        report_once(NAME, "a", "words of our own")
        report_once(NAME, "a", ValueError("text"))
    assert [(record.levelname, record.exc_info is not None) for record in caplog.records] == [
        ("WARNING", False),
        ("WARNING", False),
        ("DEBUG", True),
    ]


def test_a_process_has_a_limit_of_reports(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(2 * MAX_REPORTS):
        report_once(NAME, f"symbol {number}", "gone")
    assert len(caplog.records) == len(tap._reported) == MAX_REPORTS


@pytest.mark.parametrize(
    ("headers", "asks"),
    [
        ([(b"x-harmony-tokens", b"1")], True),
        ([(b"host", b"h"), (b"X-Harmony-Tokens", b" 1 ")], True),
        ([(b"x-harmony-tokens", b"1"), (b"x-harmony-tokens", b"1")], True),
        ([(b"x-harmony-tokens", b"1, 1")], True),
        ([(b"x-harmony-tokens", b"1,")], True),
        ([(b"x-harmony-tokens", b"0,11")], False),
        ([(b"x-harmony-tokens", b"0")], False),
        ([(b"x-harmony-tokens", b"11")], False),
        ([(b"x-harmony-token", b"1")], False),
        ([], False),
    ],
)
def test_who_asks(headers: list[tuple[bytes, bytes]], asks: bool) -> None:
    assert asks_for_tokens(headers) is asks
