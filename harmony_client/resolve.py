"""Which item an event speaks of.

By an id seen for an item, by call_id, by the server's index for an open item, or the newest open item
of a fitting kind. Servers get each of these wrong, never all of them at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Any

from harmony_client.grammar import FINISHED, ItemKind
from harmony_client.items import clean_name
from harmony_client.output import Item, Part, string
from harmony_client.report import Report
from harmony_client.verify import text_of

__all__ = ["Native", "Resolver"]

#: How many open items are looked at for one that fits; a real response has one or two.
_WINDOW = 64


class Native:
    """How the server numbers the parts of one item."""

    __slots__ = ("adopted", "openers", "parts", "reopened")

    def __init__(self) -> None:
        self.parts: dict[tuple[str, Any], Part] = {}
        self.adopted: set[str] = set()  # part types of another kind that its parts were announced with
        self.reopened: set[tuple[str, Any]] = set()  # parts announced again after they were closed
        self.openers: set[Part] = set()  # parts whose announcement held text that no delta has followed yet


class Resolver:
    """Knows the items of one response by everything the server calls them.

    Attributes:
        known: Items by every id and call_id the server has used for them.
        shared: Those of the ids that it has used for several items.
        native: How it numbers the parts of each open item.
    """

    def __init__(self, report: Report) -> None:
        self.known: dict[str, Item] = {}
        self.shared: set[str] = set()
        self.native: dict[Item, Native] = defaultdict(Native)
        self._report = report
        self._bound: dict[int, Item] = {}
        self._open: dict[str, dict[Item, None]] = defaultdict(dict)  # in order of opening
        self._finished: set[tuple[str, str]] = set()

    def opened(self, item: Item) -> None:
        """An item was opened."""
        self._open[item.kind.name][item] = None

    def bind(self, item: Item, index: int) -> None:
        """The server announced an item under an index."""
        item.native_index = index
        self._bound[index] = item

    def has_finished(self, kind: ItemKind, text: str) -> bool:
        """Whether a closed item of this kind has this text."""
        return (kind.name, text) in self._finished

    def resolve(
        self, event: Mapping[str, Any], kind: ItemKind, data: Mapping[str, Any], part_type: str = "", *, whole: bool = False
    ) -> Item | None:
        """The item an event speaks of, or ``None``.

        Args:
            event: The event.
            kind: The kind of item it is about.
            data: Its item object, if it has one.
            part_type: The type of the part it is about.
            whole: It gives a whole text, so an item that has its whole text already is not meant.
        """
        for value in (event.get("item_id"), data.get("id"), data.get("call_id"), event.get("call_id")):
            if isinstance(value, str) and value:
                item = self.known.get(value)
                if item is not None and self._fits(item, kind, part_type):
                    return item
        index = event.get("output_index")
        if type(index) is int:
            item = self._bound.get(index)
            if item is not None and self._may_be(item, event, whole) and self._fits(item, kind, part_type):
                return item
        near = islice(reversed(self._open[kind.name]), _WINDOW)
        return next((item for item in near if self._may_be(item, event, whole)), None)

    def _may_be(self, item: Item, event: Mapping[str, Any], whole: bool) -> bool:
        """Whether an event without an id of its own can speak of an item."""
        arguments = item.parts.get(("arguments", 0))
        if item.closed or arguments is None:
            return not item.closed
        name = clean_name(string(event.get("name")))
        return not (whole and arguments.state == FINISHED) and (not name or not item.name or name == item.name)

    def _fits(self, item: Item, kind: ItemKind, part_type: str) -> bool:
        if item.kind.name == kind.name:
            return True
        native = self.native.get(item)
        return native is not None and part_type in native.adopted

    def learn(self, item: Item, data: Mapping[str, Any]) -> None:
        """Remember the ids the server uses for an item."""
        for name, ours in (("id", item.id), ("call_id", item.call_id)):
            value = data.get(name)
            if isinstance(value, str) and value:
                known = self.known.setdefault(value, item)
                if known is not item:  # one id for two items: it says nothing at the end
                    self.shared.add(value)
                    if known.closed:
                        self.known[value] = item
                if ours and value != ours:
                    self._report.ids[value] = ours

    def ended(self, item: Item) -> None:
        """An item was closed."""
        self._open[item.kind.name].pop(item, None)
        self._finished.add((item.kind.name, item.text))
        self.native.pop(item, None)

    def announced_before(self, kind: ItemKind, data: Mapping[str, Any], index: Any) -> Item | None:
        """The open item that this announcement repeats, or comes too late for."""
        value = data.get("id")
        item = self.known.get(value) if isinstance(value, str) and value else None
        if item is None or item.kind.name != kind.name:
            return None
        if item.call_id and item.call_id == data.get("call_id"):
            return item
        unknown = item.native_index is None or (type(index) is not int and not item.closed)
        return item if unknown or item.native_index == index else None

    def mistyped(self, data: Mapping[str, Any]) -> Item | None:
        """The open item with this id and this text, though of another kind."""
        value = data.get("id")
        item = self.known.get(value) if isinstance(value, str) and value else None
        return item if item is not None and not item.closed and item.held_text == text_of(data) else None

    def repeats(self, kind: ItemKind, data: Mapping[str, Any]) -> bool:
        """Whether a done event repeats an item that is closed: the same kind, the same text."""
        text = text_of(data)
        return not kind.opaque and bool(text) and (kind.name, text) in self._finished

    def named(self, event: Mapping[str, Any]) -> Item | None:
        """The item that an event names by id or index, of whatever kind."""
        value, index = event.get("item_id"), event.get("output_index")
        item = self.known.get(value) if isinstance(value, str) and value else None
        if item is None and type(index) is int:
            item = self._bound.get(index)
        return item
