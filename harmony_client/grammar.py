"""The grammar of a Responses stream, as data: item kinds, content parts, and their transitions.

A part goes through four states; :data:`PART_GRAMMAR` says, for every state and verb, which events
come out and which state follows. Nothing else in the package decides whether an event may be sent.
Sources: the Responses API's event types; Open Responses rules 3 to 6 (an item is announced before
anything else is said about it, text lives in an announced part, nothing follows its done event).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["ABSENT", "CLOSED", "FINISHED", "ITEM_KINDS", "OPEN", "PARTS", "PART_GRAMMAR", "ItemKind", "PartKind", "item_kind", "part_kind"]


@dataclass(frozen=True, slots=True, eq=False)
class PartKind:
    """One kind of streamed text inside an item.

    Attributes:
        family: ``content``, ``summary``, or ``arguments`` (a text field of the item itself).
        type: The part's ``type``; for ``arguments`` the name of the item's field.
        delta: Type of the delta event.
        done: Type of the event that repeats the whole text.
        text_field: Name of the text in the done event and in the part.
        index: Name of the part's index field in events, or ``None``.
        added: Type of the event that announces the part, or ``None``.
        closed: Type of the event that closes the part, or ``None``.
        extra: Fields a new part of this kind gets besides type and text.
        event_extra: Fields its delta and done events must have besides the text.
        required: Those of ``extra`` that the SDK's type requires to be a list.
    """

    family: str
    type: str
    delta: str
    done: str
    text_field: str
    index: str | None
    added: str | None
    closed: str | None
    extra: Mapping[str, Any] = field(default_factory=dict)
    event_extra: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    def part(self, text: str) -> dict[str, Any]:
        """A part of this kind as it stands in events and items."""
        return {"type": self.type, self.text_field: text, **{name: list(value) for name, value in self.extra.items()}}


def _content(type_: str, stem: str, name: str, extra: Mapping[str, Any], event_extra: Mapping[str, Any]) -> PartKind:
    added, closed = "response.content_part.added", "response.content_part.done"
    required = ("annotations",) if "annotations" in extra else ()
    return PartKind("content", type_, f"{stem}.delta", f"{stem}.done", name, "content_index", added, closed, extra, event_extra, required)


OUTPUT_TEXT = _content("output_text", "response.output_text", "text", {"annotations": [], "logprobs": []}, {"logprobs": []})
REFUSAL = _content("refusal", "response.refusal", "refusal", {}, {})
REASONING_TEXT = _content("reasoning_text", "response.reasoning_text", "text", {}, {})
SUMMARY_TEXT = PartKind(
    "summary",
    "summary_text",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "text",
    "summary_index",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
)
ARGUMENTS = PartKind(
    "arguments",
    "arguments",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "arguments",
    None,
    None,
    None,
)

#: Part kinds by their ``type``.
PARTS: Final = {kind.type: kind for kind in (OUTPUT_TEXT, REFUSAL, REASONING_TEXT, SUMMARY_TEXT, ARGUMENTS)}


@dataclass(frozen=True, slots=True, eq=False)
class ItemKind:
    """One kind of output item.

    Attributes:
        name: The item's ``type``.
        prefix: Prefix of ids made for it.
        parts: The part kinds it may hold; the first is the usual one. Empty: an opaque kind, whose
            events pass with only index and ids mended.
        required: Fields the API requires of an item of this kind that was just announced.
    """

    name: str
    prefix: str
    parts: tuple[PartKind, ...] = ()
    required: Mapping[str, Any] = field(default_factory=dict)

    @property
    def opaque(self) -> bool:
        """Whether the kind has no grammar here."""
        return not self.parts


_NAMED = {"name": "", "arguments": "", "status": "in_progress"}

#: Item kinds by their ``type``. An unknown type is opaque, see :func:`item_kind`.
ITEM_KINDS: Final = {
    kind.name: kind
    for kind in (
        ItemKind("message", "msg", (OUTPUT_TEXT, REFUSAL), {"role": "assistant", "content": [], "status": "in_progress"}),
        ItemKind("reasoning", "rs", (REASONING_TEXT, SUMMARY_TEXT), {"summary": []}),
        ItemKind("function_call", "fc", (ARGUMENTS,), {"call_id": "", **_NAMED}),
        ItemKind("custom_tool_call", "ctc", (), {"call_id": "", "name": "", "input": ""}),
        ItemKind("web_search_call", "ws", (), {"status": "in_progress", "action": {"type": "search", "query": ""}}),
        ItemKind("file_search_call", "fs", (), {"status": "in_progress", "queries": []}),
        ItemKind("code_interpreter_call", "ci", (), {"status": "in_progress", "code": "", "container_id": "", "outputs": []}),
        ItemKind("image_generation_call", "ig", (), {"status": "in_progress", "result": None}),
        ItemKind("mcp_call", "mcp", (), {"server_label": "", **_NAMED}),
        ItemKind("mcp_list_tools", "mcpl", (), {"server_label": "", "tools": []}),
    )
}


def item_kind(name: str) -> ItemKind:
    """The kind of an item ``type``; one nobody knows is opaque."""
    return ITEM_KINDS.get(name) or ItemKind(name, "item")


def part_kind(part: Any, owner: ItemKind) -> PartKind | None:
    """The kind of a part object of the server's.

    Args:
        part: The object.
        owner: The kind of its item: a part whose type does not fit is of its usual kind if it has text.

    Returns:
        The kind, or ``None``: the part has no grammar here.
    """
    if not isinstance(part, Mapping) or not owner.parts:
        return None
    name = part.get("type")
    kind = PARTS.get(name) if isinstance(name, str) else None
    if kind in owner.parts:
        return kind
    return owner.parts[0] if isinstance(part.get("text"), str) else None


ABSENT, OPEN, FINISHED, CLOSED = "absent", "open", "finished", "closed"

#: (state of the part, verb) -> (events to send, next state). Total: a test visits every cell.
#: ``announce``: the part exists. ``text``: some of its text. ``finish``: its whole text is known.
#: ``close``: nothing more of it. After ``finish`` text is ignored, as the done event has been sent.
PART_GRAMMAR: Final[dict[tuple[str, str], tuple[tuple[str, ...], str]]] = {
    (ABSENT, "announce"): (("added",), OPEN),
    (ABSENT, "text"): (("added", "delta"), OPEN),
    (ABSENT, "finish"): (("added", "done"), FINISHED),
    (ABSENT, "close"): (("added", "done", "closed"), CLOSED),
    (OPEN, "announce"): ((), OPEN),
    (OPEN, "text"): (("delta",), OPEN),
    (OPEN, "finish"): (("done",), FINISHED),
    (OPEN, "close"): (("done", "closed"), CLOSED),
    (FINISHED, "announce"): ((), FINISHED),
    (FINISHED, "text"): ((), FINISHED),
    (FINISHED, "finish"): ((), FINISHED),
    (FINISHED, "close"): (("closed",), CLOSED),
    (CLOSED, "announce"): ((), CLOSED),
    (CLOSED, "text"): ((), CLOSED),
    (CLOSED, "finish"): ((), CLOSED),
    (CLOSED, "close"): ((), CLOSED),
}
