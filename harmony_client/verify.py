"""The end of a response: what the server's snapshot says against what was streamed.

The snapshot's items are paired with ours, each once; an item that is still open is settled and
closed by its partner; what differs afterwards is a difference, and the server's documented mapping
(:mod:`harmony_client.items`) or its way of streaming explains it, or nothing does.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harmony_client.errors import LimitError
from harmony_client.grammar import FINISHED, PartKind
from harmony_client.items import clean_name
from harmony_client.output import MAX_ITEMS, Item, kind_of, listed_texts, string
from harmony_client.report import Difference, Report
from harmony_client.writer import Writer

__all__ = ["Entry", "Snapshot", "settle_item", "text_of"]

#: How many unpaired items are looked at for one whose text is a prefix; more would be quadratic.
_WINDOW = 16


@dataclass(slots=True, eq=False)
class Entry:
    """One thing that was streamed, or left out on purpose.

    Attributes:
        item: The item, or ``None``.
        kind: Its type.
        text: Its text, or its arguments.
        listed: The type under which the server lists it.
        reason: Why that differs, or ``""``.
        omissible: Why the server may leave it out, or ``""``.
        misread: Another type under which a server may list it whose parser takes the content type in
            a header for a recipient, or ``""``.
        partner: Its position in the snapshot.
    """

    item: Item | None
    kind: str
    text: str
    listed: str
    reason: str = ""
    omissible: str = ""
    misread: str = ""
    partner: int | None = None

    @property
    def done_text(self) -> str:
        """The text that the item's done events carried, where it is not what was streamed."""
        return self.text if self.item is None or self.item.kind.opaque else self.item.done_text

    @property
    def open(self) -> bool:
        """Whether the snapshot may still add to it."""
        return self.item is not None and not self.item.closed


class _Listed:
    """One item of the snapshot."""

    __slots__ = ("data", "kind", "repeats", "taken", "text")

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.kind = kind_of(data).name
        self.text = text_of(data)
        self.taken: Entry | None = None
        self.repeats = False  # an item listed before, by its id or its text


class Snapshot:
    """The server's terminal response, paired with what was streamed.

    Args:
        output: Its ``output``.
        entries: What was streamed, in order of announcement.
        known: Items by the ids and call_ids the server used for them.
        whole: Whether everything that was streamed is certain to be whole (tokens mode): then an
            item whose text differs is still the same item, and nothing is added.

    Raises:
        LimitError: The snapshot lists more items than a response may have.
    """

    def __init__(self, output: Any, entries: list[Entry], known: Mapping[str, Item], *, whole: bool) -> None:
        objects = [data for data in output if isinstance(data, Mapping)] if isinstance(output, list) else []
        if len(objects) > MAX_ITEMS:
            raise LimitError(f"the terminal response lists more than {MAX_ITEMS} items", code="too-many-items")
        self.listed = [_Listed(data) for data in objects]
        self.entries = entries
        self.whole = whole
        self._pair_ids(known)
        for kind in ("kind", "listed", "misread"):
            self._pair_equal(kind, "text")
        self._pair_equal("kind", "done_text")
        self._pair_rest()
        self._pass_over_repeats()

    def data_by_item(self) -> dict[Item, Mapping[str, Any]]:
        """The snapshot's object for each item that it lists as what it is."""
        return {
            listed.taken.item: listed.data
            for listed in self.listed
            if listed.taken is not None and listed.taken.item is not None and listed.kind == listed.taken.item.kind.name
        }

    # --- pairing ----------------------------------------------------------------------------------

    def _join(self, position: int, entry: Entry) -> None:
        entry.partner = position
        self.listed[position].taken = entry

    def _pair_ids(self, known: Mapping[str, Item]) -> None:
        by_item = {entry.item: entry for entry in self.entries if entry.item is not None}
        for position, listed in enumerate(self.listed):
            for name in ("id", "call_id"):
                value = listed.data.get(name)
                item = known.get(value) if isinstance(value, str) and value else None
                entry = by_item.get(item) if item is not None else None
                same = entry is not None and (entry.kind == listed.kind or (bool(listed.text) and entry.text == listed.text))
                if entry is not None and same:
                    listed.repeats = entry.partner is not None
                    if not listed.repeats:
                        self._join(position, entry)
                    break

    def _pass_over_repeats(self) -> None:
        """What is listed once more than it was streamed is reported; adding it would repeat text."""
        paired = {(listed.kind, listed.text) for listed in self.listed if listed.taken is not None and listed.text}
        for listed in self.listed:
            if listed.taken is None and (listed.kind, listed.text) in paired:
                listed.repeats = True

    def _pair_equal(self, kind: str, text: str) -> None:
        free: dict[tuple[str, str], deque[int]] = defaultdict(deque)
        for position, listed in enumerate(self.listed):
            if listed.taken is None and not listed.repeats:
                free[listed.kind, listed.text].append(position)
        for entry in sorted(self.entries, key=_left_out):
            positions = free.get((getattr(entry, kind), getattr(entry, text))) if entry.partner is None else None
            if positions:
                self._join(positions.popleft(), entry)

    def _pair_rest(self) -> None:
        waiting: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            if entry.partner is None and entry.item is not None:
                waiting[entry.kind].append(entry)
                if entry.open and entry.listed not in ("", entry.kind):
                    waiting[entry.listed].append(entry)
        for position, listed in enumerate(self.listed):
            if listed.taken is None and not listed.repeats:
                found = self._candidate(waiting[listed.kind], listed.text)
                if found is not None:
                    waiting[found.kind].remove(found)
                    if found in waiting[found.listed]:
                        waiting[found.listed].remove(found)
                    self._join(position, found)

    def _candidate(self, waiting: list[Entry], text: str) -> Entry | None:
        near = waiting[:_WINDOW]
        for wanted_open in (True, False):
            for entry in near:
                if entry.open is wanted_open and text.startswith(entry.text):
                    return entry
        for entry in waiting:
            if entry.open or self.whole or not text:
                return entry
        return None

    # --- settling and comparing -------------------------------------------------------------------

    def settle(self, writer: Writer, status: str) -> None:
        """Close every open item by its partner, and (unless ``whole``) add what was never streamed.

        Args:
            writer: Where the items are.
            status: The response's status.
        """
        closing = [(entry.item, None if entry.partner is None else self.listed[entry.partner]) for entry in self.entries if entry.open]
        for listed in () if self.whole else self.listed:
            if listed.taken is None and not listed.repeats:
                data = dict(listed.data)
                if isinstance(data.get("name"), str):
                    data["name"] = clean_name(data["name"])
                item = writer.open(kind_of(listed.data), data, announce=False)
                listed.taken = Entry(item, listed.kind, listed.text, listed.kind)
                closing.append((item, listed))
        for number, (open_item, partner) in enumerate(closing):
            if open_item is not None:
                last = number == len(closing) - 1 and (open_item in writer.pending or open_item is writer.items[-1])
                _close(writer, open_item, partner, "incomplete" if last and status == "incomplete" else "completed")

    def compare(self, report: Report, server: str | None) -> None:
        """Enter every difference into the report. Call it after :meth:`settle`."""
        if not self.listed and any(entry.item is not None for entry in self.entries):
            report.differences.append(Difference(None, "output", len(self.entries), 0))
            return
        for entry in self.entries:
            if entry.partner is None:
                self._unlisted(report, entry)
            else:
                self._compare_pair(report, entry, self.listed[entry.partner])
        self._compare_order(report)
        for listed in self.listed:
            if listed.taken is None:
                markup = (server or "").startswith("vllm") and listed.kind == "message" and listed.text.startswith("<|")
                reason = "message of header markup" if markup else ""
                report.differences.append(Difference(None, "item", None, listed.text or listed.kind, markup, reason))

    def _unlisted(self, report: Report, entry: Entry) -> None:
        if entry.item is not None:
            reason = entry.omissible
            report.differences.append(Difference(entry.item.index, "item", entry.text or entry.kind, None, bool(reason), reason))

    def _compare_pair(self, report: Report, entry: Entry, listed: _Listed) -> None:
        item = entry.item
        if item is None:
            report.differences.append(Difference(None, "item", None, listed.text, True, entry.reason))
            return
        if listed.kind != item.kind.name:
            reason = entry.reason or ("content type misread as a recipient" if listed.kind == entry.misread else "")
            report.differences.append(Difference(item.index, "kind", item.kind.name, listed.kind, bool(reason), reason))
            return
        if item.kind.opaque:
            return
        streamed, field = item.text, "arguments" if listed.kind == "function_call" else "text"
        if streamed != listed.text:
            report.differences.append(Difference(item.index, field, streamed, listed.text))
        name = clean_name(string(listed.data.get("name")))
        if listed.kind == "function_call" and name and name != item.name:
            report.differences.append(Difference(item.index, "name", item.name, name))

    def _compare_order(self, report: Report) -> None:
        paired = [entry.partner for entry in self.entries if entry.partner is not None]
        if paired != sorted(paired):
            report.differences.append(Difference(None, "order", paired, sorted(paired)))
        highest = max(paired, default=-1)
        for position, listed in enumerate(self.listed):
            if listed.taken is not None and listed.taken.partner is None and listed.taken.item is not None and position < highest:
                index = listed.taken.item.index
                report.differences.append(Difference(index, "order", index, position, True, "item known only from the snapshot"))


def _left_out(entry: Entry) -> bool:
    """Whether an entry was left out of the stream on purpose: a listed item is one that was streamed, if it can be."""
    return entry.item is None


def settle_item(writer: Writer, item: Item, data: Mapping[str, Any]) -> bool:
    """Settle an item's texts by an item object of the server's.

    Returns:
        Whether held deltas proved equal to the text.
    """
    proved = False
    if item.kind.name == "function_call":
        if not item.name:
            item.name = clean_name(string(data.get("name")))
        if isinstance(data.get("arguments"), str):
            proved = writer.settle(item, item.parts["arguments", 0], data["arguments"])
        return proved
    listed = list(listed_texts(item.kind, data))
    for kind, number, text in listed:
        if not _one_for_several(item, kind, listed):
            proved |= writer.settle(item, item.part(kind, number), text)
    return proved


def _one_for_several(item: Item, kind: PartKind, listed: list[tuple[PartKind, int, str]]) -> bool:
    """Whether all the texts of a family were streamed as one part (several parts, none of them announced)."""
    texts = [text for other, _, text in listed if other.family == kind.family]
    parts = item.family(kind.family)
    return len(texts) > len(parts) == 1 and "".join(texts) == parts[0].streamed + "".join(parts[0].held)


def _close(writer: Writer, item: Item, listed: _Listed | None, status: str) -> None:
    """Close an item by the snapshot's object for it."""
    if listed is None:
        writer.close(item, status if _confirmed(item) else "incomplete")
    elif listed.kind != item.kind.name:  # a call that the server lists as something else
        for part in item.parts.values():
            writer.settle(item, part, listed.text)
        writer.close(item, status)
    else:
        settle_item(writer, item, listed.data)
        given = listed.data.get("status")
        if given == "incomplete" or (item.kind.opaque and isinstance(given, str) and given):
            status = given
        writer.close(item, status, data=listed.data)


def _confirmed(item: Item) -> bool:
    """Whether nothing speaks against an item that the snapshot does not list: a call must be one."""
    arguments = item.parts.get(("arguments", 0))
    if arguments is None or (arguments.state == FINISHED and item.name):
        return True
    try:
        json.loads(arguments.streamed + "".join(arguments.held))
    except (ValueError, RecursionError):
        return False
    return bool(item.name)


def text_of(data: Mapping[str, Any]) -> str:
    """All the text of an item object, as :attr:`Item.text` joins it."""
    if kind_of(data).name in ("function_call", "mcp_call"):
        return string(data.get("arguments"))
    texts: list[str] = []
    for family in ("content", "summary"):
        parts = data.get(family)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, Mapping):
                texts.append(string(part.get("text")) or string(part.get("refusal")))
    return "".join(texts)
