"""What a server is about to send: the events and token batches of one response, before they are bytes.

A healthy draft is what this package itself makes of the tokens: the events of a server that streams each token and loses nothing. Faults
(`harmony_client.testing.faults`) edit it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from harmony_client.grammar import PARTS
from harmony_client.repair import StreamRepairer
from harmony_client.wire import TokenBatch, encode_batch

__all__ = ["Draft", "Ending", "Event", "Role", "Sent", "draft"]

Event = dict[str, Any]
Role = Literal["response", "terminal", "added", "part-added", "delta", "text-done", "part-done", "done"]
Ending = Literal["end", "reset", "timeout", "cut-off"]

_ROLES: Final[Mapping[str | None, Role]] = {
    "response.output_item.added": "added",
    "response.output_item.done": "done",
    "response.completed": "terminal",
    "response.incomplete": "terminal",
    **{kind.added: "part-added" for kind in PARTS.values()},
    **{kind.delta: "delta" for kind in PARTS.values()},
    **{kind.done: "text-done" for kind in PARTS.values()},
    **{kind.closed: "part-done" for kind in PARTS.values()},
}


@dataclass(slots=True)
class Sent:
    """One event.

    Attributes:
        token: Position of the token that it was made of; -1 before the first.
        event: Its payload; the `sequence_number` is given when it is sent, unless there is one.
        item: Position of the item it speaks of, whatever its `output_index` says.
        role: What it does.
    """

    token: int
    event: Any
    item: int | None = None
    role: Role = "response"


@dataclass(slots=True)
class Draft:
    """One response.

    Attributes:
        token_ids: What the model wrote, without a stop token that the engine trims.
        tokens_per_batch: Ids in one engine response.
        finish_reason: Why generation ended.
        server: Name and version, for the first token batch.
        sent: The events, in order.
        kinds: The type of each item.
        stop_reason: Id of the trimmed stop token.
        snapshot_error: The exception that kept the server from making its terminal response.
        lost_batch: Number of the token batch that is not sent.
        ending: What happens after the last frame.
    """

    token_ids: list[int]
    tokens_per_batch: int
    finish_reason: str
    server: str | None
    sent: list[Sent] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    stop_reason: int | None = None
    snapshot_error: str | None = None
    lost_batch: int | None = None
    ending: Ending = "end"

    def find(self, role: Role, kind: str | None = None) -> list[Sent]:
        """The events of a role, of items of one type if it is given."""
        return [sent for sent in self.sent if sent.role == role and (kind is None or self.kind(sent) == kind)]

    def kind(self, sent: Sent) -> str | None:
        """The type of the item that an event speaks of."""
        return None if sent.item is None else self.kinds[sent.item]

    @property
    def batches(self) -> Sequence[range]:
        """The positions of the tokens in each batch; there is at least one batch."""
        count, size = len(self.token_ids), self.tokens_per_batch
        return [range(at, min(at + size, count)) for at in range(0, count, size)] or [range(0)]

    @property
    def response(self) -> Event:
        """The terminal response."""
        response: Event = self.find("terminal")[-1].event["response"]
        return response

    def seen(self) -> tuple[object, ...]:
        """All that a client can see of it."""
        return (list(self.frames(tokens=False)), [*self.token_ids], self.stop_reason, self.snapshot_error, self.lost_batch, self.ending)

    def frames(self, *, tokens: bool) -> Iterator[bytes]:
        """The SSE frames.

        Args:
            tokens: Whether each batch's frames come after its token frame.
        """
        waiting = list(zip(self.sent, _numbered([sent.event for sent in self.sent]), strict=True))
        waiting.reverse()
        for batch in [range(-1, 0), *self.batches]:
            if tokens and batch.start >= 0 and batch.start // self.tokens_per_batch != self.lost_batch:
                yield encode_batch(self._token_batch(batch))
            while waiting and waiting[-1][0].token < batch.stop:
                yield _frame(waiting.pop()[1])
        yield from (_frame(event) for _, event in reversed(waiting))

    def _token_batch(self, batch: range) -> TokenBatch:
        number, ids = batch.start // self.tokens_per_batch, self.token_ids[batch.start : batch.stop]
        server = None if number else self.server
        if batch.stop < len(self.token_ids):
            return TokenBatch(number, batch.start, ids, server=server)
        ending = {"finish_reason": self.finish_reason, "stop_reason": self.stop_reason, "snapshot_error": self.snapshot_error}
        return TokenBatch(number, batch.start, ids, done=True, server=server, **ending)  # type: ignore[arg-type]


def draft(
    token_ids: list[int],
    *,
    tokens_per_batch: int,
    finish_reason: str,
    server: str | None,
    request: Mapping[str, Any],
    serial: int,
) -> Draft:
    """The draft of a server that loses nothing.

    Args:
        token_ids: What the model wrote.
        tokens_per_batch: Ids in one engine response.
        finish_reason: `stop` or `length`.
        server: Name and version of the server, which decide what its terminal response lists.
        request: The body of the request: its model and tools are repeated in the response.
        serial: Makes the ids of a response that is sent again others.
    """
    made = Draft(list(token_ids), tokens_per_batch, finish_reason, server)
    seed = hashlib.sha256(f"{serial} {token_ids}".encode()).hexdigest()[:24]
    response = _response(f"resp_server_{seed}", request)  # the items' ids derive from this one, so the client would mint others
    tools = response["tools"]
    repairer = StreamRepairer(tools=tools, on_mismatch="ignore")
    for name in ("response.created", "response.in_progress"):
        _add(made, -1, repairer.receive({"type": name, "response": response}))
    for at, token in enumerate(token_ids):
        last = at == len(token_ids) - 1
        end = {"done": True, "finish_reason": finish_reason} if last else {}
        batch = TokenBatch(at, at, [token], server=None if at else server, **end)  # type: ignore[arg-type]
        _add(made, at, repairer.receive(json.loads(encode_batch(batch).partition(b"data: ")[2])))
    _add(made, len(token_ids), repairer.receive_eof())
    made.response["usage"] = _usage(len(token_ids))
    for sent in made.sent:
        if "response" in sent.event:
            sent.event["response"]["id"] = f"resp_{seed}"
    return made


def _add(made: Draft, token: int, events: list[Event]) -> None:
    for event in json.loads(json.dumps(events)):  # nothing is shared between two events, or faults would hit both
        event.pop("sequence_number", None)
        if event["type"] == "response.output_item.added":
            made.kinds.append(event["item"]["type"])
        made.sent.append(Sent(token, event, event.get("output_index"), _ROLES.get(event["type"], "response")))


def _response(response_id: str, request: Mapping[str, Any]) -> Event:
    tools = request.get("tools")
    return {
        "id": response_id,
        "object": "response",
        "created_at": 1_790_000_000,
        "model": request.get("model") or "gpt-oss-120b",
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": tools if isinstance(tools, list) else [],
        "error": None,
        "incomplete_details": None,
        "usage": None,
    }


def _usage(output_tokens: int) -> Event:
    return {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": output_tokens,
    }


def _numbered(events: list[Any]) -> list[Any]:
    """The events with the sequence numbers 0, 1, 2 and so on, but for those that have one."""
    return [
        {**event, "sequence_number": number} if isinstance(event, dict) and "sequence_number" not in event else event
        for number, event in enumerate(events)
    ]


def _frame(event: Any) -> bytes:
    name = event.get("type", "message") if isinstance(event, dict) else "message"
    return f"event: {name}\ndata: {json.dumps(event, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()
