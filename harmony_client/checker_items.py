"""What the checker knows of one output item and its parts, and what it asks of them.

An item owns its state and walks the tables `PART` and `ARGUMENTS`. It says what it finds through the function it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from harmony_client.checker_rules import (
    ARGUMENTS,
    CODES,
    INDEX_FIELD,
    PART,
    PART_LISTS,
    PART_TEXT,
    PART_TYPES,
    REQUIRED,
    UNFINISHED,
    UNFINISHED_ARGUMENTS,
    Kind,
    Rule,
    State,
)

__all__ = ["Item", "JsonObject", "missing_fields", "natural", "show", "string_or_none"]

JsonObject = Mapping[str, Any]


class _Part:
    """A content part, a summary part, or the arguments of a call."""

    __slots__ = ("_accepted", "_pieces", "certain", "kind", "state")

    def __init__(self, state: State, kind: str | None = None) -> None:
        self.state = state
        self.kind = kind
        self.certain = True  # False once its text cannot be known, so that later steps do not report the same fault
        self._pieces: list[str] = []
        self._accepted: list[object] = []  # the joined deltas, then any other text that a done event gave

    def append(self, delta: str) -> None:
        self._pieces.append(delta)

    def accepts(self, text: object) -> bool:
        """Whether `text` is what was streamed or what an earlier done event said; a new one is believed from here on."""
        if not self._accepted:
            self._accepted.append("".join(self._pieces))
            self._pieces.clear()
        if not self.certain or text in self._accepted:
            return True
        self._accepted.append(text)
        return False

    def difference(self, text: object) -> str:
        streamed = self._accepted[0]
        if not isinstance(text, str) or not isinstance(streamed, str):
            return f"{show(text)}, not a string"
        pairs = zip(streamed, text, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(streamed), len(text)))
        return f"{len(text)} characters, {len(streamed)} were streamed; they differ from character {same} on"


class Item:
    """An output item, announced or presumed from an event that speaks of it.

    Attributes:
        order: Position in the order of announcement.
        index: The `output_index` it was announced under; none if that was not a natural number.
        kind: The item's type; none as long as only events without a kind spoke of it.
        announced: Whether its added event came.
        certain: False once its parts cannot be known: they are no longer judged.
        id: The id it was announced with; none if that was missing, which is reported once.
        status: What its done event said: completed or incomplete.
        listed: Whether the terminal response lists it.
    """

    def __init__(
        self,
        order: int,
        index: int | None,
        kind: str | None,
        state: State,
        sink: Callable[[str, str, int | None], None],
    ) -> None:
        self.order = order
        self.index = index
        self.kind = kind
        self.state = state
        self.announced = self.certain = state is State.OPEN
        self.id: str | None = None
        self.call_id: str | None = None
        self.name: str | None = None
        self.status: str | None = None
        self.listed = False
        self._parts: dict[tuple[str, int], _Part] = {}
        self._arguments = _Part(State.OPEN)
        self._next = {"content": 0, "summary": 0}
        self._reported: set[str] = set()
        self._sink = sink

    def __str__(self) -> str:
        return f"the {self.kind or 'item'} at output_index {show(self.index)}"

    @property
    def opaque(self) -> bool:
        """Whether there is no grammar for the contents of an item of this kind."""
        return self.kind not in PART_LISTS and self.kind != "function_call"

    def report(self, code: str, message: str) -> None:
        """Report a breach; each code once per item."""
        if code not in self._reported:
            self._reported.add(code)
            self._sink(code, message, self.index)

    # Opening and closing ----------------------------------------------------------------------------------------

    def open(self, body: JsonObject) -> None:
        """Check what the added event says of it, but for its ids."""
        if self.opaque:
            return
        self._check_fields(self.kind or "", body, f"the announcement of {self}")
        self.check_status(body.get("status"), ("in_progress",), "its announcement")
        if self.kind == "function_call":
            self.name = string_or_none(body.get("name"))
            if body.get("arguments") != "":
                self.report("added-arguments-not-empty", f'{self} was announced with arguments other than ""')
                self._arguments.certain = False
        elif body.get("content") or body.get("summary") or (self.kind == "message" and body.get("content") != []):
            self.report("added-content-not-empty", f"{self} was announced with contents instead of an empty list")
            self.certain = False

    def done(self, body: JsonObject, where: str) -> None:
        """Check what the done event says of it, and that its parts are done."""
        self.state = State.CLOSED
        self.compare(body, "item-done-mismatch", where)
        if self.opaque:
            return
        self.status = self.check_status(body.get("status"), ("completed", "incomplete"), where)
        if not self.certain:
            return
        states = [(f"{family} {index}", UNFINISHED[part.state], part) for (family, index), part in self._parts.items()]
        if self.kind == "function_call":
            states.append(("arguments", UNFINISHED_ARGUMENTS[self._arguments.state], self._arguments))
        for name, codes, part in states:
            for code in codes:
                self.report(code, f"{self} was done while its {name} were in the state: {part.state.value}")

    def check_status(self, status: object, allowed: tuple[str, ...], where: str) -> str | None:
        """Return the status if it is allowed. Only a message must have one: OpenAI sends reasoning items without."""
        if isinstance(status, str) and status in allowed:
            return status
        if status is not None or self.kind == "message":
            self.report("item-status-invalid", f"{self} has the status {show(status)} in {where}, not {_or(allowed)}")
        return None

    def compare(self, body: JsonObject, code: str, where: str) -> None:
        """Compare the item as a done event or the terminal response lists it with what is known of it.

        Args:
            body: The listed item, with a string `type`.
            code: What to report where parts or texts differ.
            where: The event type.
        """
        self.kind = self.kind or body["type"]
        if body["type"] != self.kind:
            self.report("item-kind-changed", f"{where} makes a {show(body['type'])} of {self}")
            return
        # Without a call_id, which is reported for a function call, the SDK still compares: it is part of every item's identity.
        known = self.call_id is not None or (self.opaque and self.announced)
        if known and body.get("call_id") != self.call_id:
            self.report("call-id-changed", f"{where} lists {self} with the call_id {show(body.get('call_id'))}")
        if self.opaque:
            return
        self._check_fields(self.kind, body, f"{self} in {where}")
        if self.kind == "function_call":
            if self.name is not None and body.get("name") not in (self.name, None):
                self.report("item-name-changed", f"{where} lists {self} with the name {show(body.get('name'))}")
            if self.certain:
                self._check_text(self._arguments, body.get("arguments"), code, f"the arguments in {where}")
        for family in PART_LISTS.get(self.kind, ()) if self.certain else ():
            self._compare_list(family, body.get(family), code, where)

    def _compare_list(self, family: str, listed: object, code: str, where: str) -> None:
        parts = [part for (name, _), part in self._parts.items() if name == family]
        entries = [] if listed is None else listed
        if not isinstance(entries, list) or len(entries) != len(parts):
            shown = f"{len(entries)} parts" if isinstance(entries, list) else show(entries)
            self.report(code, f"{where} lists {shown} as {family} of {self}, {len(parts)} were streamed")
            self.certain = False
            return
        for number, (part, entry) in enumerate(zip(parts, entries, strict=True)):
            self._compare_part(part, entry, code, code, f"{family} {number} in {where}")

    # Events of parts --------------------------------------------------------------------------------------------

    def receive(self, event: JsonObject, rule: Rule) -> None:
        """Check an event about a part or the arguments of this item."""
        if self.opaque or not self.certain:
            return
        table, part = (ARGUMENTS, self._arguments) if rule.family == "arguments" else (PART, self._part_of(event, rule))
        if part is None:
            return
        code, part.state = table[part.state, rule.kind]
        if code:
            self.report(code, f"{event['type']} for {self}: {CODES[code]}")
        if code == "part-not-announced":
            self.certain = False
        elif code in (None, "text-done-missing"):
            self._check_fields(event["type"], event, event["type"])
            _PART_ACTS[rule.kind](self, part, event, rule)

    def _part_of(self, event: JsonObject, rule: Rule) -> _Part | None:
        if (self.kind, rule.family) not in PART_TYPES:
            self.report("event-wrong-kind", f"{event['type']} names {self}, which has no such parts")
            return None
        field = INDEX_FIELD[rule.family]
        index = natural(event.get(field))
        if index is None:
            self.report("content-index-invalid", f"{event['type']} for {self} has the {field} {show(event.get(field))}")
            self.certain = False
            return None
        part = self._parts.get((rule.family, index))
        if part is None:
            part = self._parts[rule.family, index] = _Part(State.ABSENT)
            expected = self._next[rule.family]
            if rule.kind is Kind.PART_ADDED and index != expected:
                found = f"has the {field} {show(index)}, not {show(expected)}"
                self.report("content-index-gap", f"{event['type']} for {self} {found}")
            self._next[rule.family] = index + 1
        return part

    def _on_part_added(self, part: _Part, event: JsonObject, rule: Rule) -> None:
        body = event.get("part")
        kind = body.get("type") if isinstance(body, Mapping) else None
        fitting = PART_TYPES[self.kind or "", rule.family]
        if not isinstance(body, Mapping) or not isinstance(kind, str) or kind not in fitting:
            self.report("part-kind-wrong", f"{event['type']} opens {show(kind)} in {self}, not {_or(sorted(fitting))}")
            part.certain = False
            return
        part.kind = kind
        self._check_fields(kind, body, f"the part in {event['type']}")
        if body.get(PART_TEXT[kind]) != "":
            self.report("part-added-not-empty", f'{event["type"]} for {self} opens a part whose text is not ""')
            part.certain = False

    def _on_delta(self, part: _Part, event: JsonObject, rule: Rule) -> None:
        delta = event.get("delta")
        if not self._is_of_kind(part, event, rule):
            return
        if isinstance(delta, str):
            part.append(delta)
        else:
            self.report("delta-not-string", f"{event['type']} for {self} has the delta {show(delta)}")
            part.certain = False

    def _on_text_done(self, part: _Part, event: JsonObject, rule: Rule) -> None:
        if self._is_of_kind(part, event, rule):
            self._check_text(part, event.get(rule.field), "text-done-mismatch", event["type"])

    def _on_arguments_done(self, part: _Part, event: JsonObject, rule: Rule) -> None:
        self._check_text(part, event.get(rule.field), "arguments-done-mismatch", event["type"])
        name = event.get("name")
        if self.name is not None and name != self.name:
            self.report("arguments-name-wrong", f"{event['type']} has the name {show(name)}, not {show(self.name)}")

    def _on_part_done(self, part: _Part, event: JsonObject, rule: Rule) -> None:
        self._compare_part(part, event.get("part"), "part-done-mismatch", "part-kind-wrong", event["type"])

    def _is_of_kind(self, part: _Part, event: JsonObject, rule: Rule) -> bool:
        if part.kind in (None, rule.part):
            return True
        found = f"is about a part of type {rule.part}, opened as {part.kind}"
        self.report("part-kind-wrong", f"{event['type']} for {self} {found}")
        part.certain = False
        return False

    def _compare_part(self, part: _Part, body: object, code: str, kind_code: str, where: str) -> None:
        if part.kind is None:  # not opened properly, which was reported
            return
        if not isinstance(body, Mapping) or body.get("type") != part.kind:
            shown = show(body.get("type") if isinstance(body, Mapping) else body)
            self.report(kind_code, f"a part of {self} is {shown} in {where}, opened as {part.kind}")
            return
        self._check_fields(part.kind, body, where)
        self._check_text(part, body.get(PART_TEXT[part.kind]), code, where)

    def _check_text(self, part: _Part, text: object, code: str, where: str) -> None:
        if not part.accepts(text):
            self.report(code, f"the text of {self} in {where} has {part.difference(text)}")

    def _check_fields(self, name: str, body: JsonObject, where: str) -> None:
        missing = missing_fields(name, body)
        if missing:
            self.report("field-missing", f"{where} lacks {missing}")


_PART_ACTS: Final[Mapping[Kind, Callable[[Item, _Part, JsonObject, Rule], object]]] = {
    Kind.PART_ADDED: Item._on_part_added,
    Kind.DELTA: Item._on_delta,
    Kind.TEXT_DONE: Item._on_text_done,
    Kind.ARGUMENTS_DONE: Item._on_arguments_done,
    Kind.PART_DONE: Item._on_part_done,
    Kind.NOTE: Item._is_of_kind,
}


def missing_fields(name: str, body: JsonObject) -> str:
    """The fields that `body` lacks of those that the SDK requires in a `name`, for a message; empty if none."""
    return ", ".join(field for field in REQUIRED.get(name, ()) if body.get(field) is None)


def natural(value: object) -> int | None:
    """`value` if it is an integer of 0 or more (a bool is none)."""
    return value if type(value) is int and value >= 0 else None


def string_or_none(value: object) -> str | None:
    """`value` if it is a string."""
    return value if isinstance(value, str) else None


def show(value: object) -> str:
    """A JSON value for a message: a name or a number, shortened; of anything else its type."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:60] + "…")
    if value is None:
        return "null"
    if isinstance(value, int):  # Python refuses to print integers of more than 4,300 digits
        return repr(value) if abs(value) < 1 << 64 else "a huge integer"
    return repr(value) if isinstance(value, float) else f"a {type(value).__name__}"


def _or(names: tuple[str, ...] | list[str]) -> str:
    return " or ".join(names)
