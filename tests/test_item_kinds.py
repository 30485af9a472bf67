"""Correct streams of every item kind the SDK knows pass unchanged; faulty ones get their index and ids mended."""

from __future__ import annotations

from typing import get_args

import openai.types.responses as sdk
import pytest

from harmony_client._events import event_classes
from harmony_client.grammar import ITEM_KINDS
from tests.judge import Event, play
from tests.sdk_oracle import see
from tests.streams import Message, Tool, build


def sdk_kinds() -> list[str]:
    """The types of all output items."""
    union = get_args(sdk.ResponseOutputItem)[0]
    return sorted({name for cls in get_args(union) for name in get_args(cls.model_fields["type"].annotation)})


def sdk_events(kind: str) -> list[str]:
    """What follows ``response.`` in the types of the events about items of a kind."""
    stems = {f"response.{kind}.", f"response.{kind}_arguments.", f"response.{kind}_code.", f"response.{kind}_input."}
    found = [name for name in event_classes() if any(name.startswith(stem) for stem in stems)]
    return [name.removeprefix("response.") for name in found]


KINDS = [kind for kind in sdk_kinds() if kind not in ("message", "reasoning", "function_call")]


def stream(kind: str) -> list[Event]:
    """An item of the kind with every event about it, then a message."""
    fields = dict(ITEM_KINDS[kind].required) if kind in ITEM_KINDS else {}
    fields.pop("status", None)
    fields = {name: "call_0" if name == "call_id" else value for name, value in fields.items()}
    events = build([Tool(kind, tuple(fields.items()), ()), Message(texts=[["Done", "."]])])
    at = next(number for number, event in enumerate(events) if event["type"] == "response.output_item.done")
    extra: list[Event] = [
        {"type": f"response.{name}", "output_index": 0, "item_id": "tool_0", "delta": "x", "code": "x", "input": "x", "arguments": "x"}
        for name in sdk_events(kind)
    ]
    events[at:at] = extra
    for number, event in enumerate(events):
        event["sequence_number"] = number
    return events


@pytest.mark.parametrize("kind", KINDS)
def test_a_correct_stream_of_any_item_kind_passes_unchanged(kind: str) -> None:
    events = stream(kind)
    played = play(events)
    assert played.events == events
    assert played.report.repairs == []
    assert played.report.verdict == "match"


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_of_any_kind_gets_its_index_and_ids_mended_and_is_closed(kind: str) -> None:
    events = [event for event in stream(kind) if not (event["type"] == "response.output_item.done" and event["output_index"] == 0)]
    for event in events:
        if "output_index" in event:
            event["output_index"] += 3
        if event.get("item_id") == "tool_0":
            event["item_id"] = ""
    played = play(events)
    assert played.violations() == []
    assert [item.kind for item in played.items] == [kind, "message"]
    assert all(item.done is not None for item in played.items)
    assert see(played.events).error is None
