"""What every test asks of a stream that the repairer wrote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from harmony_client.body import RepairedBody
from harmony_client.checker import check
from harmony_client.errors import StreamError
from harmony_client.repair import StreamRepairer
from harmony_client.report import Report

Event = dict[str, Any]

TERMINALS = ("response.completed", "response.incomplete", "response.failed")
#: Violations that are right where the report says why.
_EXCUSED = {
    "text-replaced": {"text-done-mismatch", "arguments-done-mismatch"},
    "text-done-withheld": {"text-done-missing"},
    "status-fixed": {"terminal-status-mismatch"},
    "status-kept": {"incomplete-not-last", "incomplete-in-completed"},
}


@dataclass
class Item:
    """An item as the application saw it."""

    kind: str
    added: Event
    deltas: list[str] = field(default_factory=list)
    done: Event | None = None

    @property
    def text(self) -> str:
        return "".join(self.deltas)


@dataclass
class Played:
    """A stream after repair."""

    events: list[Event]
    report: Report
    failure: StreamError | None

    @property
    def terminal(self) -> Event | None:
        last = self.events[-1] if self.events else None
        return last if last is not None and last["type"] in TERMINALS else None

    @property
    def items(self) -> list[Item]:
        found: dict[int, Item] = {}
        for event in self.events:
            if event["type"] == "response.output_item.added":
                found[event["output_index"]] = Item(event["item"]["type"], event["item"])
            elif event["type"] == "response.output_item.done":
                found[event["output_index"]].done = event["item"]
            elif event["type"].endswith(".delta") and type(event.get("output_index")) is int and event["output_index"] in found:
                found[event["output_index"]].deltas.append(str(event.get("delta", "")))
        return [found[index] for index in sorted(found)]

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(item.kind, item.text) for item in self.items]

    def violations(self) -> list[Any]:
        """What the checker finds, less what the report accounts for."""
        if self.failure is not None and not self.events:
            return []
        excused: set[str] = set()
        for repair in self.report.repair_codes:
            excused |= _EXCUSED.get(repair, set())
        return [violation for violation in check(self.events, failed=self.failure is not None) if violation.code not in excused]


def play(events: Iterable[Event], *, error: BaseException | None = None, **options: Any) -> Played:
    """Repair a list of events, as a shell would."""
    options.setdefault("on_mismatch", "ignore")
    repairer = StreamRepairer(**options)
    out: list[Event] = []
    for event in events:
        out += repairer.receive(event)
        if repairer.finished:
            break
    else:
        out += repairer.receive_eof(error)
    return Played(out, repairer.report, repairer.failure)


def play_bytes(chunks: Iterable[bytes], *, error: BaseException | None = None, **options: Any) -> Played:
    """Repair a body, as the SDK wrapper would."""
    options.setdefault("on_mismatch", "ignore")
    body = RepairedBody(StreamRepairer(**options))
    out: list[Event] = []
    for chunk in chunks:
        for events in body.receive_data(chunk):
            out += events
            if body.finished:
                break
        if body.finished:
            break
    else:
        for events in body.receive_eof(error):
            out += events
    return Played(out, body.report, body.failure)
