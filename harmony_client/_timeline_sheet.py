"""What the timeline looks like: rows of columns, in Unicode or ASCII, with or without colour."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Final, NamedTuple

__all__ = ["DIFFERENCE", "REPAIR", "VIOLATION", "Half", "Look", "Row", "Seen", "Sheet"]

_ADDED, _TEXT, _OPEN, _DONE, _WHOLE, _OTHER, _BATCH = "├█─┤◆·▮"
VIOLATION, REPAIR, DIFFERENCE = "!~≠"

_ASCII: Final = str.maketrans("├█─┤◆·▮≠“”…", '[#-]O.|x"">')
_COLOURS: Final = {VIOLATION: "31", DIFFERENCE: "31", REPAIR: "33", "title": "1", "dim": "2"}
_LEGEND: Final = {
    _ADDED: "announced",
    _TEXT: "text",
    _OPEN: "open",
    _DONE: "done",
    _WHOLE: "announced and done",
    _OTHER: "event where nothing is open",
    _BATCH: "token batch",
    VIOLATION: "violation",
    REPAIR: "repair",
    DIFFERENCE: "contradicts the final response",
}

_MAX_ROWS: Final = 40  # of one half: no more can be taken in, and a server may send thousands of items
_MAX_CELL: Final = 4  # columns for one event, where there are few
_MIN_TRACK: Final = 12
_KEPT: Final = 200  # characters of a text that are kept to be shown
_TICKS: Final = tuple(digit * 10**power for power in range(12) for digit in (1, 2, 5))


class Look(NamedTuple):
    """What the drawing is made for.

    Attributes:
        width: Columns of the terminal.
        unicode: Whether more than ASCII can be shown.
        colour: Whether ANSI colours can be shown.
    """

    width: int = 80
    unicode: bool = True
    colour: bool = False


class Seen(Flag):
    """What happened to an item at one event."""

    NOTHING = 0
    ADDED = auto()
    TEXT = auto()
    DONE = auto()
    OTHER = auto()


@dataclass
class Row:
    """One item on its way.

    Attributes:
        label: What it is.
        seen: What happened to it at which event.
        marks: The signs below it, by event.
        codes: What they stand for.
        name: The name of its tool.
        beginning: The beginning of the text that was streamed.
        length: The length of that text in characters.
    """

    label: str
    seen: dict[int, Seen] = field(default_factory=dict)
    marks: dict[int, str] = field(default_factory=dict)
    codes: list[str] = field(default_factory=list)
    name: str = ""
    beginning: str = ""
    length: int = 0

    def receive(self, position: int, seen: Seen, text: str, name: str) -> None:
        """Take what happens to it at an event."""
        self.seen[position] = self.seen.get(position, Seen.NOTHING) | seen
        self.name = self.name or name
        self.length += len(text)
        if len(self.beginning) < _KEPT:
            self.beginning += text[:_KEPT]

    def mark(self, position: int, sign: str, code: str) -> None:
        """Put a sign below an event."""
        self.marks[position] = sign
        if code not in self.codes:
            self.codes.append(code)


class Half(NamedTuple):
    """What the server sends, or what comes out."""

    title: str
    rows: Sequence[Row]


class Sheet:
    """Lays the rows out.

    Args:
        look: What it is drawn for.
        count: Number of events.
        halves: What is drawn, from top to bottom.
    """

    def __init__(self, look: Look, count: int, halves: Sequence[Half]) -> None:
        self._look = look
        self._halves = halves
        self._count = max(count, 1)
        labels = [len(row.label) for half in halves for row in half.rows]
        self._label = min(max(labels, default=0), 17 if look.width >= 60 else 11)
        self._summary = 22 if look.width >= 72 else 6 if look.width >= 44 else 0
        space = max(look.width - self._label - 1 - (self._summary and self._summary + 1), _MIN_TRACK)
        self._cell = max(1, min(_MAX_CELL, space // self._count))  # columns of one event
        self._share = -(-self._count // space)  # or events in one column
        self._track = -(-self._count // self._share) * self._cell

    def lines(self, batches: Sequence[int], tokens: int | None) -> Iterator[str]:
        """All lines."""
        yield ""
        yield from self._axis()
        yield from self._batches(batches, tokens)
        used = {_BATCH} if batches else set()
        for half in self._halves:
            yield self._paint(self._title(half.title), "title")
            for row in half.rows[:_MAX_ROWS]:
                line = self._bar(row)
                used |= {*line, *row.marks.values()}
                yield self._line(row.label, line, _summary(row, self._summary))
                if row.marks:
                    yield self._marks(row)
            if len(half.rows) > _MAX_ROWS:
                yield self._show(f"and {len(half.rows) - _MAX_ROWS} more items")
        yield ""
        yield from self._legend(used)

    # --- lines ------------------------------------------------------------------------------------

    def _axis(self) -> Iterator[str]:
        step = next(tick for tick in _TICKS if self._column(tick) >= len(str(self._count)) + 2 or tick > self._count)
        canvas = _Canvas(self._track + len(str(self._count)))
        for position in range(0, self._count, step):
            canvas.put(self._column(position), str(position))
        yield self._paint(self._line("event", canvas.text, "characters" if self._summary > len("characters") else ""), "dim")

    def _batches(self, batches: Sequence[int], tokens: int | None) -> Iterator[str]:
        if not batches:
            return
        canvas = _Canvas(self._track)
        for position in batches:
            canvas.put(self._column(position), _BATCH)
        summary = f"{tokens} tokens"
        yield self._line("tokens", canvas.text, summary if self._summary >= len(summary) else "")

    def _title(self, title: str) -> str:
        title = _cut(f"── {title} ", self._look.width)
        return title + "─" * (self._look.width - len(title))

    def _bar(self, row: Row) -> str:
        """An item from left to right."""
        cells = [Seen.NOTHING] * -(-self._count // self._share)
        for position, seen in row.seen.items():
            cells[position // self._share] |= seen
        parts, is_open = [], False
        for seen in cells:
            parts.append(_cell(seen, self._cell, is_open=is_open))
            is_open = (is_open or Seen.ADDED in seen) and Seen.DONE not in seen
        return "".join(parts)

    def _marks(self, row: Row) -> str:
        """The signs below an item, and what they stand for where there is room."""
        canvas = _Canvas(self._look.width - self._label - 1)
        columns = {self._column(position): sign for position, sign in row.marks.items()}
        for column, sign in columns.items():
            canvas.put(column, sign)
        before, after = min(columns) - 1, canvas.width - max(columns) - 2
        codes = _codes(row.codes, max(before, after))
        canvas.put(max(columns) + 2 if len(codes) <= after else before - len(codes), codes)
        return self._paint(self._line("", canvas.text, ""), REPAIR if {*columns.values()} == {REPAIR} else VIOLATION)

    def _legend(self, used: Iterable[str]) -> Iterator[str]:
        line = ""
        for sign, meaning in _LEGEND.items():
            if sign in used:
                entry = f"{sign} {meaning}"
                if line and len(line) + 2 + len(entry) > self._look.width:
                    yield self._paint(line, "dim")
                    line = ""
                line = f"{line}  {entry}" if line else entry
        yield self._paint(line, "dim")

    # --- parts ------------------------------------------------------------------------------------

    def _column(self, position: int) -> int:
        return position // self._share * self._cell

    def _line(self, label: str, track: str, summary: str) -> str:
        line = f"{_cut(_plain(label), self._label):{self._label}} {track:{self._track}}"
        return self._show(f"{line} {summary}" if summary and self._summary else line)

    def _show(self, line: str) -> str:
        line = line.rstrip()
        return line if self._look.unicode else line.translate(_ASCII).encode("ascii", "replace").decode()

    def _paint(self, line: str, style: str) -> str:
        line = self._show(line)
        return f"\x1b[{_COLOURS[style]}m{line}\x1b[0m" if self._look.colour else line


class _Canvas:
    """A line that is written on here and there."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._cells = [" "] * width

    def put(self, column: int, text: str) -> None:
        """Write a text, as far as there is room."""
        self._cells[column : column + len(text)] = text[: max(self.width - column, 0)]

    @property
    def text(self) -> str:
        return "".join(self._cells)


def _cell(seen: Seen, width: int, *, is_open: bool) -> str:
    """What happened to an item at one event, or at several that share a column."""
    if Seen.ADDED in seen and Seen.DONE in seen and width == 1:
        return _WHOLE
    begins, ends = Seen.ADDED in seen, Seen.DONE in seen
    line = _TEXT if Seen.TEXT in seen else _OPEN if is_open or begins else " "
    if line == " " and Seen.OTHER in seen:
        return _OTHER.ljust(width)
    if begins:
        return _ADDED + line * (width - 1 - ends) + _DONE * ends
    if ends:
        return line * (width - 1) + _DONE if is_open or line == _TEXT else _DONE.ljust(width)
    return line * width


def _summary(row: Row, width: int) -> str:
    """How long an item's text is, and how it begins."""
    if not (row.length or row.name):
        return ""
    number = str(row.length) if row.length else ""
    room = width - len(number) - 1
    if room < 6:
        return number
    text = f"{row.name} {row.beginning}" if row.name else f"“{row.beginning}”" if row.length <= _KEPT else f"“{row.beginning}"
    return f"{number} {_cut(_plain(text), room)}".strip()


def _plain(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _codes(codes: Sequence[str], room: int) -> str:
    """As many codes as there is room for; all of them are listed elsewhere."""
    for shown in range(len(codes), 0, -1):
        rest = len(codes) - shown
        text = ", ".join(codes[:shown]) + (f" and {rest} more" if rest else "")
        if len(text) <= room:
            return text
    return _cut(codes[0], room) if len(codes) == 1 and room > 8 else ""


def _cut(text: str, width: int) -> str:
    """The beginning of a text that is too wide; East Asian characters are two columns wide."""
    columns = 0
    for number, character in enumerate(text):
        columns += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if columns > width:
            return text[: max(number - 1, 0)] + "…" if width else ""
    return text
