"""The writer cannot write an ill-formed stream, whatever it is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_client.checker import check
from harmony_client.endings import filled
from harmony_client.errors import LimitError
from harmony_client.grammar import ABSENT, CLOSED, FINISHED, ITEM_KINDS, OPEN, PART_GRAMMAR, item_kind
from harmony_client.output import MAX_ITEMS, MAX_PARTS, view
from harmony_client.report import Report
from harmony_client.writer import Writer

STATES = (ABSENT, OPEN, FINISHED, CLOSED)
VERBS = ("announce", "text", "finish", "close")
RESPONSE: dict[str, Any] = filled({"id": "resp_1", "status": "in_progress"}, Report())
#: The events that lead to each state.
PATHS = {ABSENT: (), OPEN: ("announce",), FINISHED: ("announce", "finish"), CLOSED: ("announce", "close")}


def fresh() -> tuple[Writer, Report]:
    report = Report()
    writer = Writer(report.note)
    writer.response_id = "resp_1"
    writer.put_response({"type": "response.created", "response": RESPONSE}, None, "created")
    return writer, report


def say(writer: Writer, item: Any, part: Any, verb: str) -> None:
    if verb == "text":
        writer.text(item, part, "x")
    else:
        {"announce": writer.start, "finish": writer.finish, "close": writer.close_part}[verb](item, part)


def end(writer: Writer) -> list[dict[str, Any]]:
    for item in list(writer.own_items()):
        writer.close(item, "completed")
    output = [view(item) for item in writer.items]
    writer.put_response({"type": "response.completed", "response": {**RESPONSE, "status": "completed", "output": output}}, None, "terminal")
    return writer.out


def test_the_part_grammar_is_total() -> None:
    assert set(PART_GRAMMAR) == {(state, verb) for state in STATES for verb in VERBS}
    assert {state for _, state in PART_GRAMMAR.values()} <= set(STATES)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("type_", ["message", "reasoning", "function_call"])
def test_every_cell_of_the_grammar_keeps_the_stream_well_formed(state: str, verb: str, type_: str) -> None:
    writer, _ = fresh()
    kind = ITEM_KINDS[type_]
    item = writer.open(kind, {"name": "f"})
    part = item.part(kind.parts[0])
    for step in PATHS[state]:
        say(writer, item, part, step)
    assert part.state == state
    before = len(writer.out)
    say(writer, item, part, verb)
    actions, after = PART_GRAMMAR[state, verb]
    sent = {"added": kind.parts[0].added, "delta": kind.parts[0].delta, "done": kind.parts[0].done, "closed": kind.parts[0].closed}
    assert [event["type"] for event in writer.out[before:]] == [sent[action] for action in actions if sent[action] is not None]
    assert part.state == after
    assert check(end(writer)) == []


@st.composite
def facts(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    verbs = st.sampled_from(["open", "start", "text", "hold", "release", "settle", "finish", "close_part", "close"])
    kinds = st.sampled_from(["message", "reasoning", "function_call", "web_search_call", "made_up_call"])
    texts = st.sampled_from(["", "a", "ab", "b", "é"])
    one = st.tuples(verbs, kinds, st.integers(0, 4), st.integers(0, 1), st.integers(0, 2), texts)
    return draw(st.lists(one, max_size=40))


@settings(max_examples=300, deadline=None)
@given(facts())
def test_facts_in_any_order_give_a_well_formed_stream(told: list[tuple[Any, ...]]) -> None:
    writer, report = fresh()
    for verb, type_, number, part_number, position, text in told:
        if verb == "open":
            writer.open(item_kind(type_), {"name": "f", "id": "" if number else "same"})
            continue
        items = writer.items
        if not items:
            continue
        item = items[number % len(items)]
        if verb == "close":
            writer.close(item, "completed")
            continue
        if item.kind.opaque or item.closed:
            continue
        part_kind = item.kind.parts[part_number % len(item.kind.parts)]
        siblings = item.family(part_kind.family)
        part = (
            siblings[min(position, len(siblings) - 1)]
            if siblings and position < 2
            else item.part(part_kind, len(siblings) * (part_kind.family != "arguments"))
        )
        tell = {
            "start": lambda item=item, part=part: writer.start(item, part),
            "text": lambda item=item, part=part, text=text: writer.text(item, part, text),
            "hold": lambda part=part, text=text: writer.hold(part, text),
            "release": lambda item=item, part=part: writer.release(item, part),
            "settle": lambda item=item, part=part, text=text: writer.settle(item, part, text),
            "finish": lambda item=item, part=part: writer.finish(item, part),
            "close_part": lambda item=item, part=part: writer.close_part(item, part),
        }
        tell[verb]()
    excused = {"text-done-mismatch", "arguments-done-mismatch"} if "text-replaced" in report.repair_codes else set()
    assert [violation for violation in check(end(writer)) if violation.code not in excused] == []


def test_text_that_was_handed_out_is_never_taken_back() -> None:
    writer, report = fresh()
    item = writer.open(ITEM_KINDS["message"], {})
    part = item.part(item.kind.parts[0])
    writer.text(item, part, "Hello")
    writer.settle(item, part, "Goodbye")
    writer.finish(item, part)
    assert part.streamed == "Hello"
    assert writer.out[-1]["text"] == "Goodbye"
    assert "text-replaced" in report.repair_codes


def test_held_text_is_replaced_by_the_whole_text() -> None:
    writer, report = fresh()
    item = writer.open(ITEM_KINDS["message"], {})
    part = item.part(item.kind.parts[0])
    writer.hold(part, ".")
    writer.settle(item, part, "Hello.")
    writer.close(item, "completed")
    assert part.streamed == "Hello."
    assert "text-replaced" not in report.repair_codes
    assert "deltas-replaced" in report.repair_codes


def test_held_text_stands_where_the_whole_text_is_empty() -> None:
    writer, _ = fresh()
    item = writer.open(ITEM_KINDS["message"], {})
    part = item.part(item.kind.parts[0])
    writer.hold(part, "Hello.")
    writer.settle(item, part, "")
    writer.close(item, "completed")
    assert part.streamed == "Hello."


def test_a_call_without_a_name_waits_and_loses_nothing() -> None:
    writer, _ = fresh()
    call = writer.open(ITEM_KINDS["function_call"], {}, announce=False)
    other = writer.open(ITEM_KINDS["message"], {})
    writer.text(call, call.parts["arguments", 0], '{"a":1}')
    assert call.index is None
    call.name = "f"
    writer.announce(call)
    assert (other.index, call.index) == (0, 1)
    assert call.parts["arguments", 0].streamed == '{"a":1}'
    assert check(end(writer)) == []


def test_ids_are_unique_and_the_same_in_a_replay() -> None:
    runs = []
    for _ in range(2):
        writer, _report = fresh()
        items = [writer.open(ITEM_KINDS["message"], {"id": given}) for given in ("", "msg_1", "msg_1", None, 7)]
        runs.append([item.id for item in items])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 5
    assert all(runs[0])
    assert runs[0][1] == "msg_1"


def test_an_event_that_is_right_passes_as_the_same_object() -> None:
    writer, report = fresh()
    item = writer.open(ITEM_KINDS["message"], {"id": "msg_1"})
    part = item.part(item.kind.parts[0])
    writer.start(item, part)
    repairs = len(report.repairs)
    event = {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "a",
        "logprobs": [],
        "sequence_number": 99,
        "obfuscation": "xyz",
    }
    writer.text(item, part, "a", event)
    assert writer.out[-1] is event
    assert len(report.repairs) == repairs


def test_more_items_or_parts_than_a_response_may_have_are_refused() -> None:
    writer, _ = fresh()
    item = writer.open(ITEM_KINDS["message"], {})
    for number in range(MAX_PARTS):
        item.part(item.kind.parts[0], number)
    with pytest.raises(LimitError) as parts:
        item.part(item.kind.parts[0], MAX_PARTS)
    assert parts.value.code == "too-many-parts"
    for _ in range(MAX_ITEMS - 1):
        writer.open(ITEM_KINDS["message"], {})
    with pytest.raises(LimitError) as items:
        writer.open(ITEM_KINDS["message"], {})
    assert items.value.code == "too-many-items"
