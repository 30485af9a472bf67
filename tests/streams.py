"""Well-formed streams to order: `build` makes one from item specifications, `specs` draws them, `sample` has one of everything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from harmony_client.wire import EVENT_TYPE

__all__ = ["CUSTOM", "Call", "Event", "Item", "Message", "Reasoning", "Tool", "build", "numbered", "sample", "specs"]

Event = dict[str, Any]
Text = Sequence[str]  # the deltas of one part


@dataclass(frozen=True)
class Reasoning:
    """A reasoning item: summary parts, then content parts."""

    texts: Sequence[Text] = ()
    summaries: Sequence[Text] = ()


@dataclass(frozen=True)
class Message:
    """A message: output_text parts, then refusal parts. `annotated`: an annotation comes with the first part."""

    texts: Sequence[Text] = ()
    refusals: Sequence[Text] = ()
    annotated: bool = False


@dataclass(frozen=True)
class Call:
    """A function call."""

    arguments: Text = ()
    name: str = "get_weather"


@dataclass(frozen=True)
class Tool:
    """An item without a grammar: its fields, and the types of the events between its announcement and its end."""

    kind: str = "web_search_call"
    fields: tuple[tuple[str, Any], ...] = (("action", {"type": "search", "query": "rain"}),)
    progress: Sequence[str] = ("in_progress", "searching", "completed")


Item = Reasoning | Message | Call | Tool
CUSTOM = Tool("custom_tool_call", (("call_id", "call_{index}"), ("name", "shout"), ("input", "hi")), ())

_TEXT_FIELD = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}
_EVENT = {
    "output_text": "response.output_text",
    "refusal": "response.refusal",
    "reasoning_text": "response.reasoning_text",
    "summary_text": "response.reasoning_summary_text",
}


def build(wanted: Iterable[Item], status: str = "completed") -> list[Event]:
    """A well-formed stream with these items, one after the other.

    Args:
        wanted: The items.
        status: How the response ends: completed, incomplete or failed. The last item of an incomplete response is incomplete.
    """
    wanted = list(wanted)
    events = [_lifecycle("created", "in_progress", []), _lifecycle("in_progress", "in_progress", [])]
    output = []
    for index, spec in enumerate(wanted):
        cut = status == "incomplete" and index == len(wanted) - 1
        item, middle = _item(spec, index)
        opened = {**item, "status": "in_progress"} | {name: [] for name in ("content", "summary") if name in item}
        opened |= {"arguments": ""} if "arguments" in item else {}
        item["status"] = "incomplete" if cut else "completed"
        events.append({"type": "response.output_item.added", "output_index": index, "item": opened})
        events += [{**event, "output_index": index, "item_id": item["id"]} for event in middle]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        output.append(item)
    events.append(_lifecycle(status, status, output))
    return numbered(json.loads(json.dumps(events)))  # nothing is shared between two events


def numbered(events: list[Event]) -> list[Event]:
    """The same events with the sequence numbers 0, 1, 2 and so on; token frames have none."""
    for number, event in enumerate(event for event in events if event["type"] != EVENT_TYPE):
        event["sequence_number"] = number
    return events


def specs() -> st.SearchStrategy[list[Item]]:
    """Lists of item specifications of every kind, empty texts and empty deltas included."""
    texts = st.lists(st.lists(st.text(max_size=4), max_size=4), max_size=3)
    one = st.one_of(
        st.builds(Reasoning, texts, texts),
        st.builds(Message, texts, texts, st.booleans()),
        st.builds(Call, st.lists(st.text(max_size=4), max_size=4), st.sampled_from(["get_weather", "f"])),
        st.just(Tool()),
        st.just(CUSTOM),
    )
    return st.lists(one, max_size=4)


def _lifecycle(kind: str, status: str, output: list[Event]) -> Event:
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_790_000_000,
        "model": "gpt-oss-120b",
        "status": status,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": {"code": "server_error", "message": "gave up"} if status == "failed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
    }
    return {"type": f"response.{kind}", "response": response}


def _item(spec: Item, index: int) -> tuple[Event, list[Event]]:
    """The finished item, and the events between its announcement and its end."""
    if isinstance(spec, Reasoning):
        summary, summary_events = _parts([("summary_text", text) for text in spec.summaries])
        content, events = _parts([("reasoning_text", text) for text in spec.texts])
        return {"type": "reasoning", "id": f"rs_{index}", "summary": summary, "content": content}, summary_events + events
    if isinstance(spec, Message):
        kinds = [("output_text", text) for text in spec.texts] + [("refusal", text) for text in spec.refusals]
        content, events = _parts(kinds)
        if spec.annotated and spec.texts:
            note = {"content_index": 0, "annotation_index": 0, "annotation": {"type": "url_citation"}}
            events.insert(1, {"type": "response.output_text.annotation.added", **note})
        return {"type": "message", "id": f"msg_{index}", "role": "assistant", "content": content}, events
    if isinstance(spec, Call):
        whole, name = "".join(spec.arguments), "response.function_call_arguments"
        events = [{"type": f"{name}.delta", "delta": delta} for delta in spec.arguments]
        events.append({"type": f"{name}.done", "name": spec.name, "arguments": whole})
        call = {"type": "function_call", "id": f"fc_{index}", "call_id": f"call_{index}", "name": spec.name, "arguments": whole}
        return call, events
    fields = {name: value.format(index=index) if isinstance(value, str) else value for name, value in spec.fields}
    body = {"type": spec.kind, "id": f"tool_{index}", **fields}
    return body, [{"type": f"response.{spec.kind}.{name}"} for name in spec.progress]


def _parts(texts: list[tuple[str, Text]]) -> tuple[list[Event], list[Event]]:
    listed: list[Event] = []
    events: list[Event] = []
    for index, (kind, deltas) in enumerate(texts):
        whole, name, field = "".join(deltas), _EVENT[kind], _TEXT_FIELD[kind]
        summary = kind == "summary_text"
        at = {"summary_index" if summary else "content_index": index}
        opener = "response.reasoning_summary_part" if summary else "response.content_part"
        part = {"type": kind, field: whole} | ({"annotations": [], "logprobs": []} if kind == "output_text" else {})
        more = {"logprobs": []} if kind == "output_text" else {}
        events.append({"type": f"{opener}.added", **at, "part": {**part, field: ""}})
        events += [{"type": f"{name}.delta", **at, "delta": delta, **more} for delta in deltas]
        events.append({"type": f"{name}.done", **at, field: whole, **more})
        events.append({"type": f"{opener}.done", **at, "part": part})
        listed.append(part)
    return listed, events


def sample() -> list[Event]:
    """A stream with everything in it: two items of each kind but one, several parts, an annotation, a vendor event."""
    events = build(
        [
            Reasoning(texts=[["Let me ", "think."]], summaries=[["Thin", "king"], ["Done"]]),
            Message(texts=[["It may ", "rain."], ["Take a coat."]], refusals=[["No ", "more."]], annotated=True),
            Call(['{"city":', '"Oslo"}']),
            Tool(),
            Call(["{}"], "get_time"),
            CUSTOM,
            Message(texts=[["Bring an umbrella", "."]]),
        ]
    )
    events.insert(5, {"type": "vendor:tick"})
    return numbered(events)
