"""How a response ends: its terminal event, its final output, and the errors that replace it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import copy
from typing import Any, Final

from harmony_client.errors import DisconnectedError, ServerError
from harmony_client.output import view
from harmony_client.report import Report
from harmony_client.verify import Snapshot, text_of
from harmony_client.writer import Writer

__all__ = ["TERMINAL_TYPES", "broken", "failure_of", "filled", "rebuilt", "terminal_type"]

#: Terminal event types and the status that each stands for.
TERMINAL_TYPES: Final = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}

#: What the SDK's Response type requires, and the value that says "unknown".
_REQUIRED: Final[dict[str, Any]] = {
    "id": "",
    "object": "response",
    "created_at": 0,
    "model": "",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}

#: Error codes after which the same request may well succeed.
_RETRYABLE = {"server_error", "internal_error", "rate_limit_exceeded", "overloaded", "timeout", "service_unavailable"}


def filled(response: Mapping[str, Any], report: Report, seed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A response object with every field that the API requires.

    Args:
        response: What the server said.
        report: Where it is noted that something was missing.
        seed: The first event, where the server gave no response id: the id derives from it, so that
            a replay gives the same one.
    """
    own = dict(response)
    missing = [name for name in _REQUIRED if own.get(name) is None]
    for name in missing:
        own[name] = copy(_REQUIRED[name])
    if missing and response:
        report.note("field-filled", None, ", ".join(missing))
    if not isinstance(own["id"], str) or not own["id"]:
        item = (seed or {}).get("item")
        first = (seed or {}).get("item_id") or (item.get("id") if isinstance(item, Mapping) else None) or seed
        own["id"] = "resp_" + hashlib.sha256(repr(first).encode("utf-8", "replace")).hexdigest()[:32]
    if not isinstance(own["output"], list):
        own["output"] = []
    return own


def terminal_type(name: str, response: Mapping[str, Any], *, cut: bool) -> tuple[str, str]:
    """The type of the terminal event and the response's status.

    Args:
        name: The server's event type.
        response: The server's response object; its status decides where it has one.
        cut: The tokens say that the output was cut off.
    """
    given = response.get("status")
    status = given if given in ("completed", "incomplete", "cancelled") else TERMINAL_TYPES[name]
    if cut:
        status = "incomplete"
    if status == "cancelled":
        return name, status
    return f"response.{status}", status


def rebuilt(writer: Writer, report: Report, snapshot: Snapshot, given: Any, status: str) -> list[dict[str, Any]]:
    """The terminal output: our items in order of announcement, with what the server says of them.

    In an incomplete response the last item is the one that was cut, whatever its done event said;
    only tokens tell when it was not (the cut fell between two messages).
    """
    own: list[dict[str, Any]] = []
    data = snapshot.data_by_item()
    for item in writer.items:
        listed = data.get(item)
        shown = view(item, listed)
        if listed is not None:
            _map_ids(report, listed, shown)
        own.append(shown)
    if status == "incomplete" and not snapshot.whole and own and own[-1].get("status") != "incomplete":
        own[-1]["status"] = "incomplete"
    _note_output(report, own, given)
    return own


def _note_output(report: Report, own: list[dict[str, Any]], given: Any) -> None:
    if own == given:
        return
    listed = [view for view in given if isinstance(view, Mapping)] if isinstance(given, list) else []
    if [(view["type"], text_of(view)) for view in own] != [(view.get("type"), text_of(view)) for view in listed]:
        report.note("output-rebuilt")
        return
    if [(view["id"], view.get("call_id")) for view in own] != [(view.get("id"), view.get("call_id")) for view in listed]:
        report.note("output-ids-rewritten")
    for index, (ours, theirs) in enumerate(zip(own, listed, strict=True)):
        names = [name for name, value in ours.items() if name not in ("id", "call_id") and theirs.get(name) != value]
        if names:
            report.note(
                "status-fixed" if "status" in names and theirs.get("status") is not None else "field-filled", index, ", ".join(names)
            )


def _map_ids(report: Report, listed: Mapping[str, Any], view: Mapping[str, Any]) -> None:
    for name in ("id", "call_id"):
        theirs, ours = listed.get(name), view.get(name)
        if isinstance(theirs, str) and theirs and isinstance(ours, str) and theirs != ours:
            report.ids[theirs] = ours


def failure_of(event: Mapping[str, Any]) -> ServerError:
    """The error for an ``error`` event, a chat-style error object, or a JSON error body."""
    inner = event.get("error")
    source: Mapping[str, Any] = inner if isinstance(inner, Mapping) else event
    found = [value for value in (source.get("message"), inner, source.get("detail")) if isinstance(value, str)]
    message = found[0] if found else None
    code = source.get("code") or source.get("type")
    retryable = str(code) in _RETRYABLE or str(code).startswith("5")
    error = ServerError(f"the server reported an error: {message or 'no message'}", code="server-error", retryable=retryable)
    error.body = dict(source)
    return error


def broken(error: BaseException | None) -> DisconnectedError:
    """The error for a stream that ended before its terminal event."""
    if error is None:
        return DisconnectedError("the stream ended before its terminal event", code="disconnected", retryable=True)
    timeout = "timeout" in type(error).__name__.lower()
    message = f"the connection {'timed out' if timeout else 'broke'} before the terminal event: {error}"
    failure = DisconnectedError(message, code="timeout" if timeout else "disconnected", retryable=True)
    failure.__cause__ = error
    return failure
