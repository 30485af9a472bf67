"""What was done to a response stream, and whether it can be trusted.

A :class:`Report` belongs to one stream. It is filled while the stream runs and is final before the
terminal event is handed out, since agent frameworks stop reading on that event.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["DIFFERENCES", "REPAIRS", "Difference", "Dropped", "Reference", "ReferenceDifference", "Repair", "Report"]

Verdict = Literal["match", "mismatch", "unverifiable"]
Mode = Literal["tokens", "lost", "events"]
Ending = Literal["completed", "incomplete", "failed", "cancelled", "error", "closed"]

#: Every repair code and what it means. Codes are stable: they are only ever added.
REPAIRS: dict[str, str] = {
    "created-inserted": "The stream had no response.created; one was made from what was known.",
    "added-inserted": "An item was never announced; its output_item.added was inserted.",
    "part-added-inserted": "A content part was never announced; its part.added was inserted.",
    "delta-inserted": "Text known only from a done event or the snapshot was inserted as a delta.",
    "text-done-inserted": "A text or arguments done event was missing and was inserted.",
    "part-done-inserted": "A content part was never closed; its part.done was inserted.",
    "done-inserted": "An item was never closed; its output_item.done was inserted.",
    "index-rewritten": "An output_index was missing or wrong.",
    "part-index-rewritten": "A content_index or summary_index was missing or wrong.",
    "id-rewritten": "An item id was missing, empty, or not the one the item was announced with.",
    "call-id-rewritten": "A call_id was missing or not the one the call was announced with.",
    "response-id-rewritten": "The response id was missing or changed inside the stream.",
    "sequence-rewritten": "A sequence_number was missing or did not increase.",
    "field-filled": "A field that the API requires was missing or null.",
    "event-renamed": "An event type of another dialect was given its standard name.",
    "part-type-fixed": "A content part had a type that does not fit its item.",
    "name-cleaned": "Harmony markup was removed from a tool name.",
    "name-rewritten": "A call was named other than it was announced.",
    "text-done-withheld": "A cut answer in structured output got no output_text.done, which the SDK would parse and raise on.",
    "opener-emptied": "Text that came inside an opening event was moved into a delta.",
    "duplicate-dropped": "An event that had been received before was dropped.",
    "null-delta-dropped": "A delta that is not a string was dropped.",
    "late-text-dropped": "Text for a part or item that was already closed was dropped.",
    "deltas-replaced": "Held deltas contradicted the text of the done event and were replaced by it.",
    "text-replaced": "The deltas already handed out contradict the text of the done event, which stands.",
    "done-text-short": "A done event repeats less than was streamed; what was streamed stands.",
    "kind-kept": "A done event gave an item another type; it stays what it was announced as.",
    "status-kept": "An item before the last is incomplete: the server closed it so, or it was open when the stream ended.",
    "error-key-dropped": "An event of the stream carried a top-level error, on which the SDK raises; it was removed.",
    "status-fixed": "The status of an item was missing or contradicted the response.",
    "terminal-type-fixed": "The type of the terminal event contradicted the response's status.",
    "output-rebuilt": "The terminal response's output was null, empty, short, or out of order and was rebuilt.",
    "output-ids-rewritten": "The terminal response listed items under ids other than the streamed ones.",
    "terminal-synthesized": "The stream had no usable terminal event; one was made from what was received.",
    "terminal-repeated": "A further terminal event, or a second response in the stream, was ignored.",
    "error-swallowed": "The server's error was replaced by the answer, which was complete in the tokens.",
    "header-recovered": "A message header was malformed; the message was kept.",
    "recipient-unknown": "A message for a recipient that is no declared tool was shown as a function call.",
    "role-ignored": "The model wrote a recipient or role that is none; it was ignored or the message dropped.",
    "channel-unknown": "A message had no channel, or an unknown one, and was shown as a final message.",
    "frame-refused": "A token batch broke the wire format.",
    "frame-late": "Token batches began after item events and were ignored.",
    "tokens-lost": "Token batches were missing, repeated or out of order; only the snapshot was used from there.",
    "event-malformed": "An event could not be understood and was dropped.",
}

#: Every field name a difference can have and what it means.
DIFFERENCES: dict[str, str] = {
    "item": "an item is listed on one side only",
    "kind": "the item has another type",
    "text": "the text differs",
    "name": "the tool name differs",
    "arguments": "the tool arguments differ",
    "order": "the items stand in another order",
    "status": "the status of the response differs",
    "output": "the snapshot lists no output although items were streamed",
}


@dataclass(slots=True)
class Repair:
    """One kind of repair of one item.

    Attributes:
        code: A key of :data:`REPAIRS`.
        output_index: The item, as announced to the application; ``None`` for the response itself.
        count: How often it was done.
        event: 0-based number of the server event at which it was done first.
        detail: Ids or indexes involved (never text of the answer).
    """

    code: str
    output_index: int | None
    count: int
    event: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between what was streamed and the server's terminal response.

    Attributes:
        output_index: The item as announced to the application; ``None`` if it was never announced.
        field: A key of :data:`DIFFERENCES`.
        streamed: The value that was streamed.
        server: The value in the server's terminal response.
        expected: Whether the server's documented mapping, or the way it streams, explains it.
        reason: Why it is expected, or ``""``.
    """

    output_index: int | None
    field: str
    streamed: Any
    server: Any
    expected: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Text of the model's output that is part of no item, verbatim.

    Attributes:
        text: What the tokens spelled.
        reason: Why it is no item's text: ``between-messages``, ``garbage-header``, ``cut-header``,
            ``header-words``, ``role``, ``bad-id``, or ``late`` (it came for a part that was closed).
    """

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReferenceDifference:
    """One Harmony message that openai-harmony reads otherwise.

    Attributes:
        message: 0-based number of the message in the model's output.
        field: ``message`` (only one side has it), ``kind``, ``name`` or ``text``.
        streamed: What was streamed.
        reference: What openai-harmony makes of the same tokens.
        expected: Whether the output is malformed there, so that the two may read it differently.
    """

    message: int
    field: str
    streamed: str
    reference: str
    expected: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """What openai-harmony, given the same tokens, says of a stream (option ``reference=True``).

    Attributes:
        verdict: ``match``: it reads what was streamed, or the output is malformed where it does not.
            ``mismatch``: it reads something else. ``unverifiable``: it could not be asked.
        reason: Why it could not be asked, or ``""``.
        differences: The messages that it reads otherwise.
    """

    verdict: Verdict
    reason: str = ""
    differences: tuple[ReferenceDifference, ...] = ()


@dataclass(slots=True)
class Report:
    """What happened to one response stream.

    Attributes:
        verdict: ``match``: the server's terminal response says what was streamed, or its documented
            mapping explains every difference. ``mismatch``: it does not. ``unverifiable``: there was
            no terminal response to compare with.
        basis: What the streamed items were made from: ``tokens``, or ``events`` (a match then only
            proves that the server agrees with itself).
        mode: ``tokens``, ``lost`` (tokens that became unusable), or ``events``.
        lost_reason: Why the tokens became unusable, or ``None``.
        response_id: The response id that the application saw.
        server: Name and version the server gave with its tokens (``"tensorrt-llm/1.2.1"``), or ``None``.
        tokens_requested: Whether token batches were asked for; ``None`` where unknown.
        tokens_offered: Whether the server said it would send them; ``None`` where unknown.
        output_tokens: Number of token ids received; ``None`` without token batches.
        finish_reason: The engine's finish reason (``stop``, ``length``, …), with token batches.
        stop_reason: The id of a trimmed stop token, or a stop string, with token batches.
        ending: How the stream ended for the application: ``completed``, ``incomplete``, ``failed``,
            ``cancelled`` (terminal events), ``error`` (an exception) or ``closed`` (by the
            application); ``None`` while it runs.
        error: The error's code if ``ending`` is ``error``; also where ``on_disconnect="incomplete"`` replaced it.
        repairs: What was repaired, one entry per code and item.
        differences: Where streamed items and snapshot differ.
        dropped: Text of the model's output that is part of no item.
        preambles: Text of commentary messages that are part of no item.
        ids: The server's item ids and call_ids that the application does not see, each with the one
            it sees instead.
        events_received: Number of server events read, token batches included.
        events_sent: Number of events handed out.
        skipped_data: Number of SSE records that were no JSON object and were skipped.
        server_response: The server's own terminal response, untouched, or ``None``.
        reference: What openai-harmony says of the same tokens, with the option ``reference=True``; else ``None``.
    """

    verdict: Verdict = "unverifiable"
    basis: Literal["tokens", "events"] = "events"
    mode: Mode = "events"
    lost_reason: str | None = None
    response_id: str | None = None
    server: str | None = None
    tokens_requested: bool | None = None
    tokens_offered: bool | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    ending: Ending | None = None
    error: str | None = None
    repairs: list[Repair] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    preambles: list[str] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    events_received: int = 0
    events_sent: int = 0
    skipped_data: int = 0
    server_response: dict[str, Any] | None = field(default=None, repr=False)
    reference: Reference | None = None
    _index: dict[tuple[str, int | None], Repair] = field(default_factory=dict, repr=False, compare=False)

    def note(self, code: str, output_index: int | None = None, detail: str = "") -> None:
        """Count a repair: one entry per code and item, however often it happens."""
        entry = self._index.get((code, output_index))
        if entry is None:
            entry = Repair(code, output_index, 0, max(self.events_received - 1, 0), detail)
            self._index[code, output_index] = entry
            self.repairs.append(entry)
        entry.count += 1

    @property
    def repair_codes(self) -> set[str]:
        """The codes of all repairs."""
        return {repair.code for repair in self.repairs}

    @property
    def unexpected_differences(self) -> list[Difference]:
        """The differences that make the verdict a mismatch."""
        return [difference for difference in self.differences if not difference.expected]

    def as_dict(self) -> dict[str, Any]:
        """The report as plain JSON data, without the server's response.

        Returns:
            One key per attribute; lists of dicts for repairs, differences and dropped text.
        """
        plain = {name: getattr(self, name) for name in _PLAIN}
        plain["repairs"] = [asdict(entry) for entry in self.repairs]
        plain["differences"] = [asdict(entry) for entry in self.differences]
        plain["dropped"] = [asdict(entry) for entry in self.dropped]
        plain["reference"] = None if self.reference is None else asdict(self.reference)
        return plain


_NESTED = {"server_response", "repairs", "differences", "dropped", "reference"}
_PLAIN = [name for name in Report.__dataclass_fields__ if not name.startswith("_") and name not in _NESTED]
