"""Laws of the repairer: over random outputs, random streams, and every fault the checker knows."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_client.wire import EVENT_TYPE, TokenBatch, encode_batch
from tests.differential import Generator
from tests.faults import FAULTS
from tests.judge import Event, Played, play
from tests.recordings import Recording, load
from tests.sdk_oracle import see
from tests.streams import Item, build, sample, specs

WITHOUT_TERMINAL = 2  # events of build() before its first item


def token_events(
    token_ids: list[int], size: int = 3, *, done: bool = True, finish_reason: str | None = "stop", server: str = "tensorrt-llm/1.2.1"
) -> list[Event]:
    """The opening events and token batches of a response."""
    events = build([])[:WITHOUT_TERMINAL]
    starts = list(range(0, max(len(token_ids), 1), size))
    for number, start in enumerate(starts):
        last = done and number == len(starts) - 1
        reason = finish_reason if last else None
        batch = TokenBatch(
            number, start, token_ids[start : start + size], done=last, finish_reason=reason, server=None if number else server
        )
        events.append(json.loads(encode_batch(batch).split(b"data: ")[1]))
    return events


def terminal(output: list[Event], number: int = 1000, status: str = "completed") -> Event:
    event = build([])[-1]
    event["response"] |= {"output": output, "status": status}
    return event | {"sequence_number": number, "type": f"response.{status}"}


def outputs(count: int, seed: int) -> list[list[int]]:
    generator = Generator(seed)
    return [generator.output()[1] for _ in range(count)]


# --- tokens -----------------------------------------------------------------------------------------


def test_every_prefix_of_a_token_stream_closes_into_a_well_formed_stream() -> None:
    chooser = random.Random(5)
    for token_ids in outputs(150, seed=5):
        events = token_events(token_ids, chooser.randrange(1, 6), done=False)
        for end in {len(events), chooser.randrange(len(events) + 1), chooser.randrange(len(events) + 1)}:
            cut = play(events[:end])
            assert cut.failure is not None
            assert cut.failure.code == "disconnected"
            assert cut.violations() == []
            assert all(item.done is not None for item in cut.items)
            kept = play(events[:end], on_disconnect="incomplete")
            if end:
                assert kept.terminal is not None
                assert kept.terminal["type"] == "response.incomplete"
                assert kept.violations() == []
                assert cut.failure.partial is not None
                assert cut.failure.partial["output"] == kept.terminal["response"]["output"]


def test_the_end_of_any_output_is_a_well_formed_stream_that_the_sdk_accepts() -> None:
    for number, token_ids in enumerate(outputs(150, seed=6)):
        stream = play(token_events(token_ids, 4, finish_reason="length" if number % 3 == 0 else "stop"))
        assert stream.violations() == []
        assert stream.terminal is not None
        seen = see(stream.events)
        assert seen.error is None
        assert seen.final is not None


def test_the_split_into_batches_changes_only_the_deltas() -> None:
    for token_ids in outputs(150, seed=7):
        whole, single, some = (play(token_events(token_ids, size)) for size in (10_000, 1, 3))
        for other in (single, some):
            assert other.texts == whole.texts
            assert [item.done for item in other.items] == [item.done for item in whole.items]
            assert other.report.dropped == whole.report.dropped
            assert other.report.preambles == whole.report.preambles


def damaged(recording: Recording, how: str, chooser: random.Random) -> list[Event] | None:
    events = recording.events(frames=True)
    at = [number for number, event in enumerate(events) if event["type"] == EVENT_TYPE][1:]
    if len(at) < 2:
        return None
    place = chooser.randrange(len(at) - (how == "swap"))
    if how == "drop":
        del events[at[place]]
    elif how == "repeat":
        events.insert(at[place] + 1, copy.deepcopy(events[at[place]]))
    else:
        events[at[place]], events[at[place + 1]] = events[at[place + 1]], events[at[place]]
    return events


@pytest.mark.parametrize("how", ["drop", "repeat", "swap"])
def test_a_batch_lost_repeated_or_out_of_order_never_repeats_or_invents_text(how: str) -> None:
    chooser = random.Random(11)
    tried = 0
    for recording in (*load("v12"), *load("main"), *load("pr")):
        events = damaged(recording, how, chooser)
        if events is None or recording.raised:
            continue
        tried += 1
        stream = play(events, tools=recording.tools)
        assert stream.report.mode == "lost", recording
        assert "tokens-lost" in stream.report.repair_codes
        assert stream.violations() == [], recording
        server = recording.snapshot
        assert server is not None
        listed = sorted(_listed(entry) for entry in server["output"])
        # An analysis-channel call is listed as reasoning; a preamble not at all.
        shown = sorted(text for _, text in stream.texts if text or "" in listed)
        assert shown == listed, recording
        assert stream.report.verdict == "match", (recording, stream.report.unexpected_differences)
    assert tried > 150


def _listed(item: Event) -> str:
    if item["type"] == "function_call":
        return str(item["arguments"])
    return "".join(part["text"] for part in item.get("content") or [])


def test_the_end_without_a_last_batch_is_settled_by_the_snapshot() -> None:
    for recording in load("main"):
        if recording.raised:
            continue
        events = recording.events(frames=True)
        last = max(number for number, event in enumerate(events) if event["type"] == EVENT_TYPE)
        if events[last]["batch"] == 0:
            continue
        stream = play(events[:last] + events[last + 1 :], tools=recording.tools)
        assert stream.report.mode == "lost"
        assert stream.violations() == []
        assert stream.report.verdict == "match", (recording, stream.report.unexpected_differences)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("v", 2),
        ("vocab", "cl100k"),
        ("token_ids", [-1]),
        ("token_ids", [201_089]),
        ("token_ids", "x"),
        ("start", 7),
        ("batch", None),
        ("total", 3),
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_bad_frame_ends_the_use_of_tokens_and_nothing_else(field: str, value: Any, number: int) -> None:
    recording = next(recording for recording in load("main") if str(recording).startswith("reasoning_final@main:20"))
    events = recording.events(frames=True)
    at = [place for place, event in enumerate(events) if event["type"] == EVENT_TYPE][number]
    events[at][field] = value
    stream = play(events)
    assert stream.report.mode == ("lost" if number else "events")
    assert stream.report.repair_codes & {"frame-refused", "tokens-lost", "frame-late"}
    assert stream.violations() == []
    assert stream.report.verdict == "match"
    assert [text for _, text in stream.texts] == [_listed(entry) for entry in (recording.snapshot or {})["output"]]


# --- events -----------------------------------------------------------------------------------------


def without_empty_deltas(events: list[Event]) -> list[Event]:
    return [event for event in events if not (event["type"].endswith(".delta") and event["delta"] == "")]


@settings(max_examples=150, deadline=None)
@given(specs(), st.sampled_from(["completed", "incomplete"]))
def test_a_correct_stream_comes_out_as_it_went_in(wanted: list[Item], status: str) -> None:
    events = without_empty_deltas(build(wanted, status))
    stream = play(events)
    assert stream.events == events
    assert stream.report.repairs == []
    assert stream.report.verdict == ("match" if stream.report.differences == [] else "mismatch")
    assert stream.report.differences == []


def test_the_sample_of_everything_comes_out_as_it_went_in() -> None:
    stream = play(sample())
    assert stream.events == sample()
    assert stream.report.repairs == []


def test_a_failed_response_passes_as_the_last_event() -> None:
    events = build([], "failed")
    stream = play(events)
    assert stream.events == events
    assert stream.failure is None
    assert stream.report.ending == "failed"


FAULTY = [(code, number) for code, injectors in FAULTS.items() for number in range(len(injectors))]


def broken(code: str, number: int) -> list[Any]:
    return [event for event in FAULTS[code][number](sample()) if isinstance(event, dict)]


@pytest.mark.parametrize(("code", "number"), FAULTY, ids=str)
def test_every_fault_that_the_checker_knows_is_repaired(code: str, number: int) -> None:
    stream = play(broken(code, number))
    assert stream.violations() == []
    assert (stream.terminal is None) == (stream.failure is not None)


@pytest.mark.parametrize(("code", "number"), FAULTY, ids=str)
def test_repairing_twice_changes_nothing(code: str, number: int) -> None:
    once = play(broken(code, number))
    if once.failure is not None or once.report.repair_codes & {"text-replaced", "status-fixed", "status-kept"}:
        return
    if any(item.kind == "function_call" and not item.added["name"] for item in once.items):
        return  # a call whose name never comes is announced late, each time
    twice = play(once.events)
    assert twice.events == once.events
    assert twice.report.repairs == []


#: The texts of the sample's parts: no two share a piece.
PIECES = ["Let me ", "think.", "Thin", "king", "It may ", "rain.", "Take a coat.", '{"city":', '"Oslo"}', "Bring an umbrella"]


@pytest.mark.parametrize(("code", "number"), FAULTY, ids=str)
def test_no_fault_makes_text_appear_twice_or_vanish(code: str, number: int) -> None:
    sent: list[Any] = broken(code, number)
    stream = play(sent)
    shown = "".join(text for _, text in stream.texts)
    for piece in PIECES:
        times_sent = sum(event.get("delta") == piece for event in sent)
        known = json.dumps(piece)[1:-1] in json.dumps(sent)
        assert shown.count(piece) <= max(times_sent, known), piece
        if stream.failure is None and times_sent:
            assert piece in shown, piece


def observed(events: list[Event]) -> Played:
    return play(events, mode="observe")


@pytest.mark.parametrize(("code", "number"), FAULTY, ids=str)
def test_observing_leaves_the_events_and_makes_the_same_report(code: str, number: int) -> None:
    events = broken(code, number)
    seen, mended = observed(copy.deepcopy(events)), play(copy.deepcopy(events))
    shown = [event for event in events if event.get("type") != EVENT_TYPE]
    assert seen.events == shown[: len(seen.events)]
    assert seen.report.verdict == mended.report.verdict
    assert seen.report.repair_codes == mended.report.repair_codes


def test_the_table_of_violations_has_a_row_for_every_code() -> None:
    from pathlib import Path

    from harmony_client.checker_rules import CODES

    table = (Path(__file__).parents[1] / "docs" / "violations.md").read_text(encoding="utf-8")
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == list(CODES)
