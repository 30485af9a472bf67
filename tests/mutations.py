"""Random damage to a stream of events: what proxies, gateways and servers do to them."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.judge import Event

__all__ = ["MUTATIONS", "damage", "split"]

_INDEXES: list[Any] = [-1, 0, 1, 2, 7, 10**9, None, "1", 1.0, True]
_IDS: list[Any] = ["", None, "msg_1", "rs_0", "other", 7]


def _place(events: list[Event], chooser: random.Random) -> int:
    return chooser.randrange(len(events))


def drop(events: list[Event], chooser: random.Random) -> None:
    del events[_place(events, chooser)]


def repeat(events: list[Event], chooser: random.Random) -> None:
    at = _place(events, chooser)
    events.insert(chooser.choice((at, _place(events, chooser))), copy.deepcopy(events[at]))


def swap(events: list[Event], chooser: random.Random) -> None:
    at = _place(events, chooser)
    to = min(at + 1, len(events) - 1)
    events[at], events[to] = events[to], events[at]


def cut(events: list[Event], chooser: random.Random) -> None:
    del events[_place(events, chooser) :]


def split(events: list[Event], chooser: random.Random) -> None:
    """One delta as two."""
    deltas = [at for at, event in enumerate(events) if isinstance(event.get("delta"), str) and len(event["delta"]) > 1]
    if deltas:
        at = chooser.choice(deltas)
        text = events[at]["delta"]
        middle = chooser.randrange(1, len(text))
        events[at : at + 1] = [{**events[at], "delta": text[:middle]}, {**events[at], "delta": text[middle:]}]


def reindex(events: list[Event], chooser: random.Random) -> None:
    event = events[_place(events, chooser)]
    name = chooser.choice(("output_index", "content_index", "summary_index", "sequence_number"))
    if name in event:
        event[name] = chooser.choice(_INDEXES)


def shift(events: list[Event], chooser: random.Random) -> None:
    """All indexes of a kind of event, off by one."""
    word, by = chooser.choice(("done", "added", "delta", "response")), chooser.choice((-1, 1, 2))
    for event in events:
        if word in event["type"] and type(event.get("output_index")) is int:
            event["output_index"] += by


def reid(events: list[Event], chooser: random.Random) -> None:
    event = events[_place(events, chooser)]
    target = event["item"] if isinstance(event.get("item"), dict) and chooser.random() < 0.7 else event
    name = chooser.choice(("id", "item_id", "call_id"))
    if name in target:
        target[name] = chooser.choice(_IDS)


def blank_ids(events: list[Event], chooser: random.Random) -> None:
    """Every item id empty, as TensorRT-LLM sends them."""
    for event in events:
        if "item_id" in event:
            event["item_id"] = ""
        if isinstance(event.get("item"), dict):
            event["item"]["id"] = ""


def fresh_ids(events: list[Event], chooser: random.Random) -> None:
    """The terminal response under ids of its own."""
    for event in events:
        response = event.get("response")
        if isinstance(response, dict) and isinstance(response.get("output"), list):
            for number, item in enumerate(response["output"]):
                if isinstance(item, dict):
                    item["id"] = f"fresh_{number}"


def empty_field(events: list[Event], chooser: random.Random) -> None:
    """A field gone, or null."""
    event = events[_place(events, chooser)]
    nested = [value for value in event.values() if isinstance(value, dict)]
    target = chooser.choice([event, *nested])
    names = [name for name in target if name != "type"]
    if names:
        name = chooser.choice(names)
        if chooser.random() < 0.5:
            target[name] = None
        else:
            del target[name]


def short_output(events: list[Event], chooser: random.Random) -> None:
    """The terminal output null, empty, short or doubled."""
    for event in events:
        response = event.get("response")
        if isinstance(response, dict) and response.get("output"):
            output = response["output"]
            response["output"] = chooser.choice([None, [], output[:1], output[1:], output * 2, output[::-1]])


Mutation = Callable[[list[Event], random.Random], None]

MUTATIONS: list[Mutation] = [
    drop,
    repeat,
    swap,
    cut,
    split,
    reindex,
    shift,
    reid,
    blank_ids,
    fresh_ids,
    empty_field,
    short_output,
]


def damage(events: list[Event], seed: int, most: int = 4, without: Sequence[Mutation] = ()) -> list[Event]:
    """A damaged copy of a stream; the same seed does the same damage."""
    chooser = random.Random(seed)
    mutations = [mutation for mutation in MUTATIONS if mutation not in without]
    events = copy.deepcopy(events)
    for _ in range(chooser.randrange(1, most + 1)):
        if events:
            chooser.choice(mutations)(events, chooser)
    return events
