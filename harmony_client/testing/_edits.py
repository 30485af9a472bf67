"""Edits of a draft: generic ones, and what single servers do to their streams."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from harmony_client.testing._draft import Draft, Event, Role, Sent
from harmony_client.vocabulary import STOP_TOKENS

Edit = Callable[[Draft], None]

_CALLS: Final = ("function_call", "web_search_call")
_CLOSING: Final[tuple[Role, ...]] = ("text-done", "part-done", "done")


# --- generic ----------------------------------------------------------------------------------------


def drop(role: Role, kind: str | None = None, *, every: bool = False) -> Edit:
    """Leave out the last event of a role, or every one."""

    def edit(draft: Draft) -> None:
        gone = [id(sent) for sent in draft.find(role, kind)[0 if every else -1 :]]
        draft.sent = [sent for sent in draft.sent if id(sent) not in gone]

    return edit


def change(role: Role, kind: str | None = None, *, how: Callable[[Event], object]) -> Edit:
    """Change the last event of a role."""

    def edit(draft: Draft) -> None:
        for sent in draft.find(role, kind)[-1:]:
            how(sent.event)

    return edit


def put(role: Role, kind: str | None = None, **fields: Any) -> Edit:
    """Set fields of the last event of a role."""
    return change(role, kind, how=lambda event: event.update(fields))


def take(field: str, role: Role, kind: str | None = None) -> Edit:
    """Take a field away from the last event of a role."""
    return change(role, kind, how=lambda event: event.pop(field, None))


def repeat(role: Role, kind: str | None = None, *, behind: Role | None = None) -> Edit:
    """Send the last event of a role again: at once, or behind the last event of another role."""

    def edit(draft: Draft) -> None:
        for sent in draft.find(role, kind)[-1:]:
            _insert(
                draft, Sent(sent.token, copy.deepcopy(sent.event), sent.item, sent.role), (draft.find(behind) if behind else [sent])[-1:]
            )

    return edit


def listing(how: Callable[[list[Event]], object]) -> Edit:
    """Change the items that the terminal response lists."""

    def edit(draft: Draft) -> None:
        for sent in draft.find("terminal"):
            how(sent.event["response"]["output"])

    return edit


def _insert(draft: Draft, new: Sent, behind: list[Sent]) -> None:
    for other in behind:
        new.token = other.token
        draft.sent.insert(next(at for at, sent in enumerate(draft.sent, 1) if sent is other), new)


# --- TensorRT-LLM -----------------------------------------------------------------------------------


def hide_tools(draft: Draft) -> None:
    """Stream nothing of a tool call."""
    draft.sent = [sent for sent in draft.sent if draft.kind(sent) not in _CALLS]


def lose_deltas(draft: Draft) -> None:
    """Look only at the parser's state after each batch (issue 22109): what the tokens before the last one said is not seen."""
    kept = [sent for sent in draft.sent if sent.token < 0]
    index, announced = 0, False  # the server counts the messages whose end it sees, and announces an item with the first delta it sees
    for batch in filter(None, draft.batches):
        at, ends = batch[-1], draft.token_ids[batch[-1]] in STOP_TOKENS
        made = [sent for sent in draft.sent if sent.token == at and sent.item is not None]
        roles = _CLOSING if ends else ("delta", *_CLOSING)
        seen = [sent for sent in made if sent.role in roles or draft.kind(sent) == "web_search_call"]
        if seen and not ends and not announced:
            opening = [sent for sent in draft.sent if sent.item == seen[0].item and sent.role in ("added", "part-added")]
            seen, announced = [*opening, *seen], True
        for sent in seen:
            sent.token, sent.event["output_index"] = at, index
        index, announced = index + ends, announced and not ends
        kept += seen
    draft.sent = kept + [sent for sent in draft.sent if sent.token >= len(draft.token_ids)]


def trim(only: frozenset[int]) -> Edit:
    """Trim the last token if it is one of these, and do not see that it ended a message."""

    def edit(draft: Draft) -> None:
        if draft.token_ids[-1:] and draft.token_ids[-1] in only:
            draft.stop_reason = draft.token_ids.pop()
            draft.sent = [sent for sent in draft.sent if sent.token != len(draft.token_ids)]

    return edit


def leave_cut_open(draft: Draft) -> None:
    """Do not close what the token limit cut."""
    if draft.finish_reason == "length":
        last = len(draft.token_ids) - 1
        draft.sent = [sent for sent in draft.sent if sent.token != last or sent.role not in _CLOSING]


def raise_done_index(draft: Draft) -> None:
    """Count the item before its done events are sent."""
    for sent in draft.sent:
        if sent.role in _CLOSING:
            sent.event["output_index"] += 1


def empty_ids(draft: Draft) -> None:
    """Send no item ids."""
    for sent in draft.sent:
        if sent.item is not None:
            target, name = (sent.event["item"], "id") if "item" in sent.event else (sent.event, "item_id")
            target[name] = ""


def fresh_ids(output: list[Event]) -> None:
    """Give the items of the terminal response ids of their own."""
    for item in output:
        prefix, _, rest = item["id"].partition("_")
        item["id"] = f"{prefix}_{rest[::-1]}"


def complete(draft: Draft) -> None:
    """Call every terminal event completed."""
    for sent in draft.find("terminal"):
        sent.event["type"] = "response.completed"


def cut_off(draft: Draft) -> None:
    """Raise while the terminal response is made, and let the connection break."""
    draft.ending = "cut-off"
    _lose_last_batch(draft)


def fail(draft: Draft) -> None:
    """Raise while the terminal response is made, and say so in the stream."""
    message = {"code": "server_error", "message": "unexpected tokens"}
    for sent in draft.find("terminal"):
        _lose_last_batch(draft)
        failed = {**sent.event["response"], "status": "failed", "output": [], "error": message}
        draft.sent += [Sent(sent.token, {"type": "error", **message}), Sent(sent.token, {"type": "response.failed", "response": failed})]


def _lose_last_batch(draft: Draft) -> None:
    draft.snapshot_error = "HarmonyError"
    draft.sent = [sent for sent in draft.sent if sent.token < draft.batches[-1].start]


def lose_token_batch(draft: Draft) -> None:
    """Send all token batches but one."""
    if len(draft.batches) > 1:
        draft.lost_batch = len(draft.batches) // 2


def repeat_numbers(draft: Draft) -> None:
    """Number anew in a post-processing worker (1.1 and 1.2)."""
    for number, sent in enumerate(sent for sent in draft.sent if sent.token >= 0):
        sent.event["sequence_number"] = number


# --- other servers ----------------------------------------------------------------------------------


def move_last_index(by: int) -> Edit:
    """Send the last item, which is not the first, under another index."""

    def edit(draft: Draft) -> None:
        last = len(draft.kinds) - 1
        for sent in draft.sent:
            if last > 0 and sent.item == last:
                sent.event["output_index"] += by

    return edit


def skip_opening(draft: Draft) -> None:
    """Begin with the items."""
    draft.sent = [sent for sent in draft.sent if sent.token >= 0]


def null_event(draft: Draft) -> None:
    """Send `data: null`."""
    _insert(draft, Sent(-1, None), [sent for sent in draft.sent if sent.token < 0][-1:])


def second_response(draft: Draft) -> None:
    """Begin another response at the end."""
    for sent in [sent for sent in draft.sent if sent.token < 0 and sent.event is not None]:
        event = copy.deepcopy(sent.event)
        event["response"]["id"] += "_2"
        draft.sent.append(Sent(len(draft.token_ids), event))


def rename_reasoning(output: list[Event]) -> None:
    """List reasoning as another kind of item."""
    for item in output[:1]:
        if item["type"] == "reasoning":
            item.update(type="code_interpreter_call", code="", container_id="auto", outputs=[])


def clear_text(output: list[Event]) -> None:
    """List the last item without its text."""
    for item in output[-1:]:
        for part in item.get("content", ()):
            part["text"] = ""
        if "arguments" in item:
            item["arguments"] = ""


def lengthen_item(event: Event) -> None:
    """Close an item with more text."""
    for part in event["item"]["content"]:
        part["text"] += "…"


def lengthen_part(event: Event) -> None:
    """Close a part with more text."""
    event["part"]["text"] += "…"


def drop_last(output: list[Event]) -> None:
    """Do not list the last item."""
    del output[-1:]
