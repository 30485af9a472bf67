"""Events mode: the server's events in, what they mean told to the writer.

Every event speaks of an item: :mod:`harmony_client.resolve` says of which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from harmony_client.grammar import ABSENT, CLOSED, FINISHED, ITEM_KINDS, OPEN, PARTS, ItemKind, PartKind
from harmony_client.items import clean_name
from harmony_client.output import Item, Part, kind_of, listed_texts, string
from harmony_client.report import Dropped, Report
from harmony_client.resolve import Resolver
from harmony_client.verify import settle_item
from harmony_client.writer import Writer

__all__ = ["Deltas", "EventReader", "speaks_of_an_item"]

Deltas = Literal["auto", "live", "hold"]

#: Event types of other dialects, and their standard names.
ALIASES: Final = {
    "response.reasoning_part.added": "response.content_part.added",
    "response.reasoning_part.done": "response.content_part.done",
    "response.reasoning.delta": "response.reasoning_text.delta",
    "response.reasoning.done": "response.reasoning_text.done",
    "response.reasoning_summary.delta": "response.reasoning_summary_text.delta",
    "response.reasoning_summary.done": "response.reasoning_summary_text.done",
}

_DELTAS = {kind.delta: kind for kind in PARTS.values()}
_DONES = {kind.done: kind for kind in PARTS.values()}
#: The item kind that a part kind belongs to.
_OWNERS = {part.type: kind for kind in ITEM_KINDS.values() for part in kind.parts}
#: Event families of kinds without a grammar: ``response.<family>.<what>``.
_FAMILIES = {
    "custom_tool_call_input": "custom_tool_call",
    "web_search_call": "web_search_call",
    "file_search_call": "file_search_call",
    "code_interpreter_call": "code_interpreter_call",
    "code_interpreter_call_code": "code_interpreter_call",
    "image_generation_call": "image_generation_call",
    "mcp_call": "mcp_call",
    "mcp_call_arguments": "mcp_call",
    "mcp_list_tools": "mcp_list_tools",
}


def _family(name: str) -> str:
    """``mcp_call`` of ``response.mcp_call.completed``."""
    words = name.split(".")
    return words[1] if len(words) > 1 else ""


def speaks_of_an_item(name: str, event: Mapping[str, Any]) -> bool:
    """Whether an event is about an output item rather than the response, or of a vendor's own."""
    if name in _DELTAS or name in _DONES or name in _HANDLERS or name in ALIASES or _family(name) in _FAMILIES:
        return True
    return name.startswith("response.") and ("item_id" in event or "output_index" in event)


class EventReader:
    """Reads one response's events.

    Attributes:
        items: The items, by what the server calls them.
    """

    def __init__(self, writer: Writer, report: Report, deltas: Deltas) -> None:
        self.items = Resolver(report)
        self._writer = writer
        self._report = report
        self._auto = deltas == "auto"
        self._hold = deltas == "hold"
        self._repeats_deltas = False  # TensorRT-LLM sends the last delta again for an empty batch: wait for what follows

    def receive(self, event: dict[str, Any]) -> None:
        """Read one event that :func:`speaks_of_an_item`."""
        name = event.get("type")
        if name in ALIASES:
            self._report.note("event-renamed", None, "")
            name = ALIASES[name]
            event = {**event, "type": name}
        part_kind = _DELTAS.get(name)  # type: ignore[arg-type]
        if part_kind is not None:
            self._delta(event, part_kind)
            return
        part_kind = _DONES.get(name)  # type: ignore[arg-type]
        if part_kind is not None:
            self._text_done(event, part_kind)
            return
        handler = _HANDLERS.get(name)  # type: ignore[arg-type]
        if handler is not None:
            handler(self, event)
        else:
            self._other(event)

    # --- which item -------------------------------------------------------------------------------

    def _begin(self, kind: ItemKind, data: Mapping[str, Any], event: dict[str, Any] | None = None, item_id: Any = None) -> Item:
        """Open an item."""
        if not data.get("id") and isinstance(item_id, str):
            data = {**data, "id": item_id}
        name = data.get("name")
        if "name" in kind.required and isinstance(name, str) and name != clean_name(name):
            data = {**data, "name": clean_name(name)}
        ready = kind.name != "function_call" or bool(data.get("name"))
        item = self._writer.open(kind, data, event, announce=ready)
        self.items.opened(item)
        self.items.learn(item, data)
        return item

    # --- items ------------------------------------------------------------------------------------

    def _added(self, event: dict[str, Any]) -> None:
        data = event.get("item")
        if not isinstance(data, Mapping):
            self._report.note("event-malformed", None, "")
            return
        kind = kind_of(data)
        index = event.get("output_index")
        item = self.items.announced_before(kind, data, index)
        waiting = next((call for call in self._writer.pending if call.kind.name == kind.name), None) if item is None else None
        if item is not None:
            self._report.note("duplicate-dropped", item.index, "")
        elif waiting is not None and clean_name(string(data.get("name"))):  # its deltas came first
            item = waiting
            item.data, item.name = data, clean_name(string(data.get("name")))
            self._writer.announce(item, event)
            self.items.learn(item, data)
        else:
            if self._auto:
                self._decide(data)
            item = self._begin(kind, data, event)
            self._opening_text(item, data)
        if type(index) is int and not item.closed:
            self.items.bind(item, index)

    def _decide(self, data: Mapping[str, Any]) -> None:
        """Hold deltas while every announced item has the id ``""``, as TensorRT-LLM's Harmony path sends it."""
        self._hold = self._repeats_deltas = data.get("id") == ""
        if not self._hold:
            self._go_live()

    def _go_live(self) -> None:
        self._auto = self._hold = False
        for item in list(self._writer.own_items()):
            for part in item.parts.values():
                if part not in self.items.native[item].openers:
                    self._writer.release(item, part)

    def _opening_text(self, item: Item, data: Mapping[str, Any]) -> None:
        """Text that came inside the announcement."""
        if item.kind.name == "function_call" and isinstance(data.get("arguments"), str):
            self._opener(item, item.parts["arguments", 0], data["arguments"])
        elif not item.kind.opaque:
            for kind, number, text in listed_texts(item.kind, data):
                self._opener(item, item.part(kind, number), text)

    def _opener(self, item: Item, part: Part, text: str) -> None:
        """Text inside an announcement: servers repeat it in the first delta, or do not. Wait and see."""
        if text:
            self._writer.hold(part, text)
            self.items.native[item].openers.add(part)

    def _item_done(self, event: dict[str, Any]) -> None:
        data = event.get("item")
        if not isinstance(data, Mapping):
            self._report.note("event-malformed", None, "")
            return
        kind = kind_of(data)
        item = self.items.resolve(event, kind, data) or self.items.mistyped(data)
        if item is None or item.closed:
            if item is not None or self.items.repeats(kind, data):
                self._report.note("duplicate-dropped", None if item is None else item.index, "")
                return
            item = self._begin(kind, data)
            index = event.get("output_index")
            item.native_index = index if type(index) is int else None
        if item.kind.name != kind.name:
            self._report.note("kind-kept", item.index, "")
            event, data = {**event, "item": {}}, {"status": data.get("status")}
        if settle_item(self._writer, item, data) and self._auto:
            self._go_live()
        given = data.get("status")
        status = given if isinstance(given, str) and (item.kind.opaque or given == "incomplete") and given else "completed"
        self._writer.close(item, status, event, {**item.data, **data})
        self.items.learn(item, data)
        self.items.ended(item)

    # --- parts ------------------------------------------------------------------------------------

    def _part_of(
        self, item: Item, kind: PartKind, event: Mapping[str, Any], *, announced: bool = False, whole: object = None
    ) -> Part | None:
        """The part of an item that an event speaks of; ``None``: one that is closed already.

        Args:
            item: The item.
            kind: The kind of part the event is about.
            event: The event.
            announced: Whether it announces the part.
            whole: The part's whole text, if the event gives it: a closed part with this text is meant.
        """
        if item.closed:
            return None
        if item.kind.opaque or kind.family == "arguments":
            return item.parts.get((kind.family, 0))
        if kind not in item.kind.parts:
            kind = item.kind.parts[0]
        native = self.items.native[item]
        number = event.get(kind.index) if kind.index else None
        key = (kind.family, number if type(number) is int else None)
        part = native.parts.get(key)
        if part is not None and part.state != CLOSED:
            return part
        if part is not None and announced:  # not a repeat of an event: those were dropped before
            native.reopened.add(key)
            return None
        siblings = item.family(kind.family)
        newest = siblings[-1] if siblings else None
        known = part is not None or (newest is not None and key[1] is None)
        if newest is not None and (
            newest.state == ABSENT or (not announced and newest.state == OPEN) or (known and newest.state == FINISHED)
        ):
            if announced:
                native.parts[key] = newest
            return newest
        if known and key not in native.reopened:
            return None
        native.reopened.discard(key)
        if whole and any(sibling.streamed == whole for sibling in siblings):
            return None
        part = item.part(kind, len(siblings))
        native.parts[key] = part
        return part

    def _owner(self, event: dict[str, Any], kind: PartKind) -> Item:
        """The item a delta or text done event belongs to; opened if there is none."""
        owner = _OWNERS[kind.type]
        item = self.items.resolve(event, owner, {}, kind.type)
        if item is None:
            value = event.get("item_id")
            usable = isinstance(value, str) and value not in self.items.known
            item = self._begin(owner, dict(owner.required), item_id=value if usable else None)
        return item

    def _give(self, item: Item, part: Part, text: str, template: dict[str, Any]) -> None:
        if part.held and part in self.items.native[item].openers:
            self.items.native[item].openers.discard(part)
            if part.held == [text]:
                part.held.clear()
        again = self._repeats_deltas and not part.held and part.chunks[-1:] == [text]
        if self._hold or again:
            self._writer.hold(part, text)
        else:
            self._writer.release(item, part)
            self._writer.text(item, part, text, template)

    def _delta(self, event: dict[str, Any], kind: PartKind) -> None:
        text = event.get("delta")
        if not isinstance(text, str):
            self._report.note("null-delta-dropped", None, "")
            return
        if self._auto and kind.family == "arguments":
            self._go_live()
        item = self._owner(event, kind)
        part = self._part_of(item, kind, event)
        if part is None or part.state in (FINISHED, CLOSED):
            self._report.note("late-text-dropped", item.index, "")
            self._report.dropped.append(Dropped(text, "late"))
        else:
            self._give(item, part, text, event)

    def _text_done(self, event: dict[str, Any], kind: PartKind) -> None:
        whole = event.get(kind.text_field)
        owner = _OWNERS[kind.type]
        item = self.items.resolve(event, owner, {}, kind.type, whole=True)
        if item is None and isinstance(whole, str) and self.items.has_finished(owner, whole):
            self._report.note("duplicate-dropped", None, "")
            return
        item = item or self._owner(event, kind)
        part = self._part_of(item, kind, event, whole=whole)
        if part is None or part.state in (FINISHED, CLOSED):
            self._report.note("duplicate-dropped", item.index, "")
            return
        if kind.family == "arguments" and not item.name and isinstance(event.get("name"), str):
            item.name = clean_name(event["name"])
        if item.index is None and item.name:
            self._writer.announce(item)
        if isinstance(whole, str) and self._writer.settle(item, part, whole) and self._auto:
            self._go_live()
        self._writer.finish(item, part, event)

    def _part_event(self, event: dict[str, Any]) -> None:
        """content_part.added/done and reasoning_summary_part.added/done."""
        added = str(event.get("type")).endswith(".added")
        kind = self._kind_of_part(event)
        item = self._part_owner(event, kind, added) if kind is not None else None
        if kind is None and self.items.named(event) is not None:
            self._other(event)
            return
        if kind is None or item is None:
            self._report.note("duplicate-dropped" if kind is not None else "event-malformed")
            return
        if kind not in item.kind.parts and not item.kind.opaque and not item.closed:
            self.items.native[item].adopted.add(kind.type)
            kind = item.kind.parts[0]
        given = event.get("part")
        text = given.get(kind.text_field, given.get("text")) if isinstance(given, Mapping) else None
        part = self._part_of(item, kind, event, announced=added, whole=None if added else text)
        if part is None:
            self._report.note("duplicate-dropped", item.index, "")
            return
        if added:
            self._writer.start(item, part, event)
            if isinstance(text, str) and text:
                self._report.note("opener-emptied", item.index, "")
                self._opener(item, part, text)
            return
        if isinstance(text, str) and self._writer.settle(item, part, text) and self._auto:
            self._go_live()
        self._writer.close_part(item, part, event)

    def _kind_of_part(self, event: Mapping[str, Any]) -> PartKind | None:
        """The kind of part that a part event is about; ``None``: it cannot be told."""
        if str(event.get("type")).startswith("response.reasoning_summary_part"):
            return PARTS["summary_text"]
        given = event.get("part")
        name = given.get("type") if isinstance(given, Mapping) else None
        if isinstance(name, str) and name in PARTS:
            return PARTS[name]
        return self._likely_kind(event)

    def _likely_kind(self, event: Mapping[str, Any]) -> PartKind | None:
        """The kind of a part whose event does not say it: by its item, and its index there."""
        item = self.items.named(event)
        if item is None or item.kind.opaque or item.closed:
            return None
        number = event.get("content_index")
        part = self.items.native[item].parts.get(("content", number if type(number) is int else None))
        return part.kind if part is not None else item.kind.parts[0]

    def _part_owner(self, event: dict[str, Any], kind: PartKind, added: bool) -> Item | None:
        """The item of a part event: of whatever kind the ids and index say, else of the fitting one."""
        item = self.items.named(event)
        if item is not None and item.closed:
            item = None
        textual = item is not None and item.kind.parts and item.kind.name != "function_call"
        if textual and item is not None and (kind in item.kind.parts or added or kind.type in self.items.native[item].adopted):
            return item
        owner = _OWNERS[kind.type]
        item = self.items.resolve(event, owner, {}, kind.type)
        if item is None and added:
            return self._owner(event, kind)
        return item

    # --- everything else --------------------------------------------------------------------------

    def _other(self, event: dict[str, Any]) -> None:
        """An event without a grammar: only index and ids are mended."""
        family = _family(str(event.get("type")))
        kind = ITEM_KINDS[_FAMILIES[family]] if family in _FAMILIES else None
        item = self.items.resolve(event, kind, {}) if kind is not None else self.items.named(event)
        if item is None and kind is not None:
            item = self._begin(kind, {}, item_id=event.get("item_id"))
        if item is not None and item.closed:
            self._report.note("duplicate-dropped", item.index, "")
        else:
            self._writer.put_plain(event, item)

    def _annotation(self, event: dict[str, Any]) -> None:
        kind = PARTS["output_text"]
        item = self._owner(event, kind)
        part = self._part_of(item, kind, event)
        if part is None:
            self._report.note("late-text-dropped", item.index, "")
        else:
            self._writer.start(item, part)
            self._writer.put_plain(event, item, part)


_HANDLERS: Final[dict[str, Callable[[EventReader, dict[str, Any]], None]]] = {
    "response.output_item.added": EventReader._added,
    "response.output_item.done": EventReader._item_done,
    "response.content_part.added": EventReader._part_event,
    "response.content_part.done": EventReader._part_event,
    "response.reasoning_summary_part.added": EventReader._part_event,
    "response.reasoning_summary_part.done": EventReader._part_event,
    "response.output_text.annotation.added": EventReader._annotation,
}
