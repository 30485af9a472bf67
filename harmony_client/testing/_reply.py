"""One scripted reply of a server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal, TypedDict, get_args

from harmony_client import wire
from harmony_client.report import Report
from harmony_client.testing import _complaints
from harmony_client.testing._draft import Draft, draft
from harmony_client.testing._faults import apply
from harmony_client.testing._http import Play, asked, body_of, json_response, stream_response
from harmony_client.testing._tokens import Call, encode, message_ids, without_last_stop

__all__ = ["Reply", "ReplyDict"]

Verdict = Literal["match", "mismatch", "unverifiable", "any"]
Cut = Literal["reset", "timeout", "end"]
FinishReason = Literal["stop", "length"]

_CHOICES: Final[Mapping[str, Any]] = {"finish_reason": FinishReason, "cut_by": Cut, "verdict": Verdict}


class ReplyDict(TypedDict, total=False):
    """The keyword arguments of :class:`Reply`, none of them required."""

    reasoning: str | None
    preamble: str | None
    calls: Sequence[Call]
    harmony: str | None
    finish_reason: FinishReason
    tokens: bool
    tokens_per_batch: int
    server: str | None
    faults: str | Sequence[str]
    chunk: Literal["frame", "byte"] | int
    cut_after: int | None
    cut_by: Cut
    verdict: Verdict | None
    optional: bool


@dataclass(eq=False)
class Reply:
    """What a server answers a request with: a model output, and how it travels.

    A reply is a function of a request that returns a response, so it can be a respx side effect, a handler of an httpx or httpx2
    ``MockTransport``, or one of a list of side effects. It may answer many requests.

    Args:
        answer: The text of the final message.
        reasoning: The text of the reasoning before it.
        preamble: What the model says to the user before it calls a tool.
        calls: Tool calls: name and arguments, as a mapping or as text.
        harmony: The whole output as Harmony text with its special tokens spelled out, in place of the above.
        finish_reason: ``stop``, or ``length``: the token limit cuts the last message.
        tokens: Whether the server has the extension: it sends token batches to the clients that ask for them.
        tokens_per_batch: Tokens of one engine response.
        server: Name and version that the first token batch gives; without one, the output items are those that TensorRT-LLM lists.
        faults: Names of :data:`FAULTS` or :data:`PRESETS`.
        chunk: How the body is cut up on its way: ``frame`` by ``frame``, ``byte`` by byte, or a number of bytes.
        cut_after: Number of SSE frames (token batches count) after which the stream ends.
        cut_by: How it ends then: connection ``reset``, read ``timeout``, or ``end``, as if that were all.
        verdict: What the client's report must say. Without it ``match``, or anything if the reply is cut or has no terminal event.
        optional: Whether the test may do without the reply, or leave its stream unread.

    Attributes:
        plays: What became of it, once per request.

    Raises:
        ValueError: The reply says nothing, an option has a value that does not exist, or a fault does not show in it.
    """

    answer: str | None = None
    _: KW_ONLY
    reasoning: str | None = None
    preamble: str | None = None
    calls: Sequence[Call] = ()
    harmony: str | None = None
    finish_reason: FinishReason = "stop"
    tokens: bool = True
    tokens_per_batch: int = 1
    server: str | None = None
    faults: str | Sequence[str] = ()
    chunk: Literal["frame", "byte"] | int = "frame"
    cut_after: int | None = None
    cut_by: Cut = "reset"
    verdict: Verdict | None = None
    optional: bool = False
    plays: list[Play] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in (*get_args(choices), *([None] if name == "verdict" else [])):
                raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}, not {getattr(self, name)!r}")
        if self.chunk not in ("frame", "byte") and (not isinstance(self.chunk, int) or self.chunk < 1):
            raise ValueError(f"chunk must be 'frame', 'byte' or a number of bytes, not {self.chunk!r}")
        if self.tokens_per_batch < 1:
            raise ValueError(f"tokens_per_batch must be 1 or more, not {self.tokens_per_batch!r}")
        parts = (self.answer, self.reasoning, self.preamble, self.calls or None)
        if all(part is None for part in (*parts, self.harmony)):
            raise ValueError("a reply needs an answer, reasoning, a preamble, calls or harmony")
        if self.harmony is not None and any(part is not None for part in parts):
            raise ValueError("harmony is the whole output: nothing can be said beside it")
        self._draft({})  # here a fault that does not show is an error of the line that scripts it

    # --- what is sent -------------------------------------------------------------------------------

    @property
    def token_ids(self) -> list[int]:
        """What the model writes. The ids spell the texts, but are not always those that the model would choose."""
        if self.harmony is not None:
            ids = encode(self.harmony)
        else:
            ids = message_ids(reasoning=self.reasoning, preamble=self.preamble, calls=self.calls, answer=self.answer)
        return without_last_stop(ids) if self.finish_reason == "length" else ids

    def frames(self, *, tokens: bool | None = None, request: Mapping[str, Any] | None = None) -> list[bytes]:
        """The SSE frames of the stream, as far as it goes.

        Args:
            tokens: Whether token batches are among them; without it as the reply says.
            request: The body of the request, whose model and tools the response repeats.
        """
        wanted = self.tokens if tokens is None else tokens
        return list(self._draft(request or {}).frames(tokens=wanted))[: self.cut_after]

    def body(self, *, tokens: bool | None = None) -> bytes:
        """The body of the stream, with the arguments of :meth:`frames`."""
        return b"".join(self.frames(tokens=tokens))

    def events(self, *, tokens: bool | None = None) -> list[Any]:
        """The payloads of the frames, with the arguments of :meth:`frames`."""
        return [json.loads(frame.partition(b"\ndata: ")[2]) for frame in self.frames(tokens=tokens)]

    def stream(self, *, tokens: bool | None = None) -> Any:
        """The body as a stream, for a response of httpx or httpx2 that you make; for synchronous and asynchronous clients."""
        return body_of(self._play({}, self.tokens if tokens is None else tokens))

    def response(self, request: Any = None) -> Any:
        """The response to a request of httpx or httpx2.

        Args:
            request: The request. Without one a response of httpx for a request that asks for a stream, with token batches if the
                reply has them: for ``return_value=`` of respx.
        """
        if request is None:
            return stream_response(None, self._play({}, self.tokens), tokens=self.tokens)
        body, streamed = asked(request)
        if not streamed:
            return self._whole(request, body)
        tokens = self.tokens and request.headers.get(wire.HEADER) == wire.HEADER_VALUE
        return stream_response(request, self._play(body, tokens), tokens=tokens)

    def __call__(self, request: Any) -> Any:
        """Answer a request."""
        return self.response(request)

    def _whole(self, request: Any, body: dict[str, Any]) -> Any:
        self.plays.append(Play(body, streamed=False))
        made = self._draft(body)
        if not made.find("terminal"):
            return json_response(request, 500, {"error": {"message": "the server could not make its response", "code": "server_error"}})
        return json_response(request, 200, made.response)

    def _play(self, request: dict[str, Any], tokens: bool) -> Play:
        made = self._draft(request)
        every = list(made.frames(tokens=tokens))
        frames = every[: self.cut_after]
        ending = made.ending if self.cut_after is None else self.cut_by
        play = Play(request, _chunks(frames, self.chunk), ending, frames=len(every))
        self.plays.append(play)
        return play

    def _draft(self, request: Mapping[str, Any]) -> Draft:
        made = draft(
            self.token_ids,
            tokens_per_batch=self.tokens_per_batch,
            finish_reason=self.finish_reason,
            server=self.server,
            request=request,
            serial=len(self.plays),
        )
        apply(made, self.faults)
        return made

    # --- what became of it --------------------------------------------------------------------------

    @property
    def reports(self) -> list[Report]:
        """The reports of the wrapped clients that read it, in order."""
        return [play.report for play in self.plays if play.report is not None]

    @property
    def expected(self) -> Verdict:
        """The verdict that the client's report must have."""
        if self.verdict is not None:
            return self.verdict
        made = self._draft({})
        whole = self.cut_after is None and made.ending == "end" and made.find("terminal")
        return "match" if whole else "any"

    def complaints(self, name: str = "the reply") -> list[str]:
        """What the test left undone, in sentences.

        Args:
            name: How they call it.
        """
        return [] if self.optional and not any(play.read for play in self.plays) else list(_complaints.of(self, name))

    def __str__(self) -> str:
        said = [word for word in ("reasoning", "preamble", "harmony") if getattr(self, word) is not None]
        said += [f"call of {name}" for name, _ in self.calls]
        if self.answer is not None:
            said.append(f"answer {self.answer if len(self.answer) <= 24 else self.answer[:23] + '…'!r}")
        return ", ".join(said)


def _chunks(frames: list[bytes], chunk: Literal["frame", "byte"] | int) -> list[bytes]:
    if chunk == "frame":
        return frames
    body, size = b"".join(frames), 1 if chunk == "byte" else int(chunk)
    return [body[at : at + size] for at in range(0, len(body), size)]
