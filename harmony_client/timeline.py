"""A response stream as a drawing: time from left to right, one row per output item.

Above is what the server sends, below what this package makes of it, both over the numbers of the
server's events, so that what stands in one column happened at one time. Violations are marked above,
repairs and differences below. No IO: :class:`Timeline` is told what happens and returns lines.
How they look is a matter of :mod:`harmony_client._timeline_sheet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from harmony_client._timeline_sheet import DIFFERENCE, REPAIR, VIOLATION, Half, Look, Row, Seen, Sheet
from harmony_client.checker import Checker, Violation
from harmony_client.endings import TERMINAL_TYPES
from harmony_client.errors import StreamError
from harmony_client.repair import StreamRepairer
from harmony_client.report import Report
from harmony_client.wire import EVENT_TYPE

__all__ = ["Look", "Timeline", "WatchedRepairer"]

#: The item that an event speaks of, by the beginning of its type.
_KINDS: Final = {
    "response.output_text.": "message",
    "response.refusal.": "message",
    "response.reasoning": "reasoning",
    "response.function_call_arguments.": "function_call",
}

#: An item of one half: its output index and its type; ``None``: the response itself.
_Item = tuple[int | None, str] | None


class _Step(NamedTuple):
    """What one event says: of which item (output index and type; ``None``: of the response), and what."""

    item: _Item
    seen: Seen
    text: str = ""
    name: str = ""


class _Rows:
    """The rows of one half of the drawing."""

    def __init__(self) -> None:
        self.rows: dict[_Item, Row] = {}
        self.events = 0
        self._by_index: dict[int, Row] = {}

    def receive(self, position: int, event: Mapping[str, Any]) -> Row:
        step = _step(event)
        row = self.rows.get(step.item)
        if row is None:
            row = self.rows[step.item] = Row(_label(step.item))
            index = step.item and step.item[0]
            if index is not None:
                self._by_index.setdefault(index, row)
        row.receive(position, step.seen, step.text, step.name)
        self.events += 1
        return row

    def of(self, index: int | None) -> Row:
        """The row of an output index, or that of the response: for ``None``, and for items that were never seen."""
        found = None if index is None else self._by_index.get(index)
        return found or self.rows.setdefault(None, Row(_label(None)))

    def ordered(self) -> list[Row]:
        """The response, then the items by index, each in order of appearance."""
        items = [item for item in self.rows if item is not None]
        items.sort(key=lambda item: -1 if item[0] is None else item[0])
        return [self.rows[item] for item in (None, *items) if item in self.rows]


def _label(item: _Item) -> str:
    if item is None:
        return "response"
    index, kind = item
    return f"{'?' if index is None else index} {kind}"


def _step(event: Mapping[str, Any]) -> _Step:
    given, index, delta = event.get("type"), event.get("output_index"), event.get("delta")
    name = given if isinstance(given, str) else ""
    kind, tool = _kind(name, event)
    if kind is None:
        opening = name == "response.created"
        return _Step(None, Seen.ADDED if opening else Seen.DONE if name in TERMINAL_TYPES else Seen.OTHER)
    item = (index if type(index) is int else None, kind)
    if name == "response.output_item.added":
        return _Step(item, Seen.ADDED, name=tool)
    if name == "response.output_item.done":
        return _Step(item, Seen.DONE, name=tool)
    return _Step(item, Seen.TEXT, delta) if isinstance(delta, str) and delta else _Step(item, Seen.OTHER)


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

    def receive_eof(self, violations: Iterable[Violation], repaired: Iterable[Mapping[str, Any]]) -> None:
        """Take the end of the stream, what is missing there, and what was handed out for it."""
        missing, made = list(violations), list(repaired)
        if missing or made:
            self._position += 1
            self._mark(self._server.of(None), missing)
            self._hand_out(made)

    def receive_repaired(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take what was handed out for the server's last event; not called once nothing more is handed out."""
        self._taken.append(self._position)
        self._hand_out(events)

    def _hand_out(self, events: Iterable[Mapping[str, Any]]) -> None:
        for event in events:
            self._ours.receive(self._position, event)

    def _mark(self, row: Row, violations: Iterable[Violation]) -> None:
        for violation in violations:
            row.mark(self._position, VIOLATION, violation.code)
            self._violations += 1

    def draw(self, report: Report, look: Look) -> Iterator[str]:
        """The drawing, once the stream has ended.

        Args:
            report: The report of the repaired stream, final.
            look: What it is drawn for.

        Yields:
            Lines, at most ``look.width`` columns wide.
        """
        self._mark_repairs(report)
        sent = f"{_count(self._server.events, 'event')}, {_count(self._violations, 'violation')}"
        made = f"{_count(self._ours.events, 'event')}, {report.verdict}, from {report.basis}"
        made += f", error: {report.error}" if report.error else ""
        server, ours = Half(f"stock stream: {sent}", self._server.ordered()), Half(f"repaired stream: {made}", self._ours.ordered())
        yield from Sheet(look, self._position + 1, [server, ours]).lines(self._batches, report.output_tokens)

    def _mark_repairs(self, report: Report) -> None:
        last = self._taken[-1] if self._taken else 0
        for repair in report.repairs:
            at = self._taken[repair.event] if repair.event < len(self._taken) else last
            self._ours.of(repair.output_index).mark(at, REPAIR, repair.code)
        for difference in report.unexpected_differences:
            self._ours.of(difference.output_index).mark(last, DIFFERENCE, f"{difference.field} differs")


class WatchedRepairer(StreamRepairer):
    """A repairer that remembers what a drawing shows.

    Takes the arguments of :class:`StreamRepairer`. Events may be given to it past its end.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._checker = Checker()
        self._timeline = Timeline()

    def receive(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Take one event of the server; returns what is to be handed out."""
        self._timeline.receive(event, () if event.get("type") == EVENT_TYPE else self._checker.receive(event))
        if self.finished:
            return []
        out = super().receive(event)
        self._timeline.receive_repaired(out)
        return out

    def watch(self, event: object) -> None:
        """Take one event, or data that is none, of which only the drawing is of interest."""
        if isinstance(event, dict):
            self.receive(event)
        else:
            self._timeline.receive({}, self._checker.receive(event))  # type: ignore[arg-type]  # takes anything

    def receive_eof(self, error: BaseException | None = None) -> list[dict[str, Any]]:
        """Take the end of the stream; returns what is to be handed out."""
        out = super().receive_eof(error)
        self._timeline.receive_eof(self._checker.close(), out)
        return out

    def receive_error(self, error: StreamError) -> list[dict[str, Any]]:
        """End the stream with an error of the caller's; returns what is to be handed out."""
        out = super().receive_error(error)
        self._timeline.receive_eof((), out)
        return out

    def draw(self, look: Look) -> Iterator[str]:
        """The drawing; the stream has ended."""
        self._timeline.receive_eof(self._checker.close(), ())
        return self._timeline.draw(self.report, look)


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
