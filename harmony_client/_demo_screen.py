"""What the demo looks like: two columns that grow while the streams run, then a table.

On a terminal the columns are drawn live, in colour unless ``NO_COLOR`` is set. Otherwise only their
final state is printed, as plain text 80 columns wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from harmony_client.demo import Line, Row
    from harmony_client.report import Report

__all__ = ["Screen"]

_MAX_WIDTH: Final = 100
_STYLES: Final = {"event": "dim", "text": "", "good": "green", "bad": "red"}
_CLIENTS: Final = {"openai": "stock SDK", "harmony_client": "HarmonyOpenAI"}

#: The columns of the table: title in two lines, width. Together 80 with the longest repair code.
_COLUMNS: Final = (
    ("", "", 14),
    ("", "text", 5),
    ("items", "added", 5),
    ("items", "done", 5),
    ("tool", "calls", 5),
    ("", "SDK", 7),
    ("", "verdict", 12),
    ("", "repairs", 23),
)
_LEGEND: Final = (
    "text: all that the model wrote arrived. items: announced, and done under the index they were announced with. tool calls: streamed "
    "whole. SDK: whether its responses.stream() accepts the stream or raises. verdict: whether the server's final response says the same "
    "as the stream (unverifiable: there was none). repairs: what else was mended (+1: one more kind)."
)


class Screen:
    """Where the demo writes.

    Args:
        file: The stream to write to.
        live: Whether streams are shown while they run.
    """

    def __init__(self, file: TextIO, *, live: bool) -> None:
        self._console = Console(file=file, highlight=False)
        self._console.width = min(self._console.width, _MAX_WIDTH)
        self._live = live

    def say(self, text: str) -> None:
        """Print a paragraph."""
        self._console.print(Text(text), end="\n\n")

    @contextmanager
    def side_by_side(self, title: str, pair: Sequence[Row]) -> Iterator[None]:
        """Show two rows while they are filled."""
        if not self._live:
            yield
            return
        self._console.rule(_title(title, pair[0]), align="left", characters="-", style="")
        with Live(get_renderable=lambda: _columns(pair), console=self._console, refresh_per_second=20):
            yield
        self._console.print(end="\n" if self._console.is_terminal else "\n\n")

    def table(self, pairs: Sequence[tuple[str, Sequence[Row]]]) -> None:
        """Print what came of all streams."""
        self._console.rule(Text("all streams", "bold"), align="left", characters="-", style="")
        self._console.print(_cells([(upper, "dim") for upper, _, _ in _COLUMNS]))
        self._console.print(_cells([(lower, "dim") for _, lower, _ in _COLUMNS]))
        for title, pair in pairs:
            self._console.print(_title(title, pair[0]))
            for row in pair:
                self._console.print(_cells(_row(row)))
        self._console.print()
        self.say(_LEGEND)


def _title(title: str, row: Row) -> Text:
    count = row.tokens_per_batch
    return Text(f"{title}, {count} token{'s' * (count > 1)} per batch", "bold")


def _repairs(report: Report) -> str:
    """What was repaired, short enough for its column."""
    first, *more = sorted(report.repair_codes) or ["none"]
    return f"{first} +{len(more)}" if more else first


def _columns(pair: Sequence[Row]) -> Table:
    grid = Table(box=None, expand=True, padding=(0, 1, 0, 0))
    for row in pair:
        grid.add_column(_CLIENTS[row.client], ratio=1, overflow="fold")
    grid.add_row(*(Group(*map(_line, tuple(row.lines))) for row in pair))
    return grid


def _line(line: Line) -> Padding:
    text = "".join(line.parts)
    if line.role == "text":
        return Padding(Text(f"“{text}”", overflow="fold"), (0, 0, 0, 2))
    return Padding(Text(text, _STYLES[line.role], overflow="fold"), 0)


def _row(row: Row) -> list[tuple[str, str]]:
    written = len(row.written)
    calls = sum(item.kind == "function_call" for item in row.written)
    report = row.report
    return [
        (f" {_CLIENTS[row.client]}", ""),
        _mark("whole" if row.text_whole else "lost", row.text_whole),
        _mark(f"{len(row.announced)}/{written}", len(row.announced) == written),
        _mark(f"{len(row.closed)}/{written}", len(row.closed) == written),
        _mark(f"{row.calls}/{calls}", row.calls == calls) if calls else ("-", ""),
        _mark("raises" if row.helper_error else "accepts", not row.helper_error),
        (report.verdict if report else "-", ""),
        (_repairs(report) if report else "-", ""),
    ]


def _mark(text: str, good: bool) -> tuple[str, str]:
    return text, "green" if good else "red"


def _cells(cells: Sequence[tuple[str, str]]) -> Text:
    line = Text()
    for (text, style), (_, _, width) in zip(cells, _COLUMNS, strict=True):
        line.append(text, style).append(" " * (width - len(text) + 1))
    line.rstrip()
    return line
