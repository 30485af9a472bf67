"""One response body: bytes in, repaired events out, still without IO.

Between :mod:`harmony_client.sse` and :class:`harmony_client.repair.StreamRepairer` stand a few
decisions that belong to neither: what a ``[DONE]`` means before the terminal event, what happens to
a record that is no JSON, and how a limit of the decoder ends the stream.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from harmony_client.errors import LimitError, ServerError, StreamError
from harmony_client.sse import Marker, ServerSentEvent, SSEDecoder, read_payload

if TYPE_CHECKING:
    from harmony_client.repair import StreamRepairer
    from harmony_client.report import Report

__all__ = ["MAX_EVENTS_AFTER_DONE", "RepairedBody"]

#: A ``[DONE]`` that came too early is passed over, but a server that never ends is not waited for.
MAX_EVENTS_AFTER_DONE: Final = 64

_HEAD_BYTES: Final = 500  #: of a body that is no event stream, kept for its error

_log = logging.getLogger("harmony_client")


class RepairedBody:
    """Reads the body of one response and hands out repaired events.

    Args:
        repairer: The repairer of this response, fresh.
        content_type: What the server says the body is; for the error if it is no event stream.
    """

    __slots__ = ("_content_type", "_decoder", "_events_after_done", "_head", "repairer")

    def __init__(self, repairer: StreamRepairer, content_type: str = "") -> None:
        self.repairer = repairer
        self._content_type = content_type
        self._head = b""
        self._decoder = SSEDecoder()
        self._events_after_done: int | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing more is to be read: the terminal event was returned, or the stream failed."""
        return self.repairer.finished

    @property
    def failure(self) -> StreamError | None:
        """What to raise once the events of the call that set it are handed out."""
        return self.repairer.failure

    @property
    def report(self) -> Report:
        """The report of this response; final once :attr:`finished`."""
        return self.repairer.report

    def receive_data(self, data: bytes) -> Iterator[list[dict[str, Any]]]:
        """Take the next bytes of the body.

        Yields:
            The events to hand out, one list per event of the server. The next event of the server is
            not looked at before the next list is asked for, so an application that stops early has
            not "received" what lay behind. Stop for good once :attr:`finished`.
        """
        if len(self._head) < _HEAD_BYTES:
            self._head = (self._head + data)[:_HEAD_BYTES]
        try:
            events = self._decoder.receive_data(data)
        except LimitError as error:
            yield self.repairer.receive_error(error)
            return
        for event in events:
            yield self._receive(event)

    def receive_eof(self, error: BaseException | None = None) -> Iterator[list[dict[str, Any]]]:
        """The body ended, or broke with ``error``.

        Yields:
            The events to hand out: those of a last event without its blank line, then the ending's.
        """
        last = self._decoder.receive_eof()
        if last is not None:
            yield self._receive(last, cut=True)
        if self.finished:
            return
        if error is None and self._head.strip() and not self.report.events_received:
            yield self.repairer.receive_error(self._not_a_stream())
        else:
            yield self.repairer.receive_eof(error)

    def _not_a_stream(self) -> StreamError:
        """The error for a body without a single event: a page of a proxy, say. Asking again gives the same."""
        what = f" but {self._content_type}" if self._content_type else ""
        failure = ServerError(f"the body of the response is no event stream{what}", code="not-a-stream")
        failure.body = self._head.decode("utf-8", "replace")
        return failure

    def close(self) -> None:
        """The application stops reading; the report ends here unless it had ended before."""
        if not self.finished:
            self.repairer.close()

    def _receive(self, event: ServerSentEvent, *, cut: bool = False) -> list[dict[str, Any]]:
        try:
            payload = read_payload(event)
        except LimitError as error:
            return self.repairer.receive_error(error)
        if isinstance(payload, Marker):
            return self._skip(payload, event, cut=cut)
        if self._events_after_done is not None:
            self._events_after_done += 1
            if self._events_after_done > MAX_EVENTS_AFTER_DONE:
                return self.repairer.receive_eof()
        return self.repairer.receive(payload)

    def _skip(self, marker: Marker, event: ServerSentEvent, *, cut: bool) -> list[dict[str, Any]]:
        if marker is Marker.DONE:
            self._events_after_done = self._events_after_done or 0
        elif marker is Marker.UNREADABLE and not cut:  # half a record at the end is a cut, no broken record
            self.report.skipped_data += 1
            _log.debug("skipped an event whose data is no JSON object (%d characters)", len(event.data))
        return []
