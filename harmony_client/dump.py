r"""Saved response streams in the forms people have them: SSE, JSON lines, the output of ``curl -i``.

All become one form, the body of an event stream, so that one decoder reads them. No IO: bytes in
pieces of any size come in, bytes go out, nothing waits for what has not arrived.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from harmony_client.sse import Marker, SSEDecoder, read_payload

__all__ = ["CompressedError", "payloads", "sse_body"]

#: What is held back to find the end of the HTTP headers, or of the first line: that is a few hundred
#: bytes, and input that is no stream at all should not be collected.
_MAX_HELD: Final = 1 << 20

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class CompressedError(ValueError):
    """The headers say that the body is compressed."""


def sse_body(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The body of an event stream, in pieces.

    Args:
        chunks: An event stream, JSON lines (one event's payload per line), or either of them behind
            HTTP headers, as ``curl -i`` prints them.

    Raises:
        CompressedError: The headers name a content encoding.
    """
    pieces = _after_headers(iter(chunks))
    start = b""
    while not _form_is_clear(start) and (piece := next(pieces, None)) is not None:
        start += piece
    if not _is_json_lines(start):
        yield start
        yield from pieces
        return
    yield b"data: "
    for piece in chain((_text(start),), pieces):
        yield piece.replace(b"\n", b"\n\ndata: ")


def payloads(chunks: Iterable[bytes]) -> Iterator[dict[str, Any] | Marker]:
    """The payload of each event of a saved stream, or what stands in its place.

    Raises:
        CompressedError: See :func:`sse_body`.
        LimitError: An event is too long or nested too deeply.
    """
    decoder = SSEDecoder()
    for piece in sse_body(chunks):
        for event in decoder.receive_data(piece):
            yield read_payload(event)
    if last := decoder.receive_eof():
        yield read_payload(last)


def _after_headers(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Skip HTTP header blocks: several, where a proxy, a redirect or ``100 Continue`` came first."""
    held = b""
    for piece in pieces:
        held += piece
        held, done = _skip_headers(held)
        if done or len(held) > _MAX_HELD:
            break
    yield held
    yield from pieces


def _skip_headers(data: bytes) -> tuple[bytes, bool]:
    """What follows the header blocks, and whether more bytes could change that."""
    while data.startswith(b"HTTP/"):
        ends = [(at, len(blank)) for blank in (b"\r\n\r\n", b"\n\n") if (at := data.find(blank)) >= 0]
        if not ends:
            return data, False
        at, length = min(ends)
        _refuse_compressed(data[:at])
        data = data[at + length :]
    return data, not b"HTTP/".startswith(data[:5])


def _refuse_compressed(headers: bytes) -> None:
    for line in headers.splitlines():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise CompressedError(f"the body is compressed ({value.strip().decode('latin-1')}); save it with curl --compressed")


def _form_is_clear(start: bytes) -> bool:
    text = _text(start)
    if not text or _BYTE_ORDER_MARK.startswith(text):
        return False
    return not text.startswith(b"{") or b"\n" in text or len(text) > _MAX_HELD


def _is_json_lines(start: bytes) -> bool:
    """Whether a body that begins like this has one JSON object per line, and not one over several lines."""
    line, end, _ = _text(start).partition(b"\n")
    if not line.startswith(b"{"):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return not end
    return True


def _text(start: bytes) -> bytes:
    return start.removeprefix(_BYTE_ORDER_MARK).lstrip()
