"""The streams that the wrapped clients return: the SDK's own classes around a repaired body.

:class:`RepairedStream` and :class:`AsyncRepairedStream` are the two thin shells: they read bytes and
hand out what :class:`Delivery` makes of them. All else is shared and does no IO.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import openai
from openai import AsyncStream, Stream
from openai.types.responses import Response

from harmony_client import wire
from harmony_client._events import EventFactory
from harmony_client._options import RepairOptions
from harmony_client._sdk_errors import to_sdk_error, transport_errors
from harmony_client.body import RepairedBody
from harmony_client.endings import TERMINAL_TYPES
from harmony_client.repair import StreamRepairer
from harmony_client.report import Report

__all__ = ["DELIVERY_EXTENSION", "AsyncRepairedStream", "Outcome", "RepairedStream"]

#: Key of the delivery in the ``extensions`` of the HTTP response, where wrappers of the stream find it.
DELIVERY_EXTENSION = "harmony_client.delivery"

_T = TypeVar("_T")
_log = logging.getLogger("harmony_client")


class Outcome(NamedTuple):
    """How a stream ended, and what came of it.

    Attributes:
        ending: ``completed``, ``incomplete``, ``failed``, ``cancelled`` (terminal events), ``error`` (an
            exception), ``closed`` (by the application), or ``None``: it has not ended.
        response: The response as far as it came, or ``None`` if nothing of it did.
        error: The exception, if ``ending`` is ``error``.
    """

    ending: str | None
    response: Response | None
    error: openai.APIError | None


class Delivery:
    """What both streams share: one body, its event objects, its report, its error."""

    def __init__(self, response: Any, client: object, request: object) -> None:
        options = getattr(client, "_harmony", None) or RepairOptions()
        self._response = response
        self._on_report = options.on_report
        self._objects = EventFactory(response, strict=getattr(client, "_strict_response_validation", False))
        self._body = RepairedBody(_repairer(options, response, request))
        self._concluded = False
        self._cut_short = False
        self.closing = False  #: the application has called close() on the stream
        self.broken: BaseException | None = None  #: what broke the connection
        self.report: Report = self._body.report
        self._terminal: Response | None = None
        self._error: openai.APIError | None = None
        response.extensions[DELIVERY_EXTENSION] = self

    @property
    def over(self) -> bool:
        """Whether nothing more is to be read or handed out."""
        return self._concluded or self._body.finished

    def outcome(self) -> Outcome:
        """How the stream ended, or how far it has come."""
        if self._error is not None:
            return Outcome("error", getattr(self._error, "partial", None), self._error)
        if self._terminal is not None:
            return Outcome(self.report.ending, self._terminal, None)
        partial = self._body.repairer.partial()
        return Outcome(self.report.ending, None if partial is None else self._objects.response(partial), None)

    def receive_data(self, data: bytes) -> Iterator[Any]:
        """Hand out the event objects that the next bytes complete.

        Raises:
            openai.APIError: The stream failed; one of :mod:`harmony_client._sdk_errors`.
        """
        return self._hand_out(self._body.receive_data(data))

    def receive_eof(self) -> Iterator[Any]:
        """Hand out the event objects of the ending, unless the application made the end.

        Raises:
            openai.APIError: The stream failed; one of :mod:`harmony_client._sdk_errors`.
        """
        # closing: another thread or task called close() while this one was reading. That is no failure.
        return iter(()) if self.over or self.closing else self._hand_out(self._body.receive_eof(self.broken))

    def conclude(self) -> None:
        """Reading is over, by whatever cause: the report is final and is delivered, once."""
        if self._concluded:
            return
        self._concluded = True
        self._cut_short = not self._body.finished
        self._body.close()
        if self._on_report is not None:
            try:
                self._on_report(self.report)
            except Exception:
                _log.exception("on_report raised; the stream goes on")

    def _hand_out(self, batches: Iterator[list[dict[str, Any]]]) -> Iterator[Any]:
        build = self._objects.event
        body = self._body
        for events in batches:
            if body.finished:  # before the terminal event is seen: agent frameworks close the stream on it
                self.conclude()
            for event in events:
                built = build(event)
                if event["type"] in TERMINAL_TYPES:
                    self._terminal = built.response
                yield built
                if self._cut_short:
                    return
            if body.failure is not None:
                self._error = to_sdk_error(body.failure, request=self._response.request, response=self._objects.response)
                raise self._error
            if self.over:
                return


def _repairer(options: RepairOptions, response: Any, request: object) -> StreamRepairer:
    return StreamRepairer(
        tools=_declared_tools(request),
        mode="observe" if options.mode == "observe" else "repair",
        preambles=options.preambles,
        deltas=options.deltas,
        on_mismatch=options.on_mismatch,
        on_disconnect=options.on_disconnect,
        tokens_requested=response.request.headers.get(wire.HEADER) == wire.HEADER_VALUE,
        tokens_offered=wire.HEADER in response.headers,
    )


def _declared_tools(request: object) -> list[Mapping[str, Any]] | None:
    """The tools in a request's body; ``None`` if it declares none, as a retrieved response's does not."""
    bodies = (getattr(request, "extra_json", None), getattr(request, "json_data", None))
    tools = next((body["tools"] for body in bodies if isinstance(body, Mapping) and "tools" in body), None)
    if not isinstance(tools, list | tuple):
        return None
    return [tool for tool in tools if isinstance(tool, Mapping)]


class RepairedStream(Stream[_T]):
    """The SDK's ``Stream`` with the repaired events of one response.

    Attributes:
        report: The report of this response; final before the terminal event is handed out.
    """

    _iterator: Any  # the generator that the SDK makes of __stream__

    def __init__(self, *, cast_to: type[_T], response: Any, client: openai.OpenAI, options: Any = None) -> None:
        self._delivery = Delivery(response, client, options)
        super().__init__(cast_to=cast_to, response=response, client=client, options=options)
        self._close_response = response.close
        # The helper stream and the raw response close the HTTP response, not this stream.
        response.close = self._closed_outside

    @property
    def report(self) -> Report:
        """The report of this response; final before the terminal event is handed out."""
        return self._delivery.report

    def __stream__(self) -> Iterator[_T]:
        delivery, chunks = self._delivery, self.response.iter_bytes()
        try:
            while not delivery.over and (data := self._read(chunks)) is not None:
                yield from delivery.receive_data(data)
            yield from delivery.receive_eof()
        finally:
            try:
                self._close_response()
            finally:
                delivery.conclude()

    def _read(self, chunks: Iterator[bytes]) -> bytes | None:
        try:
            return next(chunks, None)
        except transport_errors() as error:
            self._delivery.broken = error
            return None

    def close(self) -> None:
        """Stop reading and close the HTTP response; the report ends as ``closed``."""
        self._delivery.closing = True
        super().close()

    def _closed_outside(self) -> None:
        # httpx calls this too, at the end of the body, while __stream__ runs: that is no early close.
        try:
            self._close_response()
        finally:
            if not self._iterator.gi_running:
                self._delivery.conclude()


class AsyncRepairedStream(AsyncStream[_T]):
    """The SDK's ``AsyncStream`` with the repaired events of one response.

    Attributes:
        report: The report of this response; final before the terminal event is handed out.
    """

    _iterator: Any  # the generator that the SDK makes of __stream__

    def __init__(self, *, cast_to: type[_T], response: Any, client: openai.AsyncOpenAI, options: Any = None) -> None:
        self._delivery = Delivery(response, client, options)
        super().__init__(cast_to=cast_to, response=response, client=client, options=options)
        self._close_response = response.aclose
        response.aclose = self._closed_outside  # as above

    @property
    def report(self) -> Report:
        """The report of this response; final before the terminal event is handed out."""
        return self._delivery.report

    async def __stream__(self) -> AsyncIterator[_T]:
        delivery, chunks = self._delivery, self.response.aiter_bytes()
        try:
            while not delivery.over and (data := await self._read(chunks)) is not None:
                for event in delivery.receive_data(data):
                    yield event
            for event in delivery.receive_eof():
                yield event
        finally:
            try:
                await self._close_response()
            finally:
                delivery.conclude()

    async def _read(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            return await anext(chunks, None)
        except transport_errors() as error:
            self._delivery.broken = error
            return None

    async def close(self) -> None:
        """Stop reading and close the HTTP response; the report ends as ``closed``."""
        self._delivery.closing = True
        await super().close()

    async def _closed_outside(self) -> None:
        try:
            await self._close_response()
        finally:
            if not self._iterator.ag_running:
                self._delivery.conclude()
