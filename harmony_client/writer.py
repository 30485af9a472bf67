"""The one writer of a response stream: it is told facts and emits whatever makes them true.

Callers open items, give text, settle whole texts and close items, in any order and as often as they
like; what comes out is well-formed whatever they say (:mod:`harmony_client.grammar`). An event of
the server may be given as ``template``: the event sent keeps its fields, and is the very same object
if nothing had to change. What had to change, or to be added, is noted in the report.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harmony_client.errors import LimitError
from harmony_client.grammar import ABSENT, CLOSED, FINISHED, PART_GRAMMAR, ItemKind
from harmony_client.output import MAX_ITEMS, Item, Part, merged, opening, string, view

__all__ = ["Writer"]

#: Fields of an event or item whose change has a repair code of its own.
_FIELD_CODES = {
    "output_index": "index-rewritten",
    "content_index": "part-index-rewritten",
    "summary_index": "part-index-rewritten",
    "item_id": "id-rewritten",
    "id": "id-rewritten",
    "call_id": "call-id-rewritten",
    "name": "name-cleaned",
    "status": "status-fixed",
    "sequence_number": "sequence-rewritten",
    "type": "event-renamed",
    "part": "part-type-fixed",
}
#: Changes that the caller has noted itself, or that follow from one it has noted.
_SILENT = {"text", "arguments", "refusal", "delta", "content", "summary", "response"}
_MISSING = object()


class Writer:
    """Emits the events of one response.

    Attributes:
        out: Events not yet taken.
        items: The announced items, in order.
        pending: Items that cannot be announced yet (a call whose name is unknown).
        last_sequence: The last sequence_number sent.
        response_id: The response's id; ids that have to be made derive from it.
        noting: Whether inserted events are repairs. In tokens mode every event is ours.
        structured: Whether the reader parses whole texts as JSON, and must not get one that was cut.
    """

    def __init__(self, note: Callable[[str, int | None, str], None]) -> None:
        self._note = note
        self.out: list[dict[str, Any]] = []
        self.items: list[Item] = []
        self.pending: list[Item] = []
        self.ids: set[str] = set()
        self.last_sequence = -1
        self._last_given = -1  # the server's own last number
        self.response_id = ""
        self.noting = True
        self.structured = False

    # --- items ------------------------------------------------------------------------------------

    def open(self, kind: ItemKind, data: Mapping[str, Any], template: Mapping[str, Any] | None = None, *, announce: bool = True) -> Item:
        """Open an item and announce it.

        Args:
            kind: Its kind.
            data: What is known of it, as the API's item object; id and call_id are kept if they can be.
            template: The server's ``output_item.added``, if there was one.
            announce: False: not yet, since something it must carry is unknown.

        Raises:
            LimitError: The response has :data:`MAX_ITEMS` items.
        """
        if len(self.items) + len(self.pending) >= MAX_ITEMS:
            raise LimitError(f"the response has more than {MAX_ITEMS} items", code="too-many-items")
        item = Item(kind, data)
        for part_kind in kind.parts:
            if part_kind.family == "arguments":
                item.part(part_kind)
        self.pending.append(item)
        if announce:
            self.announce(item, template)
        return item

    def announce(self, item: Item, template: Mapping[str, Any] | None = None) -> None:
        """Send an item's ``output_item.added``, once."""
        if item.index is not None:
            return
        self.pending.remove(item)
        item.index = len(self.items)
        self.items.append(item)
        item.id = self._own_id(item.kind.prefix, item.data.get("id"), item.index)
        if "call_id" in item.kind.required or "call_id" in item.data:
            item.call_id = self._own_id("call", item.data.get("call_id"), item.index)
        item.name = item.name or string(item.data.get("name"))
        fields = {"type": "response.output_item.added", "output_index": item.index, "item": opening(item)}
        self._put(fields, template, "added", item)
        for part in item.parts.values():
            self.release(item, part)

    def text(self, item: Item, part: Part, text: str, template: Mapping[str, Any] | None = None, *, own: bool = False) -> None:
        """Send text as one delta; nothing if it is empty, or the part finished.

        Args:
            item: The item.
            part: Its part.
            text: Some of its text.
            template: The server's delta event for it.
            own: Without a template: the server did stream this text, so that it is no repair.
        """
        if not text:
            return
        if item.index is None:
            part.held.append(text)
            return
        actions, state = PART_GRAMMAR[part.state, "text"]
        if not actions:
            self._note("late-text-dropped", item.index, "")
            return
        if len(actions) > 1:
            self.start(item, part)
        part.state = state
        part.chunks.append(text)
        if template is None:
            if self.noting and not own:
                self._note("delta-inserted", item.index, "")
            self.last_sequence = number = self.last_sequence + 1
            self.out.append({**part.base, "delta": text, "sequence_number": number})
        else:
            self._put({**part.base, "delta": text}, template, "delta", item, part.kind.event_extra)

    def hold(self, part: Part, text: str) -> None:
        """Keep a delta back until the part is settled or released."""
        if text:
            part.held.append(text)

    def release(self, item: Item, part: Part) -> None:
        """Send what was held back, as one delta."""
        if part.held and item.index is not None:
            held, part.held = "".join(part.held), []
            self.text(item, part, held, own=True)

    def settle(self, item: Item, part: Part, whole: str) -> bool:
        """Make the part's whole text known.

        What is missing of it is sent; what was held is replaced by it. Text already handed out is
        never taken back: where it contradicts ``whole``, the done event carries ``whole``.

        Returns:
            Whether held deltas in several pieces proved equal to ``whole``.
        """
        if part.state in (FINISHED, CLOSED):
            return False
        if part.held:
            return self._settle_held(item, part, whole)
        streamed = part.streamed
        if whole == streamed:
            return False
        if whole.startswith(streamed):
            self.text(item, part, whole[len(streamed) :])
        elif streamed.startswith(whole):
            self._note("done-text-short", item.index, "")
        else:
            part.whole = whole
            self._note("text-replaced", item.index, "")
        return False

    def start(self, item: Item, part: Part, template: Mapping[str, Any] | None = None) -> None:
        """Announce a content part."""
        self._part(item, part, "announce", template)

    def finish(self, item: Item, part: Part, template: Mapping[str, Any] | None = None) -> None:
        """Send the part's text done event."""
        self.release(item, part)
        self._part(item, part, "finish", template)

    def close_part(self, item: Item, part: Part, template: Mapping[str, Any] | None = None) -> None:
        """Close a content part, whatever of it is still missing."""
        self.release(item, part)
        self._part(item, part, "close", template)

    def close(self, item: Item, status: str, template: Mapping[str, Any] | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Close an item: its held text, its parts, then itself.

        Args:
            item: The item; nothing happens if it is closed.
            status: ``completed``, ``incomplete``, or what an opaque item says of itself.
            template: The server's ``output_item.done``, if this is the occasion.
            data: The server's last word on the item, as an item object.
        """
        if item.closed:
            return
        self.announce(item)
        item.cut = status == "incomplete"
        for part in item.parts.values():
            self.close_part(item, part)
        item.closed = True
        item.status = status
        if data is not None:
            item.data = data
        fields = {"type": "response.output_item.done", "output_index": item.index, "item": view(item)}
        self._put(fields, template, "done", item)

    def put_plain(self, event: dict[str, Any], item: Item | None = None, part: Part | None = None) -> None:
        """Send an event that has no grammar here: only indexes, ids and number are mended.

        Args:
            event: The server's event.
            item: The item it speaks of.
            part: The item's part it speaks of.
        """
        fields: dict[str, Any] = {"type": event.get("type")}
        if item is not None:
            fields |= {"output_index": item.index, "item_id": item.id}
        if part is not None and part.kind.index is not None:
            fields[part.kind.index] = part.index
        if "sequence_number" in event or item is not None:
            self._put(fields, event, "event", item)
        else:
            same = not any(_differs(event.get(name, _MISSING), value) for name, value in fields.items())
            self.out.append(event if same else {**event, **fields})

    def put_response(self, fields: dict[str, Any], template: Mapping[str, Any] | None, code: str) -> None:
        """Send an event about the response as a whole."""
        self._put(fields, template, code, None)

    def own_items(self) -> Iterator[Item]:
        """Every item that is not closed: the announced ones, then the pending ones."""
        yield from (item for item in self.items if not item.closed)
        yield from list(self.pending)

    @property
    def all_closed(self) -> bool:
        """Whether there are items and every one of them is closed."""
        return bool(self.items) and not self.pending and all(item.closed for item in self.items)

    # --- inside -----------------------------------------------------------------------------------

    def _settle_held(self, item: Item, part: Part, whole: str) -> bool:
        streamed, held = part.streamed, "".join(part.held)
        proved = len(part.held) > 1 and streamed + held == whole
        if not whole or not whole.startswith(streamed):
            self.release(item, part)
            self.settle(item, part, whole)
            return False
        part.held = []
        if item.index is None:  # not announced yet: keep what is known now to be right
            part.held = [whole]
        elif whole.startswith(streamed + held):
            self.text(item, part, held, own=True)
            self.text(item, part, whole[len(streamed) + len(held) :])
        else:
            self._note("deltas-replaced", item.index, "")
            self.text(item, part, whole[len(streamed) :], own=True)
        return proved

    def _part(self, item: Item, part: Part, verb: str, template: Mapping[str, Any] | None) -> None:
        if item.index is None:
            return
        actions, state = PART_GRAMMAR[part.state, verb]
        if not part.base:
            part.base = {"type": part.kind.delta, "item_id": item.id, "output_index": item.index, **part.kind.event_extra}
            if part.kind.index:
                part.base[part.kind.index] = part.index
        part.state = state
        for position, action in enumerate(actions):
            getattr(self, f"_send_{action}")(item, part, template if position == len(actions) - 1 else None)

    def _send_added(self, item: Item, part: Part, template: Mapping[str, Any] | None) -> None:
        if part.kind.added is not None:
            for sibling in item.family(part.kind.family):
                if sibling.index < part.index and sibling.state == ABSENT:  # no gaps in the index
                    self._part(item, sibling, "announce", None)
            fields = {**part.base, "type": part.kind.added, "part": part.kind.part("")}
            self._put_part(fields, template, "part-added", item, part)

    def _send_done(self, item: Item, part: Part, template: Mapping[str, Any] | None) -> None:
        if self.structured and item.cut and template is None and part.kind.type == "output_text" and not _is_json(part.text):
            self._note("text-done-withheld", item.index, "")
            return
        fields = {**part.base, "type": part.kind.done, part.kind.text_field: part.text}
        if part.kind.family == "arguments":
            fields["name"] = item.name
        self._put(fields, template, "text-done", item, part.kind.event_extra)

    def _send_closed(self, item: Item, part: Part, template: Mapping[str, Any] | None) -> None:
        if part.kind.closed is not None:
            fields = {**part.base, "type": part.kind.closed, "part": part.kind.part(part.text)}
            self._put_part(fields, template, "part-done", item, part)

    def _put_part(self, fields: dict[str, Any], template: Mapping[str, Any] | None, code: str, item: Item, part: Part) -> None:
        for name in part.kind.event_extra:
            del fields[name]
        if template is not None:
            fields["part"] = merged(fields["part"], template.get("part"), part.kind)
        self._put(fields, template, code, item)

    def _own_id(self, prefix: str, given: Any, index: int) -> str:
        if isinstance(given, str) and given and given not in self.ids:
            self.ids.add(given)
            return given
        digest = hashlib.sha256(f"{self.response_id}/{prefix}/{index}".encode("utf-8", "replace")).hexdigest()
        minted = f"{prefix}_{digest[:32]}"
        self.ids.add(minted)
        return minted

    def _put(
        self,
        fields: dict[str, Any],
        template: Mapping[str, Any] | None,
        code: str,
        item: Item | None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """Send one event: ``fields`` win over the template's, ``defaults`` only fill in."""
        index = None if item is None else item.index
        given: Any = None if template is None else template.get("sequence_number")
        number = self.last_sequence + 1
        if type(given) is int and given > number:
            number = given
        self.last_sequence = number
        fields["sequence_number"] = number
        if template is None:
            if self.noting:
                self._note(f"{code}-inserted", index, "")
            self.out.append(fields)
            return
        for name in defaults or ():
            if template.get(name) is not None:
                fields[name] = template[name]
        sound = type(given) is int and given > self._last_given
        if sound:
            self._last_given = given
        changed = [name for name, value in fields.items() if _differs(template.get(name, _MISSING), value)]
        if not changed and type(template) is dict:
            self.out.append(template)
            return
        for name in changed:
            if name != "sequence_number" or not sound:  # the server's own count may be right, and ours is ahead
                self._note_change(name, template.get(name, _MISSING), fields[name], index)
        self.out.append({**template, **fields})

    def _note_change(self, name: str, old: Any, new: Any, index: int | None) -> None:
        if name == "item" and isinstance(old, Mapping):
            for key, value in new.items():
                if old.get(key, _MISSING) != value:
                    self._note_change("opener" if key in _SILENT and not value else key, old.get(key, _MISSING), value, index)
        elif name == "opener":
            self._note("opener-emptied" if old not in (None, _MISSING) else "field-filled", index, "")
        elif name == "part" and isinstance(old, Mapping) and old.get("type") == new.get("type"):
            self._note("field-filled", index, "")
        elif name not in _SILENT:
            code = _FIELD_CODES.get(name, "field-filled")
            if name == "name" and not (isinstance(old, str) and "<|" in old):
                code = "name-rewritten" if isinstance(old, str) and old else "field-filled"
            detail = f"{old!r} -> {new!r}" if name in ("output_index", "item_id", "id", "call_id") and old is not _MISSING else ""
            self._note(code, index, detail[:200])


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _differs(given: Any, value: Any) -> bool:
    """Whether a field must be set; 1.0 and true are no index."""
    return given != value or (type(given) is not type(value) and isinstance(value, int))
