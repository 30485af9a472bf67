"""One or more ways to break each rule of the checker.

`FAULTS` maps every violation code to injectors: functions that take the events of `sample()` and break them in that one way. They
may change the list and its events; give each a new copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from harmony_client.wire import EVENT_TYPE
from tests.streams import Event, Message, build, numbered, sample

__all__ = ["FAULTS"]

Injector = Callable[[list[Event]], list[Event]]
GONE = object()
CREATED, ACTIVE, COMPLETED = "response.created", "response.in_progress", "response.completed"
ADDED, DONE = "response.output_item.added", "response.output_item.done"
PART_ADDED, PART_DONE = "response.content_part.added", "response.content_part.done"
SUMMARY_ADDED, SUMMARY_DELTA = "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta"
SUMMARY_DONE, SUMMARY_TEXT_DONE = "response.reasoning_summary_part.done", "response.reasoning_summary_text.done"
DELTA, TEXT_DONE, NOTE = "response.output_text.delta", "response.output_text.done", "response.output_text.annotation.added"
THOUGHT, THOUGHT_DONE = "response.reasoning_text.delta", "response.reasoning_text.done"
REFUSAL, REFUSAL_DONE = "response.refusal.delta", "response.refusal.done"
ARGUMENTS, ARGUMENTS_DONE = "response.function_call_arguments.delta", "response.function_call_arguments.done"
SEARCHING = "response.web_search_call.searching"
LAST = 6  # output_index of the last item of sample()


def find(events: list[Event], kind: str, nth: int = 0) -> int:
    """Position of the nth event of a type."""
    return [position for position, event in enumerate(events) if event.get("type") == kind][nth]


def like(kind: str, nth: int = 0, **values: Any) -> Event:
    """An event of the sample, with other values."""
    events = sample()
    return {**events[find(events, kind, nth)], **values}


def edit(kind: str, nth: int = 0, **values: Any) -> Injector:
    """Set fields of one event. A field is a path, its steps joined by two underscores (`item__id`); `GONE` removes it."""

    def inject(events: list[Event]) -> list[Event]:
        event = events[find(events, kind, nth)]
        for path, value in values.items():
            target: Any = event
            *steps, last = [int(step) if step.isdecimal() else step for step in path.split("__")]
            for step in steps:
                target = target[step]
            if value is GONE:
                del target[last]
            else:
                target[last] = value
        return events

    return inject


def drop(kind: str, nth: int = 0) -> Injector:
    def inject(events: list[Event]) -> list[Event]:
        del events[find(events, kind, nth)]
        return numbered(events)

    return inject


def repeat(kind: str, nth: int = 0) -> Injector:
    def inject(events: list[Event]) -> list[Event]:
        at = find(events, kind, nth)
        return numbered([*events[: at + 1], copy.deepcopy(events[at]), *events[at + 1 :]])

    return inject


def move(kind: str, nth: int, after: str, after_nth: int = 0) -> Injector:
    """Put an event behind another one."""

    def inject(events: list[Event]) -> list[Event]:
        event = events.pop(find(events, kind, nth))
        events.insert(find(events, after, after_nth) + 1, event)
        return numbered(events)

    return inject


def insert(event: Any, after: str, nth: int = 0, *, renumber: bool = True) -> Injector:
    def inject(events: list[Event]) -> list[Event]:
        events.insert(find(events, after, nth) + 1, copy.deepcopy(event))
        return numbered(events) if renumber else events

    return inject


def each(select: Callable[[Event], bool], **values: Any) -> Injector:
    """Set fields of every event that is selected."""

    def inject(events: list[Event]) -> list[Event]:
        for event in filter(select, events):
            event.update(values)
        return events

    return inject


def chain(*injectors: Injector) -> Injector:
    def inject(events: list[Event]) -> list[Event]:
        for injector in injectors:
            events = injector(events)
        return events

    return inject


def of_item(index: int) -> Callable[[Event], bool]:
    """Select the events that speak of an item, but for its announcement."""
    return lambda event: event.get("output_index") == index and event["type"] != ADDED


def between(index: int) -> Callable[[Event], bool]:
    """Select the events that carry the item's id at their top level."""
    return lambda event: event.get("output_index") == index and "item_id" in event


def _terminal(output: Callable[[list[Event]], list[Event]]) -> Injector:
    def inject(events: list[Event]) -> list[Event]:
        response = events[-1]["response"]
        response["output"] = output(response["output"])
        return events

    return inject


def _without_item(index: int, *kept: str) -> Injector:
    """Drop all events of an item but those of the types to keep."""
    return lambda events: numbered([e for e in events if e.get("output_index") != index or e["type"] in kept])


def _shifted(events: list[Event]) -> list[Event]:
    for event in events:
        if "output_index" in event:
            event["output_index"] += 1
    return events


def _incomplete(*indexes: int, status: str = "incomplete") -> Injector:
    """Let the response end in this status, with these items done and listed as incomplete."""
    changes = [edit(COMPLETED, type=f"response.{status}", response__status=status)] if status != "completed" else []
    done = [edit(DONE, index, item__status="incomplete") for index in indexes]
    listed = [edit(COMPLETED, **{f"response__output__{index}__status": "incomplete"}) for index in indexes]
    return chain(*listed, *done, *changes)


def _fresh_ids(events: list[Event]) -> list[Event]:
    for event in events:
        if "item_id" in event and event["output_index"] == 1:
            event["item_id"] = f"msg_{event['sequence_number']}"
    return events


def _error(**fields: Any) -> Event:
    return {"type": "error", "code": "server_error", "message": "gave up", "sequence_number": 0, **fields}


TOKENS = {"type": EVENT_TYPE, "v": 1, "batch": 0, "start": 0, "token_ids": [1], "vocab": "o200k_harmony", "done": False}

FAULTS: dict[str, list[Injector]] = {
    # the event
    "event-malformed": [
        insert(None, ACTIVE, renumber=False),
        insert("response.completed", ACTIVE, renumber=False),
        insert([], COMPLETED, renumber=False),
        insert({}, DELTA, renumber=False),
        edit("vendor:tick", type=["vendor:tick"]),
        insert({"type": None}, COMPLETED, renumber=False),
    ],
    "error-key": [edit(ACTIVE, error={"message": "no"}), edit(DELTA, error="no")],
    "field-missing": [
        edit(CREATED, response__model=GONE),
        edit(COMPLETED, response__created_at=None),
        edit(DELTA, logprobs=GONE),
        edit(TEXT_DONE, logprobs=None),
        edit(ADDED, 1, item__role=GONE),
        edit(ADDED, 0, item__summary=None),
        edit(DONE, 2, item__name=GONE),
        edit(PART_ADDED, 1, part__annotations=GONE),
        edit(COMPLETED, response__output__6__content__0__annotations=GONE),
    ],
    "token-batch-leaked": [insert(TOKENS, ACTIVE), insert(TOKENS, COMPLETED), chain(insert(TOKENS, ADDED), insert(TOKENS, DELTA))],
    "sequence-missing": [edit(DELTA, sequence_number=GONE), edit(COMPLETED, sequence_number=None)],
    "sequence-invalid": [
        edit(DELTA, sequence_number="7"),
        edit(ADDED, sequence_number=True),
        edit(CREATED, sequence_number=-1),
        edit(DONE, sequence_number=7.0),
        each(lambda event: True, sequence_number=-1),
    ],
    "sequence-not-increasing": [edit(DELTA, sequence_number=0), edit(DONE, sequence_number=10**9), edit("vendor:tick", sequence_number=0)],
    # the response
    "created-missing": [drop(CREATED), chain(drop(CREATED), drop(ACTIVE)), lambda events: [], lambda events: [_error()]],
    "created-late": [move(CREATED, 0, ACTIVE), (lambda events: numbered([{"type": "vendor:hello"}, *events]))],
    "created-repeated": [repeat(CREATED), insert(like(CREATED), DELTA)],
    "response-missing": [edit(ACTIVE, response=GONE), edit(CREATED, response=None), edit(COMPLETED, response=[])],
    "opening-output-wrong": [
        edit(CREATED, response__output=[{"type": "reasoning", "id": "rs_0", "summary": []}]),
        edit(CREATED, response__output=GONE),
        edit(ACTIVE, response__output="x"),
    ],
    "response-id-missing": [edit(ACTIVE, response__id=""), edit(CREATED, response__id=GONE), edit(COMPLETED, response__id=7)],
    "response-id-changed": [edit(ACTIVE, response__id="resp_2"), edit(COMPLETED, response__id="resp_2")],
    "terminal-missing": [drop(COMPLETED)],
    "terminal-repeated": [
        repeat(COMPLETED),
        lambda events: numbered(events + copy.deepcopy(events[-1:])),
        chain(repeat(COMPLETED), insert(_error(), COMPLETED, 1)),
    ],
    "terminal-type-mismatch": [
        edit(COMPLETED, response__status="incomplete"),
        edit(COMPLETED, response__status=GONE),
        edit(COMPLETED, type="response.incomplete"),
    ],
    "event-after-terminal": [
        lambda events: numbered(events + build([Message([["Again"]])])),
        insert(_error(), COMPLETED),
        insert(like(ACTIVE), COMPLETED),
    ],
    "event-after-error": [
        insert(_error(), ACTIVE),
        lambda events: numbered([*events[:9], _error(), _error()]),
        lambda events: numbered([*events[:-1], _error(), events[-1]]),
    ],
    # output items
    "item-malformed": [
        edit(ADDED, item=None),
        edit(DONE, item=GONE),
        edit(ADDED, 2, item__type=GONE),
        edit(DONE, 3, item="web_search_call"),
        edit(ADDED, 3, item__type=""),
        insert({"type": ADDED, "output_index": 0, "item": None}, ADDED),
        _terminal(lambda output: [*output, None]),
    ],
    "item-not-announced": [
        drop(ADDED, 0),
        drop(ADDED, 1),
        drop(ADDED, 2),
        drop(ADDED, 3),
        drop(ADDED, LAST),
        _without_item(2, DONE),
        _without_item(6, DELTA),
        move(ADDED, 2, ARGUMENTS),
    ],
    "item-added-repeated": [repeat(ADDED, 0), repeat(ADDED, 3), chain(repeat(ADDED, 2), move(ADDED, 3, DONE, 2))],
    "item-done-missing": [drop(DONE, 0), drop(DONE, 2), drop(DONE, 3), drop(DONE, LAST), _without_item(6, ADDED, PART_ADDED, DELTA)],
    "item-done-repeated": [repeat(DONE, 0), repeat(DONE, 2), repeat(DONE, 3)],
    "event-after-item-done": [
        insert(like(THOUGHT), DONE),
        insert(like(PART_DONE, 1), DONE, 1),
        insert(like(SEARCHING), DONE, 3),
        insert(like(ARGUMENTS_DONE), DONE, 2),
    ],
    "event-wrong-kind": [
        insert(like(DELTA, output_index=0, item_id="rs_0"), ADDED),
        insert({"type": ARGUMENTS, "output_index": 1, "item_id": "msg_1", "delta": "{"}, ADDED, 1),
        insert({"type": SEARCHING, "output_index": 2, "item_id": "fc_2"}, ADDED, 2),
        insert({"type": PART_ADDED, "output_index": 2, "item_id": "fc_2", "content_index": 0, "part": {"type": "output_text"}}, ADDED, 2),
        insert(like(DELTA, output_index=3, item_id="tool_3"), ADDED, 3),
    ],
    "output-index-invalid": [
        edit(ADDED, 1, output_index=GONE),
        edit(ADDED, output_index=-1),
        edit(DELTA, output_index="1"),
        edit(DONE, 2, output_index=None),
        edit(ADDED, LAST, output_index=True),
        each(of_item(1), output_index=1.0),
        insert({"type": DELTA, "content_index": 0, "delta": "", "logprobs": []}, DELTA),
    ],
    "output-index-gap": [_shifted, chain(each(of_item(LAST), output_index=9), edit(ADDED, LAST, output_index=9))],
    "output-index-repeated": [chain(edit(ADDED, LAST, output_index=1), each(of_item(LAST), output_index=1))],
    "output-index-wrong": [
        edit(DONE, 0, output_index=1),
        edit(DELTA, output_index=10**30),
        edit(ARGUMENTS_DONE, output_index=7),
        each(of_item(LAST), output_index=7),
    ],
    "item-id-missing": [
        edit(DELTA, item_id=""),
        edit(DELTA, item_id=GONE),
        edit(DONE, 2, item__id=None),
        chain(edit(ADDED, 1, item__id=""), each(between(1), item_id=""), edit(DONE, 1, item__id="")),
        edit(ADDED, 1, item__id=7),
        edit(SEARCHING, item_id=GONE),
    ],
    "item-id-repeated": [
        chain(
            edit(ADDED, LAST, item__id="msg_1"),
            each(between(LAST), item_id="msg_1"),
            edit(DONE, LAST, item__id="msg_1"),
            edit(COMPLETED, response__output__6__id="msg_1"),
        )
    ],
    "item-id-changed": [
        edit(ADDED, 1, item__id="msg_x"),
        edit(DELTA, item_id="msg_x"),
        edit(PART_DONE, 1, item_id="rs_0"),
        edit(DONE, 2, item__id="fc_x"),
        edit(COMPLETED, response__output__6__id="msg_x"),
        edit(COMPLETED, response__output__4__id=GONE),
        edit(SEARCHING, item_id="tool_x"),
        _fresh_ids,
    ],
    "item-kind-changed": [
        edit(DONE, 0, item__type="message"),
        edit(DONE, 3, item__type="reasoning"),
        edit(COMPLETED, response__output__3__type="mcp_call"),
        edit(COMPLETED, response__output__2__type="reasoning"),
    ],
    "item-name-changed": [edit(DONE, 2, item__name="get_x"), edit(COMPLETED, response__output__4__name="get_x")],
    "call-id-missing": [edit(ADDED, 2, item__call_id=GONE), edit(ADDED, 4, item__call_id="")],
    "call-id-repeated": [
        chain(
            edit(ADDED, 4, item__call_id="call_2"),
            edit(DONE, 4, item__call_id="call_2"),
            edit(COMPLETED, response__output__4__call_id="call_2"),
        )
    ],
    "call-id-changed": [
        edit(DONE, 2, item__call_id="call_x"),
        edit(COMPLETED, response__output__2__call_id="call_x"),
        edit(COMPLETED, response__output__4__call_id=GONE),
        edit(DONE, 5, item__call_id="call_x"),
        edit(ADDED, 5, item__call_id=GONE),
    ],
    "added-content-not-empty": [
        edit(ADDED, 1, item__content=None),
        edit(ADDED, 1, item__content=GONE),
        edit(ADDED, 6, item__content=[{"type": "output_text", "text": "It may", "annotations": []}]),
        edit(ADDED, 0, item__summary=[{"type": "summary_text", "text": "Thin"}]),
    ],
    "added-arguments-not-empty": [edit(ADDED, 2, item__arguments='{"city":'), edit(ADDED, 4, item__arguments=None)],
    "item-status-invalid": [
        edit(ADDED, 1, item__status="completed"),
        edit(ADDED, 1, item__status=GONE),
        edit(DONE, 1, item__status=None),
        edit(DONE, 0, item__status="in_progress"),
        edit(DONE, 2, item__status="failed"),
        edit(COMPLETED, response__output__6__status=GONE),
    ],
    "item-done-mismatch": [
        edit(DONE, 1, item__content__0__text="It may snow."),
        edit(DONE, 1, item__content__2__refusal=GONE),
        edit(DONE, 0, item__summary=[]),
        edit(DONE, 0, item__content=None),
        edit(DONE, 6, item__content={}),
        edit(DONE, 6, item__content__0=None),
        edit(DONE, 1, item__content__0__type="refusal"),
        edit(DONE, 2, item__arguments="{}"),
        edit(DONE, 4, item__arguments=GONE),
    ],
    # parts
    "part-not-announced": [
        drop(PART_ADDED, 0),
        drop(PART_ADDED, 1),
        drop(SUMMARY_ADDED, 1),
        edit(DELTA, content_index=1),
        edit(REFUSAL, content_index=10**30),
        each(lambda event: event["type"] == THOUGHT, content_index=4),
        move(PART_ADDED, 1, DELTA),
    ],
    "part-added-repeated": [
        repeat(PART_ADDED, 0),
        repeat(SUMMARY_ADDED, 1),
        chain(repeat(PART_ADDED, 1), move(PART_ADDED, 2, PART_DONE, 1)),
    ],
    "part-added-not-empty": [
        edit(PART_ADDED, 1, part__text="It may "),
        edit(SUMMARY_ADDED, part__text=None),
        edit(PART_ADDED, 3, part__refusal=GONE),
    ],
    "part-done-missing": [drop(PART_DONE, 0), drop(PART_DONE, 1), drop(SUMMARY_DONE, 0)],
    "part-done-repeated": [repeat(PART_DONE, 0), repeat(PART_DONE, 3), repeat(SUMMARY_DONE)],
    "part-done-mismatch": [
        edit(PART_DONE, 0, part__text="Let me"),
        edit(PART_DONE, 3, part__refusal=7),
        edit(SUMMARY_DONE, part__text=""),
    ],
    "part-kind-wrong": [
        edit(PART_ADDED, 0, part__type="output_text"),
        edit(PART_ADDED, 1, part__type=GONE),
        edit(PART_ADDED, 1, part=None),
        edit(PART_DONE, 0, part__type="summary_text"),
        edit(PART_DONE, 2, part=[]),
        insert(like(REFUSAL, content_index=0), DELTA),
        edit(REFUSAL_DONE, type=TEXT_DONE, logprobs=[]),
    ],
    "content-index-invalid": [
        edit(DELTA, content_index=GONE),
        edit(PART_ADDED, content_index=-1),
        edit(THOUGHT_DONE, content_index="0"),
        edit(SUMMARY_DELTA, summary_index=None),
        each(between(1), content_index=0.0),
    ],
    "content-index-gap": [
        each(between(LAST), content_index=1),
        each(lambda event: event["type"].startswith("response.reasoning_summary") and event["summary_index"] == 1, summary_index=7),
    ],
    "delta-not-string": [
        edit(DELTA, delta=None),
        edit(ARGUMENTS, delta={"city": "Oslo"}),
        edit(THOUGHT, delta=GONE),
        edit(SUMMARY_DELTA, delta=0),
    ],
    "delta-after-done": [
        insert(like(DELTA, delta=""), TEXT_DONE),
        insert(like(THOUGHT, delta=""), PART_DONE),
        insert(like(ARGUMENTS, delta=""), ARGUMENTS_DONE),
        move(NOTE, 0, PART_DONE, 1),
    ],
    "text-done-missing": [
        drop(THOUGHT_DONE),
        drop(TEXT_DONE),
        drop(REFUSAL_DONE),
        drop(SUMMARY_TEXT_DONE),
        move(TEXT_DONE, 0, PART_DONE, 1),
    ],
    "text-done-repeated": [repeat(TEXT_DONE), repeat(THOUGHT_DONE), repeat(SUMMARY_TEXT_DONE)],
    "text-done-mismatch": [
        drop(DELTA),
        edit(DELTA, delta="It must "),
        repeat(THOUGHT, 1),
        edit(TEXT_DONE, text="It may snow."),
        edit(REFUSAL_DONE, refusal=None),
        edit(SUMMARY_TEXT_DONE, text="Th"),
        move(DELTA, 0, DELTA, 0),
    ],
    "arguments-done-missing": [drop(ARGUMENTS_DONE), drop(ARGUMENTS_DONE, 1)],
    "arguments-done-repeated": [repeat(ARGUMENTS_DONE), repeat(ARGUMENTS_DONE, 1)],
    "arguments-done-mismatch": [drop(ARGUMENTS), edit(ARGUMENTS_DONE, 1, arguments=""), edit(ARGUMENTS_DONE, arguments=GONE)],
    "arguments-name-wrong": [edit(ARGUMENTS_DONE, name=GONE), edit(ARGUMENTS_DONE, 1, name="get_x")],
    # the terminal response
    "terminal-output-missing": [
        edit(COMPLETED, response__output=None),
        edit(COMPLETED, response__output=GONE),
        edit(COMPLETED, response__output={}),
    ],
    "terminal-item-missing": [
        _terminal(lambda output: output[:-1]),
        _terminal(lambda output: output[1:]),
        _terminal(lambda output: [item for item in output if item["type"] != "web_search_call"]),
    ],
    "terminal-item-extra": [
        _terminal(lambda output: [*output, {**output[3], "id": "tool_x"}]),
        _terminal(lambda output: [*output, output[0]]),
        _without_item(LAST),
        _terminal(lambda output: [{"type": "function_call", "id": "fc_x", "call_id": "c", "name": "f", "arguments": ""}, *output]),
    ],
    "terminal-order": [_terminal(lambda output: output[::-1]), _terminal(lambda output: [*output[1:], output[0]])],
    "terminal-text-mismatch": [
        edit(COMPLETED, response__output__1__content__0__text=""),
        edit(COMPLETED, response__output__1__content__2__refusal=None),
        edit(COMPLETED, response__output__0__content=None),
        edit(COMPLETED, response__output__0__summary=[]),
        edit(COMPLETED, response__output__2__arguments=""),
        edit(COMPLETED, response__output__6__content=[]),
    ],
    "terminal-status-mismatch": [
        edit(COMPLETED, response__output__6__status="incomplete"),
        edit(COMPLETED, response__output__0__status="incomplete"),
        chain(edit(COMPLETED, response__output__1__status="incomplete"), _incomplete(status="incomplete")),
        chain(_incomplete(LAST), edit("response.incomplete", response__output__6__status="completed")),
    ],
    "incomplete-not-last": [_incomplete(1), _incomplete(2, LAST)],
    "incomplete-in-completed": [_incomplete(LAST, status="completed")],
}
