"""The repair of one response stream, without IO.

::

    server events ──▶ EventReader ──┐
    token batches ──▶ TokenReader ──┼──▶ Writer ──▶ events that cannot be ill-formed
    the snapshot  ──▶ Snapshot ─────┘       └─────▶ Report

:class:`StreamRepairer` decides which source is used (the table ``mode``), passes the response's own
events, and ends the stream. It takes and returns plain dicts, keeps no clock, and starts nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from harmony_client.conclusion import Conclusion, OnMismatch
from harmony_client.endings import TERMINAL_TYPES, broken, failure_of, filled
from harmony_client.errors import FrameError, LimitError, StreamError
from harmony_client.items import Preambles, tool_names
from harmony_client.output import view
from harmony_client.reader import Deltas, EventReader, speaks_of_an_item
from harmony_client.report import Report
from harmony_client.tokens import Evidence, Lost, TokenReader
from harmony_client.wire import EVENT_TYPE, decode_batch
from harmony_client.writer import Writer

__all__ = ["MAX_EARLY_EVENTS", "StreamRepairer"]

#: Events before ``response.created``: they have to be held, so there must be an end to them.
MAX_EARLY_EVENTS = 10_000
#: How far back a repeated event is recognised, and how far a repeated delta is.
_RECENT = 8
_RECENT_DELTAS = 4096

OnDisconnect = Literal["error", "incomplete"]

#: The response's own events that pass, each once.
_ONCE: Final = {"response.created", "response.in_progress", "response.queued"}


class StreamRepairer:
    """Turns the events of one server stream into a complete, well-formed stream.

    For each event of the server: hand out what :meth:`receive` returns; then raise ``failure`` if it
    is set; then stop if ``finished``. At the end of the body do the same with :meth:`receive_eof`.

    Args:
        tools: The request's tools (names, or tool objects). Without them those that
            ``response.created`` repeats are used. They decide what a bare recipient means.
        mode: ``repair``, or ``observe``: events pass untouched, and the report says what would have
            been done.
        preambles: Commentary for the user: ``auto`` as the server would list it, ``message``, ``drop``.
        deltas: Without tokens: ``live`` passes deltas on at once, ``hold`` keeps an item's deltas
            until its text is certain, ``auto`` holds while the server looks like TensorRT-LLM.
        on_mismatch: What to do when the terminal response contradicts what was streamed: ``warn``
            (logger ``harmony_client``), ``raise`` (``failure`` instead of the terminal event), ``ignore``.
        on_disconnect: ``error``, or ``incomplete``: a broken connection ends in ``response.incomplete``.
        structured: The reader parses each ``output_text.done`` as JSON, as the SDK's helper does with a
            ``text_format``: a cut answer gets none, since the parser would raise before the ending is seen.
        tokens_requested: Whether token batches were asked for, for the report.
        tokens_offered: Whether the server said it would send them, for the report.
        keep_tokens: Keep all token ids, for :meth:`evidence`.

    Attributes:
        report: What was done; final once ``finished``.
        replaced: The error that ``on_disconnect="incomplete"`` made a terminal event of, or ``None``.
    """

    def __init__(
        self,
        *,
        tools: Iterable[str | Mapping[str, Any]] | None = None,
        mode: Literal["repair", "observe"] = "repair",
        preambles: Preambles = "auto",
        deltas: Deltas = "auto",
        on_mismatch: OnMismatch = "warn",
        on_disconnect: OnDisconnect = "error",
        structured: bool = False,
        tokens_requested: bool | None = None,
        tokens_offered: bool | None = None,
        keep_tokens: bool = False,
    ) -> None:
        self.report = Report(tokens_requested=tokens_requested, tokens_offered=tokens_offered)
        self._writer = Writer(self.report.note)
        self._writer.structured = structured
        self._reader = EventReader(self._writer, self.report, deltas)
        self._conclusion = Conclusion(self._writer, self.report, self._reader.items, on_mismatch)
        self._tools = None if tools is None else tool_names(tools)
        self._observe = mode == "observe"
        self._preambles: Preambles = preambles
        self._on_disconnect = on_disconnect
        self._keep_tokens = keep_tokens
        self._passed: set[str] = set()
        self._early: list[dict[str, Any]] = []
        self._recent: deque[dict[str, Any]] = deque(maxlen=_RECENT)
        self._deltas: dict[int, int] = {}  # hashes of the last deltas, by sequence_number
        self._highest = -1
        self._numbered = True
        self._item_events = False
        self.replaced: StreamError | None = None
        self._error: dict[str, Any] | None = None
        self._silent_end = False

    @property
    def finished(self) -> bool:
        """Whether nothing more will be handed out."""
        return self._conclusion.finished

    @property
    def failure(self) -> StreamError | None:
        """The error to raise once the events of the call that set it are handed out."""
        return None if self._observe and self._silent_end else self._conclusion.failure

    # --- input ------------------------------------------------------------------------------------

    def receive(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Take one event of the server.

        Args:
            event: Its payload. Anything a server may send: what cannot be used is reported.

        Returns:
            The events to hand out now, in order.
        """
        self.report.events_received += 1
        if self.finished:
            self._after_the_end(event)
            return []
        try:
            self._receive(event)
        except LimitError as error:
            self._conclusion.fail(error)
        except RecursionError:
            self._conclusion.fail(LimitError("an event is nested too deeply", code="json-too-deep"))
        return self._hand_out(event)

    def receive_eof(self, error: BaseException | None = None) -> list[dict[str, Any]]:
        """Take the end of the stream.

        Args:
            error: What broke the connection; ``None``: the body simply ended.

        Returns:
            The events to hand out before the stream ends, or ``failure`` is raised.
        """
        if self.finished:
            return []
        self._silent_end = error is None
        try:
            self._end_of_stream(error)
        except LimitError as limit:
            self._conclusion.fail(limit)
        return self._hand_out(None)

    def receive_error(self, error: StreamError) -> list[dict[str, Any]]:
        """End the stream with an error of the caller's: a bound exceeded, a body that is no stream."""
        if self.finished:
            return []
        self._conclusion.fail(error)
        return self._hand_out(None)

    def partial(self) -> dict[str, Any] | None:
        """The response as received so far; ``None`` before it began.

        Returns:
            A response object whose open items have the status ``in_progress`` and the text handed out so far.
        """
        response = self._conclusion.response
        if response is None:
            return None
        output = [{**view(item), **({} if item.closed else {"status": "in_progress"})} for item in self._writer.items]
        return {**response, "output": output}

    def evidence(self) -> Evidence | None:
        """All tokens and what was made of them, for :func:`harmony_client.reference.compare`.

        Returns:
            ``None`` unless ``keep_tokens`` is set and all tokens of the response came, in order.
        """
        tokens = self._conclusion.tokens
        return tokens.evidence() if tokens is not None and self.report.mode == "tokens" else None

    def close(self) -> None:
        """The application stops reading: no events, no error; the report says ``closed``."""
        if not self.finished:
            self._conclusion.finished = True
            self.report.ending = "closed"

    # --- one event --------------------------------------------------------------------------------

    def _receive(self, event: dict[str, Any]) -> None:
        name = event.get("type")
        if self._error is not None and name != "response.failed" and self._on_pending_error(name):
            return
        if name == EVENT_TYPE:
            self._batch(event)
        elif not isinstance(name, str):
            self._untyped(event)
        elif event.get("error") and name != "error":
            self.report.note("error-key-dropped", None, repr(event["error"])[:200])
            self._receive({key: value for key, value in event.items() if key != "error"})
        elif self._repeated(event):
            self.report.note("duplicate-dropped", None, "")
        else:
            self._typed(name, event)

    def _typed(self, name: str, event: dict[str, Any]) -> None:
        if name in _ONCE:
            self._opening(name, event)
        elif name in TERMINAL_TYPES:
            self._terminal(name, event)
        elif name == "error":
            self._error = event
        elif speaks_of_an_item(name, event):
            self._item_event(event)
        elif self._conclusion.response is None:
            if len(self._early) >= MAX_EARLY_EVENTS:
                raise LimitError(f"more than {MAX_EARLY_EVENTS} events before response.created", code="too-many-early-events")
            self._early.append(event)
        else:
            self._writer.put_plain(event)

    def _on_pending_error(self, name: Any) -> bool:
        """What follows an error event decides who reports it."""
        if self._conclusion.answered and self._conclusion.tokens is not None and self._conclusion.tokens.snapshot_error:
            return False
        self._conclusion.fail(failure_of(self._error or {}))
        return True

    def _untyped(self, event: dict[str, Any]) -> None:
        if event.get("object") == "response" and isinstance(event.get("output"), list):  # the server did not stream
            status = event.get("status")
            self._receive({"type": f"response.{status if status in ('incomplete', 'failed') else 'completed'}", "response": event})
        elif event.get("error") or event.get("object") == "error" or "detail" in event or {"message", "code"} <= set(event):
            self._conclusion.fail(failure_of(event))
        else:
            self.report.note("event-malformed", None, "")

    def _repeated(self, event: dict[str, Any]) -> bool:
        """Whether this very event, number included, was received just now."""
        number = event.get("sequence_number")
        if type(number) is not int or number < 0 or not self._numbered:
            return False
        print_ = _print_of(event)
        if number > self._highest:
            self._highest = number
            if print_ is not None:
                self._deltas[number] = print_
                if len(self._deltas) > _RECENT_DELTAS:
                    del self._deltas[next(iter(self._deltas))]
        elif any(event == recent for recent in self._recent) or (print_ is not None and self._deltas.get(number) == print_):
            return True
        elif number in self._deltas or (self._recent and self._recent[-1].get("sequence_number") == number):
            self._numbered = False  # one number for different events: numbers say nothing here
        self._recent.append(event)
        return False

    def _opening(self, name: str, event: dict[str, Any]) -> None:
        given = event.get("response")
        response = given if isinstance(given, Mapping) else {}
        if name in self._passed:
            second = name == "response.created" and not _same_id(response, self._conclusion.response)
            self.report.note("terminal-repeated" if second else "duplicate-dropped")
            return
        self._passed.add(name)
        if name == "response.created":
            if self._conclusion.response is None:
                self._created(response, event)
            else:
                self.report.note("duplicate-dropped", None, "")
            return
        if self._conclusion.response is None:
            self._created(response)
        own = self._conclusion.own(response)
        self._empty_output(own)
        self._writer.put_response({"type": name, "response": own}, event, "event")

    def _item_event(self, event: dict[str, Any]) -> None:
        self._item_events = True
        if self._conclusion.tokens is not None:
            return
        if self._conclusion.response is None:
            self._created({}, seed=event)
        self._reader.receive(event)

    def _batch(self, event: dict[str, Any]) -> None:
        if self.report.mode == "lost":
            return
        try:
            batch = decode_batch(event)
        except FrameError as error:
            self.report.note("frame-refused", None, error.code)
            self._lose(str(error))
            return
        if self._conclusion.tokens is None and (self._item_events or batch.batch != 0 or batch.start != 0):
            self.report.note("frame-late", None, "")
            return
        try:
            (self._conclusion.tokens or self._begin_tokens(event)).receive(batch)
        except Lost as lost:
            self._lose(str(lost))

    def _begin_tokens(self, event: Mapping[str, Any]) -> TokenReader:
        if self._conclusion.response is None:
            self._created({}, seed=event)
        tokens = TokenReader(self._writer, self.report, self._tools or frozenset(), self._preambles, keep=self._keep_tokens)
        self._conclusion.tokens = tokens
        self._writer.noting = False
        self.report.mode = self.report.basis = "tokens"
        return tokens

    def _lose(self, reason: str) -> None:
        if self._conclusion.tokens is not None and self.report.mode == "tokens":
            self._conclusion.tokens.abandon()
            self._writer.noting = True
            self.report.mode = "lost"
            self.report.basis = "events"
            self.report.lost_reason = reason
            self.report.note("tokens-lost", None, "")

    # --- the response object ----------------------------------------------------------------------

    def _created(self, response: Mapping[str, Any], event: dict[str, Any] | None = None, seed: Mapping[str, Any] | None = None) -> None:
        """Send ``response.created``: the server's, or one made from what is known."""
        own = filled(response, self.report, seed)
        if event is None:
            own |= {"status": "in_progress", "output": []}
        self._empty_output(own)
        self._conclusion.response = own
        self._writer.response_id = self.report.response_id = own["id"]
        if self._tools is None:
            tools = own["tools"]
            self._tools = tool_names(tools if isinstance(tools, list) else None)
        self._writer.put_response({"type": "response.created", "response": own}, event, "created")
        early, self._early = self._early, []
        for held in early:
            self._writer.put_plain(held)

    def _empty_output(self, response: dict[str, Any]) -> None:
        """At its beginning a response has no output."""
        if response["output"]:
            response["output"] = []
            self.report.note("opener-emptied")

    # --- endings ----------------------------------------------------------------------------------

    def _terminal(self, name: str, event: dict[str, Any]) -> None:
        given = event.get("response")
        response = given if isinstance(given, Mapping) else {}
        tokens = self._conclusion.tokens
        if tokens is not None and not tokens.done:
            self._lose("the stream ended without a last batch")
        if self._conclusion.response is None:
            self._created(response)
        if name == "response.failed":
            self._conclusion.by_failed(response, event)
        else:
            self._conclusion.by_snapshot(name, response, event)

    def _end_of_stream(self, error: BaseException | None) -> None:
        conclusion = self._conclusion
        if conclusion.answered:
            if self._error is not None:
                self.report.note("error-swallowed", None, "")
            conclusion.by_tokens()
        elif self._error is not None:
            conclusion.fail(failure_of(self._error))
        elif error is None and conclusion.tokens is None and self._writer.all_closed:
            conclusion.synthesize("completed")
        elif self._on_disconnect == "incomplete" and conclusion.response is not None:
            self.replaced = broken(error)
            self.report.error = self.replaced.code
            conclusion.synthesize("incomplete")
        else:
            conclusion.fail(broken(error))

    def _after_the_end(self, event: Mapping[str, Any]) -> None:
        name = event.get("type")
        if isinstance(name, str) and (name in TERMINAL_TYPES or name in _ONCE):
            self.report.note("terminal-repeated", None, "")

    def _hand_out(self, event: dict[str, Any] | None) -> list[dict[str, Any]]:
        out, self._writer.out = self._writer.out, []
        if self._observe:
            out = [] if event is None or event.get("type") == EVENT_TYPE else [event]
        self.report.events_sent += len(out)
        return out


def _print_of(event: Mapping[str, Any]) -> int | None:
    """A hash of a delta event and the part it is for; ``None`` for other events."""
    values = [event.get(name) for name in ("type", "item_id", "output_index", "content_index", "delta")]
    return hash(tuple(values)) if isinstance(values[-1], str) and all(isinstance(value, str | int | None) for value in values) else None


def _same_id(response: Mapping[str, Any], ours: Mapping[str, Any] | None) -> bool:
    return ours is not None and response.get("id") in (None, ours.get("id"))
