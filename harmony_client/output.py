"""What a response consists of while it is being written: items and their parts, and how they read as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

from harmony_client.errors import LimitError
from harmony_client.grammar import ABSENT, ItemKind, PartKind, item_kind, part_kind

__all__ = ["MAX_ITEMS", "MAX_PARTS", "Item", "Part", "kind_of", "listed_texts", "merged", "opening", "string", "view"]

#: Items of one response. A real one has a handful; each costs memory for the response's whole life.
MAX_ITEMS = 4096
#: Content parts of one item, for the same reason.
MAX_PARTS = 64


#: Families of parts, in the order in which their texts are joined.
_FAMILIES = ("content", "summary", "arguments")


class Part:
    """A content part, or the arguments of a call, and its text so far."""

    __slots__ = ("base", "chunks", "held", "index", "kind", "state", "whole")

    def __init__(self, kind: PartKind, index: int) -> None:
        self.kind = kind
        self.index = index
        self.state = ABSENT
        self.chunks: list[str] = []
        self.held: list[str] = []
        self.whole: str | None = None  # stands in done events in place of the deltas
        self.base: dict[str, Any] = {}  # the fields all its events share

    @property
    def streamed(self) -> str:
        """The deltas handed out, joined."""
        if len(self.chunks) != 1:
            self.chunks = ["".join(self.chunks)]
        return self.chunks[0]

    @property
    def text(self) -> str:
        """The text that the done events carry."""
        return self.streamed if self.whole is None else self.whole


class Item:
    """An output item: announced once, closed once, under one index and one id."""

    __slots__ = ("call_id", "closed", "cut", "data", "id", "index", "kind", "name", "native_index", "parts", "status")

    def __init__(self, kind: ItemKind, data: Mapping[str, Any]) -> None:
        self.kind = kind
        self.data = data
        self.id = ""
        self.call_id = ""
        self.name = ""
        self.index: int | None = None  # set when it is announced
        self.native_index: int | None = None  # the server's output_index for it
        self.parts: dict[tuple[str, int], Part] = {}
        self.closed = False
        self.cut = False  # it is being closed as incomplete
        self.status: str | None = None

    def part(self, kind: PartKind, index: int = 0) -> Part:
        """The part of this kind's family at a position, made (not announced) if there is none.

        Raises:
            LimitError: The item has :data:`MAX_PARTS` parts.
        """
        part = self.parts.get((kind.family, index))
        if part is None:
            if len(self.parts) >= MAX_PARTS:
                raise LimitError(f"an item has more than {MAX_PARTS} content parts", code="too-many-parts")
            part = self.parts[kind.family, index] = Part(kind, index)
        return part

    def family(self, name: str) -> list[Part]:
        """The parts of one family, in order."""
        return [part for (family, _), part in self.parts.items() if family == name]

    @property
    def text(self) -> str:
        """All the item's text, families and parts joined."""
        return "".join(part.streamed for name in _FAMILIES for part in self.family(name))

    @property
    def done_text(self) -> str:
        """All the text that its done events carry."""
        return "".join(part.text for name in _FAMILIES for part in self.family(name))

    @property
    def held_text(self) -> str:
        """All the item's text, what is still held back included."""
        return "".join(part.streamed + "".join(part.held) for name in _FAMILIES for part in self.family(name))


def opening(item: Item) -> dict[str, Any]:
    """The item as its ``output_item.added`` shows it: nothing of its text, all else that is known."""
    opened = {**item.kind.required, **item.data, "id": item.id, "type": item.kind.name}
    if item.call_id:
        opened["call_id"] = item.call_id
    if item.name:
        opened["name"] = item.name
    for name, value in item.kind.required.items():
        if opened.get(name) is None:
            opened[name] = copy(value)
    if item.kind.opaque:
        return opened
    for name in ("content", "summary"):
        if opened.get(name) is not None:
            opened[name] = []
    if item.kind.name == "function_call":
        opened["arguments"] = ""
    if opened.get("status") not in (None, "in_progress"):
        opened["status"] = "in_progress"
    return opened


def view(item: Item, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The closed item as the API's item object.

    Args:
        item: The item.
        data: The server's object for it; fields that are ours to set are replaced, others kept.
    """
    base = item.data if data is None else data
    shown = {**item.kind.required, **base, "id": item.id, "type": item.kind.name}
    for name, value in item.kind.required.items():
        if shown[name] is None:
            shown[name] = copy(value)
    if item.call_id:
        shown["call_id"] = item.call_id
    if item.kind.name == "function_call":
        shown["arguments"] = item.parts["arguments", 0].text
        shown["name"] = item.name
    elif not item.kind.opaque:
        for family in ("content", "summary"):
            _show_parts(item, family, base.get(family), shown)
    if shown.get("phase") is None and item.data.get("phase") is not None:
        shown["phase"] = item.data["phase"]
    # The API requires a status of messages, and clients of calls; reasoning items may go without.
    optional = item.kind.name == "reasoning" and "status" not in base and item.status == "completed"
    if item.status is not None and not optional:
        shown["status"] = item.status
    return shown


def _show_parts(item: Item, family: str, given: Any, shown: dict[str, Any]) -> None:
    listed: list[Any] = given if isinstance(given, list) else []
    parts = item.family(family)
    if parts or given is not None or family in item.kind.required:
        shown[family] = [
            merged(part.kind.part(part.text), listed[n] if n < len(listed) else None, part.kind) for n, part in enumerate(parts)
        ]


def listed_texts(kind: ItemKind, data: Mapping[str, Any]) -> Iterator[tuple[PartKind, int, str]]:
    """The texts in an item object of the server's: part kind, position in its family, text."""
    for family in ("content", "summary"):
        parts = data.get(family)
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            found = part_kind(part, kind)
            text = part.get(found.text_field) if found is not None else None
            if found is not None and isinstance(text, str):
                yield found, number, text


def merged(ours: dict[str, Any], given: Any, kind: PartKind) -> dict[str, Any]:
    """Our part object, with what the server's says beyond its text."""
    if not isinstance(given, dict):
        return ours
    same = given.get("type") == kind.type and given.get(kind.text_field) == ours[kind.text_field]
    kept = {name: value for name, value in given.items() if not (value is None and name in kind.extra)}
    if same and len(kept) == len(given) and all(name in given for name in kind.required):
        return given
    return {**ours, **kept, "type": kind.type, kind.text_field: ours[kind.text_field]}


def string(value: Any) -> str:
    """A value if it is a string, else ``""``."""
    return value if isinstance(value, str) else ""


def kind_of(data: Mapping[str, Any]) -> ItemKind:
    """The kind of an item object of the server's."""
    name = data.get("type")
    return item_kind(name if isinstance(name, str) and name else "unknown")
