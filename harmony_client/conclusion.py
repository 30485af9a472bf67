"""The conclusion of one response: its terminal event, or the one error that takes its place."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Literal

from harmony_client.endings import filled, rebuilt, terminal_type
from harmony_client.errors import LimitError, StreamError, VerificationError
from harmony_client.output import Item, view
from harmony_client.report import Difference, Report
from harmony_client.resolve import Resolver
from harmony_client.tokens import Message, TokenReader
from harmony_client.verify import Entry, Snapshot
from harmony_client.writer import Writer

__all__ = ["Conclusion", "OnMismatch"]

OnMismatch = Literal["warn", "raise", "ignore"]

logger = logging.getLogger("harmony_client")


class Conclusion:
    """Ends a response, once.

    Attributes:
        finished: The response has ended.
        failure: The error that ended it, or ``None``.
        response: The response object as announced to the application, or ``None`` before that.
        tokens: The reader of its token batches, if there were any.
    """

    def __init__(self, writer: Writer, report: Report, items: Resolver, on_mismatch: OnMismatch) -> None:
        self.finished = False
        self.failure: StreamError | None = None
        self.response: dict[str, Any] | None = None
        self.tokens: TokenReader | None = None
        self._writer = writer
        self._report = report
        self._items = items
        self._on_mismatch = on_mismatch

    @property
    def answered(self) -> bool:
        """Whether the tokens hold the whole answer."""
        return self.tokens is not None and self.tokens.done and self._report.mode == "tokens"

    @property
    def cut(self) -> bool:
        """Whether the tokens say that the answer was cut off."""
        return self.tokens is not None and self.answered and self.tokens.cut

    # --- with a terminal event --------------------------------------------------------------------

    def by_snapshot(self, name: str, response: Mapping[str, Any], event: dict[str, Any]) -> None:
        """End with the server's terminal event: settle and compare by its snapshot, rebuild its output.

        Raises:
            LimitError: The snapshot lists more items than a response may have.
        """
        self._report.server_response = dict(response)
        name, status = terminal_type(name, response, cut=self.cut)
        known = {value: item for value, item in self._items.known.items() if value not in self._items.shared}
        snapshot = Snapshot(response.get("output"), self._entries(), known, whole=self.answered)
        snapshot.settle(self._writer, status)
        status = self._by_items(status)
        name = name if status == "cancelled" else f"response.{status}"
        self._note_kept()
        snapshot.compare(self._report, self._report.server)
        self._compare_status(response, status)
        own = self.own(response)
        own["output"] = rebuilt(self._writer, self._report, snapshot, response.get("output"), status)
        if own.get("status") != status:
            own["status"] = status
        if status == "incomplete" and not own.get("incomplete_details") and self.answered:
            own["incomplete_details"] = self._details()
        self._report.verdict = "mismatch" if self._report.unexpected_differences else "match"
        self._end(name, own, event)

    def _by_items(self, status: str) -> str:
        """A response whose last item was cut is incomplete (Open Responses: incomplete is final)."""
        last = self._writer.items[-1] if self._writer.items else None
        cut = last is not None and last.status == "incomplete" and not last.kind.opaque
        return "incomplete" if cut and status == "completed" else status

    def _note_kept(self) -> None:
        """An incomplete item should be the last; one that is not is reported, and no more can be done."""
        for item in self._writer.items[:-1]:
            if item.status == "incomplete" and not item.kind.opaque:
                self._report.note("status-kept", item.index)

    def by_failed(self, response: Mapping[str, Any], event: dict[str, Any]) -> None:
        """End with the server's ``response.failed``; not if the tokens hold the answer that it could not list."""
        if self.answered and self.tokens is not None and self.tokens.snapshot_error:
            self._report.note("error-swallowed", None, "")
            self.by_tokens()
            return
        self._report.server_response = dict(response)
        self.close_all("incomplete")
        own = self.own(response)
        if own["output"]:
            own["output"] = [view(item) for item in self._writer.items]
        own["status"] = "failed"
        self._end("response.failed", own, event)

    def by_tokens(self) -> None:
        """End with a terminal event made from the tokens, which say that the answer is whole, or was cut."""
        self.synthesize("incomplete" if self.cut else "completed")

    def synthesize(self, status: str) -> None:
        """End with a terminal event made from what was received."""
        self.close_all(status)
        status = self._by_items(status)
        output = [view(item) for item in self._writer.items]
        details = self._details() if status == "incomplete" and self.answered else None
        self._end(f"response.{status}", {**(self.response or {}), "status": status, "output": output, "incomplete_details": details}, None)

    # --- with an error ----------------------------------------------------------------------------

    def fail(self, error: StreamError) -> None:
        """Close what is open and end with an error that carries everything received."""
        self.finished = True
        self._report.ending, self._report.error = "error", error.code
        if self.response is not None:
            with contextlib.suppress(LimitError):  # what is open past a bound cannot be announced
                self.close_all("incomplete")
            output = [view(item) for item in self._writer.items]
            error.partial = {**self.response, "status": "incomplete", "output": output}
        error.report = self._report
        self.failure = error

    # --- parts ------------------------------------------------------------------------------------

    def own(self, response: Mapping[str, Any]) -> dict[str, Any]:
        """A response object of the server's under the id that the application knows."""
        own = filled(response, self._report)
        given = response.get("id")
        if given != self._writer.response_id:
            self._report.note("response-id-rewritten", None, "")
            if isinstance(given, str) and given:
                self._report.ids[given] = self._writer.response_id
        own["id"] = self._writer.response_id
        return own

    def close_all(self, status: str) -> None:
        """Close every item that is open, as complete or not."""
        if self.tokens is not None:
            self.tokens.abandon()
        for item in list(self._writer.own_items()):
            self._writer.close(item, status)
        self._note_kept()

    def _entries(self) -> list[Entry]:
        if self.tokens is not None:
            return [_entry(message, self._report.server) for message in self.tokens.messages if message.plan.kind != "drop"]
        items: list[Item] = [*self._writer.items, *self._writer.pending]
        return [Entry(item, item.kind.name, item.held_text, item.kind.name) for item in items]

    def _compare_status(self, response: Mapping[str, Any], status: str) -> None:
        given = response.get("status")
        if self.answered and isinstance(given, str) and given != status:
            vllm = (self._report.server or "").startswith("vllm")
            reason = "the server calls a cut answer complete" if vllm else ""
            self._report.differences.append(Difference(None, "status", status, given, vllm, reason))

    def _details(self) -> dict[str, Any] | None:
        return {"reason": "max_output_tokens"} if self._report.finish_reason == "length" else None

    def _end(self, name: str, response: dict[str, Any], event: dict[str, Any] | None) -> None:
        """Send the terminal event, unless it must not be."""
        self.finished = True
        self._report.ending = response["status"]
        if self._report.verdict == "mismatch" and self._withheld(response):
            return
        if event is None:
            self._report.note("terminal-synthesized", None, "")
            self._writer.noting = False
        elif event.get("type") != name:
            self._report.note("terminal-type-fixed", None, "")
            event = {**event, "type": name}
        self._writer.put_response({"type": name, "response": response}, event, "terminal")

    def _withheld(self, response: dict[str, Any]) -> bool:
        """Whether a mismatch is raised in place of the terminal event; otherwise it may be logged."""
        if self._on_mismatch == "ignore":
            return False
        found = self._report.unexpected_differences
        where = "" if found[0].output_index is None else f" of item {found[0].output_index}"
        message = (
            f"the terminal response contradicts what was streamed: {found[0].field}{where} differs "
            f"({len(found)} difference(s) in all; see report.differences)"
        )
        if self._on_mismatch == "raise":
            self._report.ending, self._report.error = "error", "mismatch"
            self.failure = VerificationError(message, code="mismatch", partial=response, report=self._report)
            return True
        logger.warning("response %r: %s", self._report.response_id, message)
        for difference in found:
            logger.debug("response %r: %r", self._report.response_id, difference)
        return False


def _entry(message: Message, server: str | None) -> Entry:
    plan = message.plan
    misread = "mcp_call" if (server or "").startswith("vllm") else ""
    return Entry(message.item, plan.kind or "message", message.text, plan.listed, plan.reason, message.omissible, misread)
