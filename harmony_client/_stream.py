"""The streams that the wrapped clients return: the SDK's own classes around a repaired body.

:class:`RepairedStream` and :class:`AsyncRepairedStream` are the two thin shells: they read bytes and
hand out what :class:`Delivery` makes of them. All else is shared and does no IO.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import openai
from anyio import to_thread
from openai import AsyncStream, Stream
from openai.types.responses import Response

from harmony_client import wire
from harmony_client._events import EventFactory
from harmony_client._options import WATCH_EXTENSION, RepairOptions
from harmony_client._sdk_errors import to_sdk_error, transport_errors
from harmony_client.body import RepairedBody
from harmony_client.endings import TERMINAL_TYPES
from harmony_client.reference import compare
from harmony_client.repair import StreamRepairer
from harmony_client.report import Reference, Report
from harmony_client.tokens import Evidence

__all__ = ["DELIVERY_EXTENSION", "AsyncRepairedStream", "Outcome", "RepairedStream"]

#: Key of the delivery in the ``extensions`` of the HTTP response, where wrappers of the stream find it.
DELIVERY_EXTENSION = "harmony_client.delivery"

#: Among the events of an asynchronous stream: openai-harmony is to be asked before the next one is taken.
_ASK_REFERENCE: Final = object()

_T = TypeVar("_T")
_log = logging.getLogger("harmony_client")


class Outcome(NamedTuple):
    """How a stream ended, and what came of it.

    Attributes:
        ending: ``completed``, ``incomplete``, ``failed``, ``cancelled`` (terminal events), ``error`` (an
            exception), ``closed`` (by the application), or ``None``: it has not ended.
        response: The response as far as it came, or ``None`` if nothing of it did.
        error: The exception, if ``ending`` is ``error``; or the one that ``on_disconnect="incomplete"`` kept from being raised.
    """

    ending: str | None
    response: Response | None
    error: openai.APIError | None


class Delivery:
    """What both streams share: one body, its event objects, its report, its error.

    Args:
        response: The HTTP response.
        client: The wrapped client.
        request: The SDK's description of the request.
        inline: Whether openai-harmony is asked here, where the option ``reference`` is set. If not,
            :data:`_ASK_REFERENCE` comes among the events, and the shell calls :meth:`receive_reference`.
    """

    def __init__(self, response: Any, client: object, request: object, *, inline: bool = True) -> None:
        options = getattr(client, "_harmony", None) or RepairOptions()
        self._response = response
        self._options = options
        self._inline = inline
        self._objects = EventFactory(response, strict=getattr(client, "_strict_response_validation", False))
        self._body = RepairedBody(_repairer(options, response, request), response.headers.get("content-type", ""))
        self._concluded = False
        self._cut_short = False
        self.closing = False  #: the application has called close() on the stream
        self.broken: BaseException | None = None  #: what broke the connection
        self.report: Report = self._body.report
        self._terminal: Response | None = None
        self._error: openai.APIError | None = None
        response.extensions[DELIVERY_EXTENSION] = self
        watch = response.extensions.get(WATCH_EXTENSION)
        if callable(watch):
            watch(self.report)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be read or handed out."""
        return self._concluded or self._body.finished

    def outcome(self) -> Outcome:
        """How the stream ended, or how far it has come."""
        if self._error is not None:
            return Outcome("error", getattr(self._error, "partial", None), self._error)
        if self._terminal is not None:
            replaced = self._body.repairer.replaced
            error = None if replaced is None else to_sdk_error(replaced, request=self._response.request, response=self._objects.response)
            return Outcome(self.report.ending, self._terminal, error)
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
        if self._options.reference and self.report.reference is None:
            self.receive_reference(Reference("unverifiable", "the stream ended before openai-harmony was asked"))
        if self._options.on_report is not None:
            try:
                self._options.on_report(self.report)
            except Exception:
                _log.exception("on_report raised; the stream goes on")

    def evidence(self) -> Evidence | None:
        """What openai-harmony is asked about."""
        return self._body.repairer.evidence()

    def receive_reference(self, reference: Reference) -> None:
        """Take openai-harmony's answer."""
        self.report.reference = reference
        if reference.verdict == "mismatch" and self._options.on_mismatch != "ignore":
            count = len(reference.differences)
            _log.warning("response %r: openai-harmony reads %d field(s) of the same tokens otherwise", self.report.response_id, count)

    def _hand_out(self, batches: Iterator[list[dict[str, Any]]]) -> Iterator[Any]:
        build = self._objects.event
        body = self._body
        for events in batches:
            if body.finished:  # before the terminal event is seen: agent frameworks close the stream on it
                if self._options.reference:
                    yield from self._ask_reference()
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

    def _ask_reference(self) -> Iterator[Any]:
        evidence = self.evidence()
        if self._inline or evidence is None:
            self.receive_reference(compare(evidence))
        else:
            yield _ASK_REFERENCE


def _repairer(options: RepairOptions, response: Any, request: object) -> StreamRepairer:
    return StreamRepairer(
        tools=_declared_tools(request),
        mode="observe" if options.mode == "observe" else "repair",
        preambles=options.preambles,
        deltas=options.deltas,
        on_mismatch=options.on_mismatch,
        on_disconnect=options.on_disconnect,
        structured=_is_structured(request),
        tokens_requested=response.request.headers.get(wire.HEADER) == wire.HEADER_VALUE,
        tokens_offered=wire.HEADER in response.headers,
        keep_tokens=options.reference,
    )


def _in_body(request: object, name: str) -> object:
    """A field of a request's body; ``None`` if it has none."""
    bodies = (getattr(request, "extra_json", None), getattr(request, "json_data", None))
    return next((body[name] for body in bodies if isinstance(body, Mapping) and name in body), None)


def _is_structured(request: object) -> bool:
    """Whether a request asks for an answer by a JSON schema, as ``text_format`` does."""
    text = _in_body(request, "text")
    form = text.get("format") if isinstance(text, Mapping) else None
    return isinstance(form, Mapping) and form.get("type") == "json_schema"


def _declared_tools(request: object) -> list[Mapping[str, Any]] | None:
    """The tools in a request's body; ``None`` if it declares none, as a retrieved response's does not."""
    tools = _in_body(request, "tools")
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
        self._delivery = Delivery(response, client, options, inline=False)
        super().__init__(cast_to=cast_to, response=response, client=client, options=options)
        self._close_response = response.aclose
        response.aclose = self._closed_outside  # as above

    @property
    def report(self) -> Report:
        """The report of this response; final before the terminal event is handed out."""
        return self._delivery.report

    async def __stream__(self) -> AsyncIterator[_T]:
        delivery, chunks = self._delivery, self.response.aiter_bytes()
        data: bytes | None = b""
        try:
            while data is not None and not delivery.over:
                data = await self._read(chunks)
                for event in delivery.receive_eof() if data is None else delivery.receive_data(data):
                    if event is _ASK_REFERENCE:
                        delivery.receive_reference(await to_thread.run_sync(compare, delivery.evidence()))
                    else:
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
