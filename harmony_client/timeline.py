"""A response stream as a drawing: time from left to right, one row per output item.

Above is what the server sends, below what this package makes of it, both over the numbers of the
server's events, so that what stands in one column happened at one time. Violations are marked above,
repairs and differences below. No IO: :class:`Timeline` is told what happens and returns lines.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from itertools import islice
from typing import Any, Final, NamedTuple

from harmony_client.checker import Violation
from harmony_client.endings import TERMINAL_TYPES
from harmony_client.report import Report
from harmony_client.wire import EVENT_TYPE

__all__ = ["MIN_WIDTH", "Look", "Timeline"]

#: Columns below which lines get longer than the terminal is wide.
MIN_WIDTH: Final = 32

_MAX_ROWS: Final = 40  # of one half: no more can be taken in, and a server may send thousands of items
_MAX_CELL: Final = 4  # columns for one event, where there are few
_KEPT: Final = 200  # characters of a text that are kept to be shown
_RESPONSE: Final = "response"

_ADDED, _TEXT, _OPEN, _DONE, _WHOLE, _OTHER, _BATCH, _MORE = "├█─┤◆·▮…"
_VIOLATION, _REPAIR, _DIFFERENCE = "!~≠"
_ASCII: Final = str.maketrans("├█─┤◆·▮…≠“”", "[=-]O.#~/\"\"")
_STYLES: Final = {_VIOLATION: "31", _DIFFERENCE: "31", _REPAIR: "33", "title": "1", "dim": "2"}
_LEGEND: Final = {
    _ADDED: "announced",
    _TEXT: "text",
    _OPEN: "open",
    _DONE: "done",
    _WHOLE: "announced and done",
    _OTHER: "event of an item that is not open",
    _VIOLATION: "violation",
    _REPAIR: "repair",
    _DIFFERENCE: "contradicts the final response",
}

#: The item that an event speaks of, by the beginning of its type.
_KINDS: Final = {
    "response.output_text.": "message",
    "response.refusal.": "message",
    "response.reasoning": "reasoning",
    "response.function_call_arguments.": "function_call",
}


class Look(NamedTuple):
    """What the drawing is made for.

    Attributes:
        width: Columns.
        unicode: Whether more than ASCII can be shown.
        colour: Whether ANSI colours can be shown.
    """

    width: int = 80
    unicode: bool = True
    colour: bool = False


class _Seen(Flag):
    """What happened to an item at one event."""

    NOTHING = 0
    ADDED = auto()
    TEXT = auto()
    DONE = auto()
    OTHER = auto()


class _Step(NamedTuple):
    """What one event says: of which item (output index and type; ``None``: of the response), and what."""

    item: tuple[int | None, str] | None
    seen: _Seen
    text: str = ""
    name: str = ""


@dataclass
class _Row:
    """One item on its way."""

    label: str
    seen: dict[int, _Seen] = field(default_factory=dict)
    marks: dict[int, str] = field(default_factory=dict)
    codes: list[str] = field(default_factory=list)
    name: str = ""
    beginning: str = ""
    length: int = 0

    def receive(self, position: int, step: _Step) -> None:
        self.seen[position] = self.seen.get(position, _Seen.NOTHING) | step.seen
        self.name = self.name or step.name
        self.length += len(step.text)
        if len(self.beginning) < _KEPT:
            self.beginning += step.text[:_KEPT]

    def mark(self, position: int, sign: str, code: str) -> None:
        self.marks[position] = sign
        if code not in self.codes:
            self.codes.append(code)


class _Rows:
    """The rows of one half of the drawing."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int | None, str] | None, _Row] = {}
        self.events = 0

    def receive(self, position: int, event: Mapping[str, Any]) -> _Row:
        step = _step(event)
        row = self.rows.get(step.item)
        if row is None:
            row = self.rows[step.item] = _Row(_label(step.item))
        row.receive(position, step)
        self.events += 1
        return row

    def of(self, index: int | None) -> _Row:
        """The row of an output index, or that of the response."""
        found = next((row for item, row in self.rows.items() if item is not None and item[0] == index), None)
        return found or self.rows.setdefault(None, _Row(_RESPONSE))

    def ordered(self) -> list[_Row]:
        """The response, then the items by index, each in order of appearance."""
        items = [item for item in self.rows if item is not None]
        items.sort(key=lambda item: -1 if item[0] is None else item[0])
        return [self.rows[item] for item in (None, *items) if item in self.rows]


def _label(item: tuple[int | None, str] | None) -> str:
    if item is None:
        return _RESPONSE
    index, kind = item
    return f"{'?' if index is None else index} {kind}"


def _step(event: Mapping[str, Any]) -> _Step:
    name, index, delta = event.get("type"), event.get("output_index"), event.get("delta")
    kind, tool = _kind(name if isinstance(name, str) else "", event)
    if kind is None:
        opening = name == "response.created"
        return _Step(None, _Seen.ADDED if opening else _Seen.DONE if name in TERMINAL_TYPES else _Seen.OTHER)
    item = (index if type(index) is int else None, kind)
    if name == "response.output_item.added":
        return _Step(item, _Seen.ADDED, name=tool)
    if name == "response.output_item.done":
        return _Step(item, _Seen.DONE, name=tool)
    return _Step(item, _Seen.TEXT, delta) if isinstance(delta, str) and delta else _Step(item, _Seen.OTHER)


def _kind(name: str, event: Mapping[str, Any]) -> tuple[str | None, str]:
    """The type of the item that an event speaks of, ``None`` if of none; the name of its tool."""
    if name.startswith("response.output_item."):
        item = event.get("item")
        item = item if isinstance(item, Mapping) else {}
        return str(item.get("type", "item")), str(item.get("name") or "")
    if name.startswith("response.content_part."):
        part = event.get("part")
        return "reasoning" if isinstance(part, Mapping) and part.get("type") == "reasoning_text" else "message", ""
    found = next((kind for start, kind in _KINDS.items() if name.startswith(start)), None)
    if found is None and "output_index" in event:
        found = name.removeprefix("response.").partition(".")[0]
    return found, ""


class Timeline:
    """Collects what happens to a response, and draws it."""

    def __init__(self) -> None:
        self._server = _Rows()
        self._ours = _Rows()
        self._batches: list[int] = []
        self._taken: list[int] = []  # the position of each event that the repairer took
        self._position = -1
        self._violations = 0

    def receive(self, event: Mapping[str, Any], violations: Iterable[Violation] = ()) -> None:
        """Take the server's next event, token batches included, and what is wrong with it."""
        self._position += 1
        if event.get("type") == EVENT_TYPE:
            self._batches.append(self._position)
            return
        row = self._server.receive(self._position, event)
        self._mark(row, violations)

    def receive_eof(self, violations: Iterable[Violation] = ()) -> None:
        """Take the end of the stream, and what is missing there."""
        self._position += 1
        self._mark(self._server.of(None), violations)

    def receive_repaired(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take what was handed out for the server's last event, or at the end."""
        self._taken.append(self._position)
        for event in events:
            self._ours.receive(self._position, event)

    def _mark(self, row: _Row, violations: Iterable[Violation]) -> None:
        for violation in violations:
            row.mark(self._position, _VIOLATION, violation.code)
            self._violations += 1

    def draw(self, report: Report, look: Look = Look()) -> Iterator[str]:
        """The drawing.

        Args:
            report: The report of the repaired stream, final.
            look: What it is drawn for.

        Yields:
            Lines, at most ``look.width`` columns wide.
        """
        self._mark_repairs(report)
        yield from _Sheet(self, report, look).lines()

    def _mark_repairs(self, report: Report) -> None:
        for repair in report.repairs:
            at = self._taken[min(repair.event, len(self._taken) - 1)] if self._taken else 0
            self._ours.of(repair.output_index).mark(at, _REPAIR, repair.code)
        for difference in report.unexpected_differences:
            at = self._taken[-1] if self._taken else 0
            self._ours.of(difference.output_index).mark(at, _DIFFERENCE, f"other {difference.field}")
