"""Check that a stream of Responses events is well-formed: every breach of the grammar, by code.

The checker shares nothing with the part of this package that writes streams, so each can judge the other. The rules are data
(`harmony_client.checker_rules`), walked on the level of the response here and of an item in `harmony_client.checker_items`.

* It never raises, whatever JSON it is given. Work per event is constant, and the text of a part is joined once.
* One fault gives one violation. After a breach the checker goes on from what came: it believes in an item that was never
  announced, and takes a contradicting text as good from there on. A code is reported once per item, and once per stream
  where it is about no item.
* Unknown event types are legal anywhere but before `response.created`. Items of a kind without a grammar (built-in tools)
  are opaque: announcement, end, index, id and place in the terminal response are checked, contents are not.
* Deltas may be empty: no known consumer minds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeGuard

from harmony_client.checker_items import Item, JsonObject, missing_fields, natural, show, string_or_none
from harmony_client.checker_rules import (
    CODES,
    EVENTS,
    ITEM,
    RESPONSE,
    TERMINAL_STATUS,
    TYPELESS_ERROR,
    VENDOR,
    Kind,
    Phase,
    Rule,
    State,
    Violation,
)

__all__ = ["CODES", "Checker", "Violation", "check"]


def check(events: Iterable[Mapping[str, Any]], *, failed: bool = False) -> list[Violation]:
    """List the violations of a whole stream.

    Args:
        events: The payloads, in order.
        failed: Whether the stream ended in an exception, which stands in for the terminal event.
    """
    checker = Checker()
    found = [violation for event in events for violation in checker.receive(event)]
    return found + checker.close(failed=failed)


class Checker:
    """The state of one stream: give it each event in order, then the end.

    Example:
        >>> checker = Checker()
        >>> [violation.code for violation in checker.receive({"type": "response.in_progress", "sequence_number": 0})]
        ['response-missing']
        >>> [violation.code for violation in checker.close()]
        ['created-missing', 'terminal-missing']
    """

    def __init__(self) -> None:
        self._phase = Phase.BEFORE
        self._position = 0
        self._sequence: int | None = None
        self._response_id: str | None = None
        self._items: list[Item] = []
        self._at: dict[int | None, Item] = {}
        self._by_id: dict[str | None, Item] = {}
        self._call_ids: set[tuple[str | None, str]] = set()
        self._next_index = 0
        self._reported: set[str] = set()
        self._event: JsonObject = {}
        self._found: list[Violation] = []

    def receive(self, event: Mapping[str, Any]) -> list[Violation]:
        """Check the next event, the JSON object of its `data`. Returns the violations it shows."""
        self._found = []
        payload: object = event
        self._event = payload if isinstance(payload, Mapping) else {}
        if isinstance(payload, Mapping):
            self._dispatch(payload)
        else:
            self._report("event-malformed", f"the event is {show(payload)}, not a JSON object")
        self._position += 1
        return self._found

    def close(self, *, failed: bool = False) -> list[Violation]:
        """Check the end of the stream. Nothing is found at a second call.

        Args:
            failed: Whether the stream ended in an exception, which stands in for the terminal event.
        """
        self._found, self._event = [], {}
        phase, self._phase = self._phase, Phase.AFTER
        if phase is Phase.EARLY or (phase is Phase.BEFORE and not failed):
            self._report("created-missing", "the stream ended without response.created, which should be its first event")
        if phase in (Phase.EARLY, Phase.OPEN):
            self._check_all_done("the end of the stream")
            if not failed:
                self._report("terminal-missing", f"the stream ended without any of {', '.join(TERMINAL_STATUS)}")
        return self._found

    def _dispatch(self, event: JsonObject) -> None:
        name = event.get("type")
        known = isinstance(name, str)
        rule = EVENTS.get(name, VENDOR) if isinstance(name, str) else TYPELESS_ERROR
        if event.get("error") and not (known and rule.kind is Kind.ERROR):
            self._report("error-key", f"the event of type {show(name)} has a top-level error: the SDK raises here")
        elif not known:
            hint = '; this is a whole response: did the request say "stream": true?' if event.get("object") == "response" else ""
            self._report("event-malformed", f"the event's type is {show(name)}, not a string{hint}")
            return
        if known:
            self._check_sequence(event, rule)
        step = RESPONSE[self._phase, rule.kind]
        if step.code:
            self._report(step.code, f"{show(name) if known else 'an untyped event'} came when {self._phase.value}: {CODES[step.code]}")
        self._phase = step.to
        if step.read:
            _ACTS[rule.kind](self, event, rule)

    def _report(self, code: str, message: str) -> None:
        if code not in self._reported:
            self._reported.add(code)
            self._append(code, message, natural(self._event.get("output_index")))

    def _append(self, code: str, message: str, index: int | None) -> None:
        sequence = self._event.get("sequence_number")
        number = sequence if type(sequence) is int else None
        self._found.append(Violation(code, self._position, number, index, message))

    def _check_sequence(self, event: JsonObject, rule: Rule) -> None:
        value, name = event.get("sequence_number"), show(event["type"])
        if rule.kind is Kind.TOKENS or self._phase in (Phase.ENDED, Phase.AFTER):
            return
        if value is None:
            if rule.kind is not Kind.VENDOR:
                self._report("sequence-missing", f"{name} has no sequence_number")
        elif natural(value) is None:
            self._report("sequence-invalid", f"{name} has the sequence_number {show(value)}, not an integer of 0 or more")
        else:
            if self._sequence is not None and value <= self._sequence:
                message = f"{name} has the sequence_number {show(value)} after {show(self._sequence)}"
                self._report("sequence-not-increasing", message)
            self._sequence = value

    # The response -----------------------------------------------------------------------------------------------

    def _on_lifecycle(self, event: JsonObject, rule: Rule) -> None:
        response, where = event.get("response"), event["type"]
        if not isinstance(response, Mapping):
            self._report("response-missing", f"{where} has the response {show(response)}, not an object")
            return
        missing = missing_fields("response", response)
        if missing:
            self._report("field-missing", f"the response in {where} lacks {missing}")
        output = response.get("output")
        if (rule.kind is Kind.CREATED and output != []) or (rule.kind is Kind.LIFECYCLE and output not in (None, [])):
            self._report("opening-output-wrong", f"the response in {where} has the output {show(output)} instead of []")
        value = string_or_none(response.get("id"))
        if not value:
            self._report("response-id-missing", f"the response in {where} has the id {show(response.get('id'))}")
        elif self._response_id is None:
            self._response_id = value
        elif value != self._response_id:
            message = f"the response in {where} has the id {show(value)}, it began as {show(self._response_id)}"
            self._report("response-id-changed", message)

    def _on_terminal(self, event: JsonObject, rule: Rule) -> None:
        where = event["type"]
        self._on_lifecycle(event, rule)
        self._check_all_done(where)
        response = event.get("response")
        if not isinstance(response, Mapping):
            return
        status, expected = response.get("status"), TERMINAL_STATUS[where]
        if status not in (expected, "cancelled"):  # no event type is named after cancellation: servers use any
            self._report("terminal-type-mismatch", f"the response in {where} has the status {show(status)}, not {expected}")
        output = response.get("output")
        if rule.kind is Kind.FAILED and not output:  # a server that gives up need not list what it had
            return
        if not isinstance(output, list):
            self._report("terminal-output-missing", f"the output in {where} is {show(output)}, not a list")
            return
        self._check_output(output, where, status)
        if rule.kind is Kind.TERMINAL:
            self._check_incomplete(status)

    def _check_all_done(self, where: str) -> None:
        for item in self._items:
            if item.state is State.OPEN:
                item.report("item-done-missing", f"{item} was announced but not done before {where}")

    def _check_output(self, output: list[Any], where: str, response_status: object) -> None:
        """Compare what the terminal response lists with what was announced, in pairs."""
        bodies = [body for body in output if self._is_item(body, f"the output in {where}")]
        last = -1
        for body, item in self._paired(bodies):
            if item is None:
                self._report("terminal-item-extra", f"{where} lists a {show(body['type'])} that was never announced")
                continue
            if item.order < last:
                self._report("terminal-order", f"{where} lists {item} after one that was announced later")
            last = max(last, item.order)
            if item.id is not None and body.get("id") != item.id:
                item.report("item-id-changed", f"{where} lists {item} with the id {show(body.get('id'))}")
            item.compare(body, "terminal-text-mismatch", where)
            if not item.opaque and where != "response.failed":
                self._check_final_status(item, body.get("status"), where, response_status)
            item.listed = True
        for item in self._items:
            if item.announced and not item.listed:
                item.report("terminal-item-missing", f"{where} does not list {item}")

    def _paired(self, bodies: list[JsonObject]) -> list[tuple[JsonObject, Item | None]]:
        """Find the item of each listed one: by id, or else the next of its kind that no id claims."""
        claimed = {body.get("id") for body in bodies if isinstance(body.get("id"), str)}
        by_id: dict[str | None, deque[Item]] = {}
        by_kind: dict[str | None, deque[Item]] = {}
        for item in self._items:
            known = item.id in claimed
            (by_id if known else by_kind).setdefault(item.id if known else item.kind, deque()).append(item)
        pairs: list[tuple[JsonObject, Item | None]] = []
        for body in bodies:
            same_id = by_id.get(string_or_none(body.get("id")))
            candidates = same_id or by_kind.get(body["type"]) or by_kind.get(None)
            pairs.append((body, candidates.popleft() if candidates else None))
        return pairs

    def _check_final_status(self, item: Item, status: object, where: str, response_status: object) -> None:
        final = item.check_status(status, ("completed", "incomplete"), where)
        if item.status is None or final in (None, item.status):
            return
        # The one disagreement that is allowed: what was cut shows only when the response ends.
        if (item.status, final, response_status) == ("completed", "incomplete", "incomplete") and item is self._items[-1]:
            return
        item.report("terminal-status-mismatch", f"{where} lists {item} as {final}, it was done as {item.status}")

    def _check_incomplete(self, response_status: object) -> None:
        cut: Item | None = None
        for item in self._items:
            if item.opaque or item.status is None:
                continue
            if item.status == "incomplete":
                cut = item
            elif cut:
                cut.report("incomplete-not-last", f"{cut} was done as incomplete, but {item}, announced later, as {item.status}")
        if cut and response_status == "completed":
            cut.report("incomplete-in-completed", f"{cut} was done as incomplete, but the response is completed")

    # Items ------------------------------------------------------------------------------------------------------

    def _on_item_added(self, event: JsonObject, rule: Rule) -> None:
        body, index = event.get("item"), natural(event.get("output_index"))
        if not self._is_item(body, event["type"]):
            body = {}
        before = self._at.get(index)
        if before and (before.state is State.PRESUMED or body.get("id") in (before.id, None, "")):
            self._announce_again(before, body, rule)
            return
        item = self._add_item(index, body.get("type"), State.OPEN)
        if index is None:
            item.report("output-index-invalid", f"{item} was announced without an index of 0 or more")
        elif before:
            item.report("output-index-repeated", f"{item} was announced under the index of another item")
        elif index != self._next_index:
            item.report("output-index-gap", f"{item} was announced where the next index is {show(self._next_index)}")
        if not before:
            self._next_index = (self._next_index if index is None else index) + 1
        if body:
            self._register(item, body)
            item.open(body)
        else:
            item.certain = False

    def _announce_again(self, item: Item, body: JsonObject, rule: Rule) -> None:
        code = ITEM[item.state, rule.kind]
        if not body:  # malformed, which was reported
            return
        if code:
            item.report(code, f"{item} was announced before")
        elif not item.announced:
            item.announced, item.kind = True, item.kind or body["type"]
            item.call_id = string_or_none(body.get("call_id"))

    def _add_item(self, index: int | None, kind: str | None, state: State) -> Item:
        item = Item(len(self._items), index, kind, state, self._append)
        self._items.append(item)
        if index is not None:
            self._at[index] = item
        return item

    def _register(self, item: Item, body: JsonObject) -> None:
        item.id = string_or_none(body.get("id")) or None
        item.call_id = string_or_none(body.get("call_id")) or None
        if item.id is None:
            item.report("item-id-missing", f"{item} was announced with the id {show(body.get('id'))}")
        else:
            if item.id in self._by_id:
                item.report("item-id-repeated", f"{item} was announced with the id of another item")
            self._by_id[item.id] = item
        if item.call_id is None:
            if item.kind == "function_call":
                item.report("call-id-missing", f"{item} was announced with the call_id {show(body.get('call_id'))}")
        elif (item.kind, item.call_id) in self._call_ids:  # a call and its output are of two kinds and share one
            item.report("call-id-repeated", f"{item} was announced with the call_id of another call")
        else:
            self._call_ids.add((item.kind, item.call_id))

    def _on_item_done(self, event: JsonObject, rule: Rule) -> None:
        body = event.get("item")
        if self._is_item(body, event["type"]):
            item = self._item_of(event, rule, body.get("id"))
            if item:
                item.done(body, event["type"])
            return
        unreadable = self._at.get(natural(event.get("output_index")))
        if unreadable:
            unreadable.state, unreadable.certain = State.CLOSED, False

    def _on_part(self, event: JsonObject, rule: Rule) -> None:
        item = self._item_of(event, rule, event.get("item_id"))
        if item:
            item.receive(event, rule)

    def _on_progress(self, event: JsonObject, rule: Rule) -> None:
        self._item_of(event, rule, event.get("item_id"))

    def _item_of(self, event: JsonObject, rule: Rule, name: object) -> Item | None:
        """The item that an event speaks of, by index and id; none where the event cannot be about it."""
        index = natural(event.get("output_index"))
        at, named = self._at.get(index), self._by_id.get(string_or_none(name))
        # Where they name two items, the id counts if it makes sense: servers get indexes wrong more often.
        if at and named and (named.state is State.CLOSED or rule.owner not in (None, named.kind)):
            named = None
        item = named or at
        if item is None:
            return self._presume(event, rule, index, string_or_none(name))
        code = ITEM[item.state, rule.kind]
        if code:
            item.report(code, f"{event['type']} came after {item} was done")
            return None
        self._check_index(event, item, index)
        if rule.has_item_id and item.id not in (None, name):
            code = "item-id-changed" if string_or_none(name) else "item-id-missing"
            item.report(code, f"{event['type']} names {item} by the id {show(name)}, announced as {show(item.id)}")
        item.kind = item.kind or rule.owner
        if rule.owner not in (None, item.kind):
            item.report("event-wrong-kind", f"{event['type']} is for a {rule.owner}, but names {item}")
            return None
        return item

    def _presume(self, event: JsonObject, rule: Rule, index: int | None, name: str | None) -> Item | None:
        found = f"{event['type']} has the output_index {show(event.get('output_index'))}"
        if index is None:
            self._report("output-index-invalid", f"{found} and names no item")
            return None
        item = self._add_item(index, rule.owner, State.PRESUMED)
        if index == self._next_index:
            self._next_index += 1
        item.id = name or None
        if item.id:
            self._by_id.setdefault(item.id, item)
        item.report(ITEM[State.ABSENT, rule.kind] or "", f"{found}, where no item was announced")
        return item

    def _check_index(self, event: JsonObject, item: Item, index: int | None) -> None:
        found = f"{event['type']} has the output_index {show(event.get('output_index'))}"
        if index is None:
            item.report("output-index-invalid", f"{found}, but names {item}")
        elif item.index is None and index not in self._at:  # announced without one, which was reported
            item.index = index
            self._at[index] = item
        elif self._at.get(index) is not item:
            item.report("output-index-wrong", f"{found}, but names {item}")

    def _is_item(self, body: object, where: str) -> TypeGuard[JsonObject]:
        if isinstance(body, Mapping) and string_or_none(body.get("type")):
            return True
        self._report("item-malformed", f"{where} has an item that is {show(body)}, not an object with a type")
        return False


_ACTS: Final[Mapping[Kind, Callable[[Checker, JsonObject, Rule], None]]] = {
    Kind.CREATED: Checker._on_lifecycle,
    Kind.LIFECYCLE: Checker._on_lifecycle,
    Kind.TERMINAL: Checker._on_terminal,
    Kind.FAILED: Checker._on_terminal,
    Kind.ITEM_ADDED: Checker._on_item_added,
    Kind.ITEM_DONE: Checker._on_item_done,
    Kind.PROGRESS: Checker._on_progress,
    Kind.PART_ADDED: Checker._on_part,
    Kind.DELTA: Checker._on_part,
    Kind.TEXT_DONE: Checker._on_part,
    Kind.ARGUMENTS_DONE: Checker._on_part,
    Kind.PART_DONE: Checker._on_part,
    Kind.NOTE: Checker._on_part,
}
