"""Random well-formed streams, damaged at random: the output is well-formed, whole where it can be, and never repeats text."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judge import Event, Played, play
from tests.mutations import damage, split
from tests.sdk_oracle import see
from tests.streams import Call, Item, Message, Reasoning, Tool, build

# Derandomized: whether damage can be mended at all depends on luck in rare cases; the search for new ones is `tests.fuzz`.
SEEDS = st.integers(0, 2**32)


@st.composite
def plain_streams(draw: st.DrawFn) -> list[Event]:
    """Streams whose deltas are all different words, so that each can be found again."""
    words = iter(f"w{number} " for number in range(1000))
    items: list[Item] = []
    for kind in draw(st.lists(st.sampled_from("rmcst"), min_size=1, max_size=4)):
        text = [next(words) for _ in range(draw(st.integers(1, 4)))]
        made: dict[str, Item] = {
            "r": Reasoning(texts=[text]),
            "m": Message(texts=[text]),
            "c": Call(text),
            "s": Reasoning(summaries=[text]),
            "t": Tool(),
        }
        items.append(made[kind])
    return build(items, draw(st.sampled_from(["completed", "completed", "incomplete"])))


def words_of(stream: Played) -> Counter[str]:
    return Counter(word for item in stream.items for word in item.text.split())


def sent(events: list[Event]) -> tuple[Counter[str], Counter[str]]:
    """How often each word was sent as a delta, and how often at all (in one place)."""
    deltas = Counter(word for event in events if isinstance(event.get("delta"), str) for word in event["delta"].split())
    everything = Counter(word.strip('" ') for word in json.dumps(events).replace('"', " ").split() if word.startswith("w"))
    return deltas, everything


def well_formed(stream: Played) -> None:
    assert stream.violations() == []
    assert (stream.terminal is None) == (stream.failure is not None)
    assert all(item.done is not None for item in stream.items)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(plain_streams(), SEEDS, st.sampled_from(["auto", "live", "hold"]))
def test_a_damaged_stream_comes_out_well_formed(events: list[Event], seed: int, deltas: str) -> None:
    well_formed(play(damage(events, seed), deltas=deltas))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(plain_streams(), SEEDS)
def test_the_sdk_accepts_what_comes_out_of_a_damaged_stream(events: list[Event], seed: int) -> None:
    stream = play(damage(events, seed))
    if stream.failure is None:
        seen = see(stream.events)
        assert seen.error is None
        assert seen.final is not None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(plain_streams(), SEEDS)
def test_no_word_is_invented_and_none_comes_more_often_than_it_was_sent(events: list[Event], seed: int) -> None:
    broken = damage(events, seed, without=[split])  # a repeated delta that was split as well looks like new text
    shown, (deltas, everything) = words_of(play(broken)), sent(broken)
    assert set(shown) <= set(everything)
    for word, count in shown.items():
        if word in everything:
            places = max(deltas[word], 1) if not _repeats_items(broken) else max(deltas[word], everything[word])
            assert count <= places, word


def _repeats_items(events: list[Event]) -> bool:
    """Whether damage repeated an event that carries whole texts under other ids or indexes, which cannot be told from a second item."""
    return len(events) != len({json.dumps(event) for event in events}) or _ambiguous(events)


def _ambiguous(events: list[Event]) -> bool:
    ids = [event["item"].get("id") for event in events if event["type"].endswith("item.added") and isinstance(event.get("item"), dict)]
    return len(set(map(str, ids))) != len(ids)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(plain_streams(), SEEDS)
def test_repairing_a_repaired_stream_changes_nothing(events: list[Event], seed: int) -> None:
    once = play(damage(events, seed))
    if once.failure is not None or once.report.repair_codes & {"text-replaced", "status-fixed", "status-kept"}:
        return
    if any(item.kind == "function_call" and not item.added["name"] for item in once.items):
        return
    twice = play(once.events)
    assert twice.events == once.events
    assert twice.report.repairs == []


@settings(max_examples=150, deadline=None, derandomize=True)
@given(plain_streams(), SEEDS)
def test_observing_changes_nothing_and_reports_the_same(events: list[Event], seed: int) -> None:
    broken = damage(events, seed)
    seen, mended = play(broken, mode="observe"), play(broken)
    assert seen.events == broken[: len(seen.events)]
    assert seen.report.repair_codes == mended.report.repair_codes
    assert seen.report.verdict == mended.report.verdict


@pytest.mark.parametrize("value", [None, 0, "x", [], {}, [[]], {"type": {}}, True, 1.5])
@pytest.mark.parametrize(
    "field", ["type", "item", "part", "delta", "response", "output_index", "item_id", "sequence_number", "text", "arguments"]
)
def test_any_field_may_have_any_value(field: str, value: Any) -> None:
    for at in range(len(build([Reasoning(texts=[["a"]]), Call(["{}"])]))):
        events = build([Reasoning(texts=[["a"]]), Call(["{}"])])
        events[at] = {**events[at], field: value}
        well_formed(play(events))
