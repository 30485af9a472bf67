"""Server-sent events without IO: bytes in, events out, JSON payloads on request.

Rules: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation,
and three leniences, each because a server was seen to need it: a last frame without its blank line
counts, whitespace before the first field is skipped, and a body that is one JSON object instead of
events (an error with status 200) is handed out as one event without a name.

The OpenAI SDK's own decoder drops the last frame, trips over a byte order mark and over bad UTF-8,
and raises for the first record that is no JSON; hence this one.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Final, NamedTuple

from harmony_client.errors import LimitError

__all__ = ["MAX_JSON_DEPTH", "MAX_LINE_BYTES", "Marker", "SSEDecoder", "ServerSentEvent", "read_payload"]

#: Bytes held for one event: an endless line must not fill the memory, yet the terminal event of a
#: long answer (text, logprobs and tools in one line) has to fit many times over.
MAX_LINE_BYTES: Final = 64 << 20

#: Containers inside each other: real payloads stay below 20, and everything behind this module
#: recurses over what it is given.
MAX_JSON_DEPTH: Final = 64

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LIST_ENTRY = 8  # bytes a list spends on one entry: a million empty data lines are not free


class ServerSentEvent(NamedTuple):
    """One event: its name (``""`` if it has none) and its data lines joined by line feeds."""

    event: str
    data: str


class SSEDecoder:
    """Splits a body into events; any split of the same bytes into chunks gives the same events."""

    __slots__ = ("_data", "_event", "_held", "_json_body", "_skip_line_feed", "_start", "_tail")

    def __init__(self) -> None:
        self._start: bytes | None = b""  # first bytes, until it is clear what the body is
        self._json_body = False
        self._skip_line_feed = False  # the last chunk ended in CR: a LF now belongs to it
        self._tail: list[bytes] = []  # pieces of the unfinished line
        self._data: list[bytes] = []
        self._event = b""
        self._held = 0  # bytes in _tail and _data

    def receive_data(self, data: bytes) -> list[ServerSentEvent]:
        """Take the next bytes of the body.

        Returns:
            The events that are complete now.

        Raises:
            LimitError: An event grew past :data:`MAX_LINE_BYTES`. Events that were complete before
                it are returned first; the error then comes with the next call.
        """
        if self._start is not None:
            data = self._open(self._start + data)
        if self._json_body:
            self._keep(data)
            events = []
        else:
            events = self._split(data)
        if self._held > MAX_LINE_BYTES and not events:
            raise LimitError(f"one event of the stream has more than {MAX_LINE_BYTES} bytes", code="event-too-long")
        return events

    def receive_eof(self) -> ServerSentEvent | None:
        """The body ended: what stands after the last blank line, if it has data, is the last event."""
        if self._start is not None:
            self._split(self._start)
        line = b"".join(self._tail)
        if self._json_body:
            self._data = [line]
        elif line:
            self._line(line)
        return self._take() if self._data else None

    def _open(self, data: bytes) -> bytes:
        """Skip byte order mark and whitespace, see whether the body is JSON; return what to read."""
        if len(data) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(data):
            self._start = data
            return b""
        data = data.removeprefix(_BYTE_ORDER_MARK).lstrip()
        if data:
            self._start = None
            self._json_body = data.startswith(b"{")
        else:
            self._start = b" "  # no mark is looked for any more; more whitespace is skipped
        return data

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._held += len(data)

    def _split(self, data: bytes) -> list[ServerSentEvent]:
        if self._skip_line_feed and data:
            self._skip_line_feed = False
            data = data.removeprefix(b"\n")
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end:
            if data:
                self._keep(data)
            return []
        self._skip_line_feed = data.endswith(b"\r")
        lines = data[:end]
        if self._tail:
            lines = b"".join((*self._tail, lines))
            self._held -= sum(map(len, self._tail))
            self._tail.clear()
        if end < len(data):
            self._keep(data[end:])
        events = []
        for line in lines.splitlines():  # of bytes: at CR, LF and CRLF only, as the specification has it
            if line:
                self._line(line)
            elif self._data:
                events.append(self._take())
            else:
                self._event = b""
        return events

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data"):
            rest = line[4:]
            if not rest or rest.startswith(b":"):
                value = rest[2:] if rest.startswith(b": ") else rest[1:]
                self._data.append(value)
                self._held += len(value) + _LIST_ENTRY
        elif line.startswith(b"event:"):
            self._event = line[6:].removeprefix(b" ")

    def _take(self) -> ServerSentEvent:
        # The specification decodes with replacement: one bad byte must not cost the whole stream.
        data = b"\n".join(self._data).decode("utf-8", "replace")
        event = ServerSentEvent(self._event.decode("utf-8", "replace"), data)
        self._held -= sum(map(len, self._data)) + _LIST_ENTRY * len(self._data)
        self._data.clear()
        self._event = b""
        return event


class Marker(Enum):
    """What an event's data is when it is no JSON object."""

    EMPTY = "empty"  #: nothing but blanks: a keepalive
    DONE = "done"  #: ``[DONE]``, or what servers make of it: ``DONE``, ``"[DONE]"``
    UNREADABLE = "unreadable"  #: anything else


def read_payload(event: ServerSentEvent) -> dict[str, Any] | Marker:
    """The JSON object in an event's data.

    A payload without ``type`` gets the event's name as its type, unless it is an error object or the
    name is the default one. Where both are given, the payload's own stands.

    Returns:
        The object, or a :class:`Marker` that says what stands in its place.

    Raises:
        LimitError: The JSON is nested deeper than :data:`MAX_JSON_DEPTH`.
    """
    data = event.data
    try:
        payload = json.loads(data)
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # also raised for integers of more than 4,300 digits
        return _marker(data)
    if not isinstance(payload, dict):
        return _marker(data)
    if data.count("{") + data.count("[") > MAX_JSON_DEPTH and _deeper(payload, MAX_JSON_DEPTH):
        raise _too_deep()
    if event.event not in ("", "message") and "type" not in payload and "error" not in payload:
        payload["type"] = event.event
    return payload


def _marker(data: str) -> Marker:
    text = data[:16].strip()
    if not text:
        return Marker.UNREADABLE if data.strip() else Marker.EMPTY
    return Marker.DONE if text.lstrip("[\"'").upper().startswith("DONE") else Marker.UNREADABLE


def _deeper(payload: dict[str, Any], limit: int) -> bool:
    """Whether containers lie in each other more than ``limit`` deep, without recursion."""
    level: list[Any] = [payload]
    for _ in range(limit):
        level = [child for node in level for child in _children(node) if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def _children(node: Any) -> Any:
    return node.values() if isinstance(node, dict) else node


def _too_deep() -> LimitError:
    return LimitError(f"the JSON of an event is nested deeper than {MAX_JSON_DEPTH}", code="json-too-deep")
