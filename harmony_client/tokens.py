"""Tokens mode: token batches in, items written from them alone."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from harmony_client.errors import LimitError
from harmony_client.grammar import ITEM_KINDS
from harmony_client.harmony import Dropped as ParserDropped
from harmony_client.harmony import HarmonyParser, Header, MessageEnd, MessageStart
from harmony_client.items import Plan, Preambles, plan, search_action
from harmony_client.output import MAX_ITEMS, Item, Part
from harmony_client.report import Dropped, Report
from harmony_client.wire import TokenBatch
from harmony_client.writer import Writer

__all__ = ["Evidence", "Lost", "Message", "Reading", "TokenReader"]

_STOP_TOKENS = frozenset({200002, 200007, 200012})
_MISSING_HEADER = "message with a malformed header left out"


class Lost(Exception):
    """The tokens became unusable: a gap, a repeat, or disorder."""


class Reading(NamedTuple):
    """What a Harmony message was taken for.

    Attributes:
        kind: The type of its item; ``""`` or ``"drop"`` if it has none (see :class:`harmony_client.items.Plan`).
        name: The tool's name, for calls.
        text: Its text.
    """

    kind: str
    name: str
    text: str


class Evidence(NamedTuple):
    """All tokens of a response and what was made of them, for a second reading by another parser.

    Attributes:
        turns: The ids of each turn, a trimmed stop token included.
        readings: What each message was taken for, in order.
        decide: What becomes of a message with a given header.
    """

    turns: Sequence[Sequence[int]]
    readings: Sequence[Reading]
    decide: Callable[[Header], Plan]


class Message:
    """A Harmony message and what became of it.

    Attributes:
        item: Its item, or ``None``.
        plan: How that was decided.
        omissible: Why the server's terminal response may leave it out, or ``""``.
        chunks: Its text, where no item holds it.
    """

    __slots__ = ("chunks", "item", "omissible", "part", "plan")

    def __init__(self, plan: Plan, item: Item | None, part: Part | None, omissible: str) -> None:
        self.plan = plan
        self.item = item
        self.part = part
        self.omissible = omissible
        self.chunks: list[str] = []

    @property
    def text(self) -> str:
        """The whole text so far."""
        return self.part.streamed if self.part is not None else "".join(self.chunks)


class TokenReader:
    """Turns token batches into items.

    Attributes:
        messages: Every message, in order.
        done: Whether the last batch arrived.
        cut: Whether the output was cut off (token limit, cancellation) rather than stopped.
        snapshot_error: Why the server cannot build its terminal response, or ``None``.
    """

    def __init__(self, writer: Writer, report: Report, tools: frozenset[str], preambles: Preambles, *, keep: bool = False) -> None:
        self.messages: list[Message] = []
        self.done = False
        self.cut = False
        self.snapshot_error: str | None = None
        self.tools = tools
        self._writer = writer
        self._report = report
        self._preambles = preambles
        self._parser = HarmonyParser()
        self._batch = 0
        self._count = 0
        self._turn = 0
        self._current: Message | None = None
        self._buffer: list[str] = []
        self._kept: list[array[int]] | None = [array("I")] if keep else None

    def evidence(self) -> Evidence | None:
        """All that was read and what was made of it; ``None`` unless it is kept, and whole."""
        if self._kept is None or not self.done:
            return None
        readings = [Reading(message.plan.kind, message.plan.name, message.text) for message in self.messages]
        return Evidence(self._kept, readings, self._decide)

    def receive(self, batch: TokenBatch) -> None:
        """Write what a batch says.

        Raises:
            Lost: It is not the next batch.
        """
        if batch.batch != self._batch or batch.start != self._count:
            raise Lost(f"batch {batch.batch} at {batch.start} where {self._batch} at {self._count} was due")
        if self.done and batch.turn <= self._turn:
            raise Lost("a batch after the last one")
        self.done = False  # an engine that ends every turn with a last batch
        if batch.turn != self._turn:
            self._new_turn(batch.turn)
        if self._batch == 0:
            self._report.server = batch.server
        self._batch += 1
        self._count += len(batch.token_ids)
        self._report.output_tokens = self._count
        if self._kept is not None:
            self._kept[-1].extend(batch.token_ids)
        self._take(self._parser.receive(batch.token_ids))
        if batch.done:
            self._finish(batch)
        self._flush()

    def abandon(self) -> None:
        """No more tokens will come: what is open stays open, for the snapshot or a failure to close."""
        message, self._current = self._current, None
        if message is None:
            return
        if message.item is None:
            self._keep(message)
        elif message.item.kind.opaque:
            message.item.data = {"action": search_action(message.plan.name, message.text)[0], "status": "in_progress"}

    def _new_turn(self, turn: int) -> None:
        """A new engine request: it starts anew, without a start token."""
        if turn < self._turn:
            raise Lost(f"turn {turn} after turn {self._turn}")
        self._turn = turn
        self._take(self._parser.close())
        self._end("completed")
        self._parser = HarmonyParser()
        if self._kept is not None:
            self._kept.append(array("I"))

    def _finish(self, batch: TokenBatch) -> None:
        self._report.finish_reason = batch.finish_reason
        self._report.stop_reason = batch.stop_reason
        self.snapshot_error = batch.snapshot_error
        if type(batch.stop_reason) is int and batch.stop_reason in _STOP_TOKENS and self._parser.open:
            self._take(self._parser.receive([batch.stop_reason]))
            if self._kept is not None:
                self._kept[-1].append(batch.stop_reason)
        stopped = batch.finish_reason == "stop" or (batch.finish_reason is None and not self._parser.in_message)
        self.done, self.cut = True, not stopped
        self._take(self._parser.close())

    def _take(self, events: list[Any]) -> None:
        for event in events:
            if type(event) is str:
                self._buffer.append(event)
            elif type(event) is MessageStart:
                self._start(event)
            elif type(event) is MessageEnd:
                cut = event.stop is None and self.cut
                self._end("incomplete" if cut else "completed")
            elif type(event) is ParserDropped:
                self._report.dropped.append(Dropped(event.text, event.reason))
                self._report.note("header-recovered")

    def _start(self, start: MessageStart) -> None:
        if len(self.messages) >= MAX_ITEMS:
            raise LimitError(f"the output has more than {MAX_ITEMS} messages", code="too-many-items")
        decided = self._decide(start.header)
        item, part = self._open(decided)
        odd = start.recovered or start.header.repaired
        vllm = (self._report.server or "").startswith("vllm")
        omissible = decided.reason if not decided.listed and decided.reason else _MISSING_HEADER if odd and vllm else ""
        self._current = Message(decided, item, part, omissible)
        self.messages.append(self._current)
        for code in dict.fromkeys((*decided.notes, *(("header-recovered",) if odd else ()))):
            self._report.note(code, None if item is None else item.index)

    def _decide(self, header: Header) -> Plan:
        return plan(header, self.tools, self._report.server, self._preambles)

    def _open(self, decided: Plan) -> tuple[Item | None, Part | None]:
        kind = ITEM_KINDS.get(decided.kind)
        if kind is None:
            return None, None
        if kind.opaque:  # a web search is announced at its close, when it is known what it asks for
            return self._writer.open(kind, {}, announce=False), None
        data: dict[str, Any] = dict(kind.required)
        if decided.kind == "function_call":
            data["name"] = decided.name
        elif decided.kind == "message":
            data["phase"] = decided.phase
        else:
            data |= {"content": [], "status": "in_progress"}
        item = self._writer.open(kind, data)
        part_kind = kind.parts[0]
        return item, item.part(part_kind)

    def _flush(self) -> None:
        """Send the buffered text of the open message as one delta."""
        if not self._buffer:
            return
        text = "".join(self._buffer)
        self._buffer.clear()
        message = self._current
        if message is None:
            return
        if message.item is not None and message.part is not None:
            self._writer.text(message.item, message.part, text)
        else:
            message.chunks.append(text)

    def _end(self, status: str) -> None:
        self._flush()
        message, self._current = self._current, None
        if message is None:
            return
        item = message.item
        if item is None:
            self._keep(message)
            return
        if item.kind.opaque:
            action, understood = search_action(message.plan.name, message.text)
            status = status if understood else "incomplete"
            item.data = {"action": action, "status": "in_progress"}
        else:
            for part_kind in item.kind.parts[:1]:
                item.part(part_kind)
        self._writer.close(item, status)

    def _keep(self, message: Message) -> None:
        """A message that is no item: its text stands in the report."""
        if message.plan.kind == "drop":
            self._report.dropped.append(Dropped(message.text, "role"))
        elif message.text:
            self._report.preambles.append(message.text)
