"""The drawing of a stream: what it shows, that it fits, and that nothing a server sends can break it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_client import check
from harmony_client._timeline_sheet import Half, Row, Seen, Sheet
from harmony_client.timeline import Look, WatchedRepairer
from harmony_client.wire import EVENT_TYPE
from tests.clients import answer
from tests.faults import FAULTS
from tests.recordings import Recording, load
from tests.streams import sample

WIDE = """
event       0     2     4     6     8     10    12    characters
tokens            ▮           ▮     ▮               43 tokens
── stock stream: 10 events, 5 violations ───────────────────────────────────────
response    ├─────────────────────────────────────┤
                                                ! item-done-missing and 1 more
0 reasoning          ├─────███───────────────────── 1 “.”
                     ! item-id-missing
0 message                        ███                3 “ by”
                                 ! event-wrong-kind
1 message                              ·  ·  ┤
                                       ! item-not-announced
── repaired stream: 16 events, match, from tokens ──────────────────────────────
response    ├─────────────────────────────────────┤
0 reasoning       ├██───────────┤                   73 “The user asks whe…
1 message                     ├██───██┤             69 “Your order #W2378…

├ announced  █ text  ─ open  ┤ done  · event where nothing is open
▮ token batch  ! violation  ~ repair
"""
NARROW = """
event       0    10   20   30
tokens       ||
-- one half --------------------------
response    [------------------]
            ~         x        ~ two
1 a very l>  [#-#---------------
               ! a-code-that-has-no-r>
? other     ..  .          ]
            ! one, four and 2 more
0  [2J           OO
                  status-fixed ~
-- the other half, with a title that >

[ announced  # text  - open  ] done
O announced and done
. event where nothing is open
| token batch  ! violation  ~ repair
x contradicts the final response
"""
#: A token batch is a violation for whoever gets one without asking, which nobody knows of a recording.
DRAWN_FAULTS = sorted(set(FAULTS) - {"token-batch-leaked"})


def recorded(scenario: str, pattern: str = "20", version: str = "v12") -> Recording:
    return next(r for r in load(version) if (r.scenario, r.pattern) == (scenario, pattern))


USUAL = Look()


def drawn(events: Iterable[Any], look: Look = USUAL, **options: Any) -> list[str]:
    watched = WatchedRepairer(on_mismatch="ignore", **options)
    for event in events:
        watched.watch(event)
    watched.receive_eof()
    return list(watched.draw(look))


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line)


def half(lines: list[str], title: str) -> list[str]:
    """The lines below a title, up to the next."""
    start = next(number for number, line in enumerate(lines) if line.startswith(f"── {title}")) + 1
    end = next(number for number, line in enumerate(lines[start:], start) if line.startswith("── ") or not line)
    return lines[start:end]


# --- what it shows ----------------------------------------------------------------------------------


def test_stock_and_repaired_stream_stand_over_the_same_events() -> None:
    lines = drawn(recorded("reasoning_final").events(frames=True))
    assert [line for line in lines if not line.lstrip().startswith("~")] == WIDE.splitlines()


def test_a_narrow_drawing_in_ascii_leaves_out_what_has_no_room() -> None:
    added, text, done, other = Seen.ADDED, Seen.TEXT, Seen.DONE, Seen.OTHER
    rows = [
        Row("response", {0: added, 39: done}, {0: "~", 20: "≠", 39: "~"}, ["two"]),
        Row("1 a very long label", {2: added, 5: text, 8: text}, {6: "!"}, ["a-code-that-has-no-room-at-all"]),
        Row("? other", {0: other, 3: other, 9: other, 30: done}, {1: "!"}, ["one", "four", "eleven-or-so", "seven"]),
        Row("0 \x1b[2J", {10: added, 11: done, 12: added | done}, {39: "~"}, ["status-fixed"]),
    ]
    halves = [Half("one half", rows), Half("the other half, with a title that is too long", [])]
    assert list(Sheet(Look(38, unicode=False), 40, halves).lines([2, 4, 5], 99)) == NARROW.splitlines()


def test_a_correct_stream_has_the_same_rows_twice_and_no_marks() -> None:
    lines = drawn(answer("Paris"))
    assert half(lines, "stock stream: 9 events, no violations") == half(lines, "repaired stream: 9 events, match, from events")
    assert lines[-1] == "├ announced  █ text  ─ open  ┤ done"


@pytest.mark.parametrize("code", DRAWN_FAULTS)
def test_a_mark_stands_below_each_event_with_a_violation(code: str) -> None:
    events = [event for event in FAULTS[code][0](sample()) if isinstance(event, dict)]
    lines = drawn(events, Look(500))
    first = lines[1].index(" 0 ") + 1
    marks = [line for line in half(lines, "stock stream") if line.lstrip().startswith("!")]
    marked = {(column - first) // 4 for line in marks for column, sign in enumerate(line) if sign == "!"}
    assert marked == {violation.position for violation in check(events)}


@pytest.mark.parametrize(("deltas", "begins"), [("hold", 9), ("live", 4)])
def test_what_comes_late_is_seen_to_come_late(deltas: str, begins: int) -> None:
    lines = drawn(recorded("reasoning_final").events(frames=False), deltas=deltas)
    reasoning = next(line for line in half(lines, "repaired stream") if line.startswith("0 reasoning"))
    assert (reasoning.index("█") - lines[1].index(" 0 ") - 1) // 4 == begins


def test_a_contradiction_by_the_final_response_is_marked() -> None:
    events = answer("Berlin")
    events[-1]["response"]["output"][0]["content"][0]["text"] = "Paris"
    lines = drawn(events)
    assert any("≠" in line and line.endswith("text differs") for line in lines)
    assert "≠ contradicts the final response" in lines[-1]


def test_what_is_missing_at_the_end_is_marked_there() -> None:
    lines = drawn(answer("Paris")[:-3])
    marks = next(line for line in lines if "terminal-missing" in line)
    bar = next(line for line in lines if line.startswith("response"))
    assert marks.index("!") >= len(bar) - 4


def test_events_after_the_end_are_drawn_above_only() -> None:
    lines = drawn([*answer("Paris"), *answer("Paris")])
    assert "── stock stream: 18 events" in "\n".join(lines)
    assert "── repaired stream: 9 events" in "\n".join(lines)


def test_a_tool_call_shows_its_name_and_arguments() -> None:
    lines = half(drawn(recorded("tool_commentary").events(frames=True)), "repaired stream")
    assert any(line.startswith("1 function_call ") and 'get_weather {"city' in line for line in lines)


def test_of_very_many_items_the_first_are_drawn() -> None:
    item = {"type": "message", "id": "", "content": []}
    added = [{"type": "response.output_item.added", "output_index": index, "item": item} for index in range(1000)]
    lines = drawn([answer()[0], *added])
    assert lines.count("and 961 more items") == 2
    assert len(lines) < 200


def test_data_that_is_no_event_has_a_number_too() -> None:
    events: list[Any] = answer("Paris")
    lines = drawn([*events[:3], "unreadable data", *events[3:]])
    assert "── stock stream: 10 events, 1 violation ─" in "\n".join(lines)
    assert any(line.strip() == "! event-malformed" for line in lines)


# --- that it fits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [32, 40, 44, 59, 60, 71, 72, 80, 120, 250])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, unicode: bool) -> None:
    for recording in load("v12")[::5]:
        for frames in (True, False):
            lines = drawn(recording.events(frames), Look(width, unicode))
            assert max(map(columns, lines)) <= width, recording.name
            assert unicode or "".join(lines).isascii()


def test_colour_changes_nothing_but_the_colour() -> None:
    events = recorded("reasoning_final").events(frames=True)
    coloured = drawn(events, Look(colour=True))
    assert [re.sub("\x1b\\[\\d*m", "", line) for line in coloured] == drawn(events)
    marks = {line.strip("\x1b[013m ")[:1]: line[:5] for line in coloured if re.match("\x1b\\[3\\dm +[!~]", line)}
    assert marks == {"!": "\x1b[31m", "~": "\x1b[33m"}


# --- that nothing breaks it -------------------------------------------------------------------------

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
TYPES = sorted({event["type"] for event in sample()} | {EVENT_TYPE, "error", "response.mcp_call.in_progress"})
FIELDS = ("output_index", "item", "part", "delta", "response", "sequence_number", "text")
EVENTS = st.lists(
    st.builds(lambda name, fields: {"type": name, **fields}, st.sampled_from(TYPES) | JUNK, st.dictionaries(st.sampled_from(FIELDS), JUNK)),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(EVENTS, st.integers(0, 100), st.booleans())
def test_whatever_a_server_sends_can_be_drawn(events: list[dict[str, Any]], width: int, unicode: bool) -> None:
    lines = drawn(events, Look(width, unicode))
    assert all(character.isprintable() for line in lines for character in line)
    assert max(map(columns, lines)) <= max(width, 32)


@pytest.mark.parametrize("code", DRAWN_FAULTS)
def test_every_known_fault_can_be_drawn(code: str) -> None:
    for injector in FAULTS[code]:
        lines = drawn(injector(sample()), Look(110))
        assert any("!" in line for line in half(lines, "stock stream"))
