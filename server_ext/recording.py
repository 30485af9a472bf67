r"""Streams that a replay server plays: recorded ones, loaded from JSON lines, and scripted ones, made from token ids.

A file of recordings has one JSON object per line::

    scenario, version, pattern   names; `pattern` is the number of tokens per engine response
    opening                      SSE frames sent before the first batch
    batches                      [{"token_ids": [...], "frames": ["event: …\ndata: …\n\n", …]}, …]
    after                        SSE frames sent after the last batch, on errors
    finish_reason, stop_reason   how generation ended; `stop_reason` is the id of a trimmed stop token
    raised                       "Type: message" where the server's own code raised at the last batch

Only `scenario` and `batches` are required; further fields are ignored.
"""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from harmony_client.wire import TokenBatch, encode_batch
from server_ext.tap import TokenFrames

__all__ = ["Batch", "Recording", "load", "script"]

_TERMINAL: Final = ("event: response.completed\n", "event: response.incomplete\n", "event: response.failed\n")
_SERVERS: Final = {"v12": "tensorrt-llm/1.2.1", "main": "tensorrt-llm/1.3.0rc", "pr": "tensorrt-llm/1.3.0rc"}
_SHIPPED: Final = "trtllm.jsonl"
_SCRIPTED: Final = "script"


class Batch(NamedTuple):
    """What one engine response brought: its tokens, and the SSE frames that the server made of them."""

    token_ids: list[int]
    frames: list[str]


@dataclass(frozen=True, slots=True)
class Recording:
    """One stream, engine response by engine response.

    Attributes:
        scenario: What kind of model output this is.
        batches: The engine responses in order.
        opening: SSE frames before the first batch.
        after: SSE frames after the last batch.
        version: The server it was made by.
        pattern: Tokens per engine response, "1", "20", "random:1".
        finish_reason: Why generation ended.
        stop_reason: Id of a stop token that is not among the ids because the engine trimmed it, or a stop string.
        raised: "Type: message" of the exception that the server's code raised at the last batch.
        note: One line for people.
    """

    scenario: str
    batches: Sequence[Batch]
    opening: Sequence[str] = ()
    after: Sequence[str] = ()
    version: str = ""
    pattern: str = ""
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    raised: str | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """`scenario@version:pattern`, by which a request asks for this recording."""
        return self.scenario + (f"@{self.version}" if self.version else "") + (f":{self.pattern}" if self.pattern else "")

    @property
    def server(self) -> str:
        """Name and version of the server, as its first token frame gives them."""
        if self.version.startswith("vllm-"):
            return self.version.replace("-", "/", 1)
        return _SERVERS.get(self.version, "tensorrt-llm/" + (self.version or "unknown"))

    @property
    def breaks(self) -> bool:
        """Whether the connection breaks after the last frame: the server raised, and did not say so in the stream."""
        return self.raised is not None and not self.after

    @property
    def response_id(self) -> str | None:
        """The id of the response, from the opening frames."""
        response = _payload(self.opening[0]).get("response") if self.opening else None
        return response.get("id") if isinstance(response, dict) else None

    def terminal_response(self) -> dict[str, Any] | None:
        """The response in the terminal event, which is what a request without streaming is answered with; None where there is none."""
        frames = [*(frame for batch in self.batches for frame in batch.frames), *self.after]
        terminal = next((frame for frame in reversed(frames) if frame.startswith(_TERMINAL)), None)
        response = _payload(terminal).get("response") if terminal else None
        return response if isinstance(response, dict) else None

    def chunks(self, *, tokens: bool) -> Iterator[bytes]:
        """The body of the stream: the opening, one chunk per batch (which may be empty), what comes after.

        Args:
            tokens: Whether a token frame precedes each batch's own frames, as `server_ext` sends it. Otherwise the chunks are the
                recorded bytes.
        """
        yield "".join(self.opening).encode()
        for batch, token_batch in zip(self.batches, self.token_batches(), strict=True):
            frames = "".join(batch.frames).encode()
            yield encode_batch(token_batch) + frames if tokens else frames
        yield "".join(self.after).encode()

    def token_batches(self) -> Iterator[TokenBatch]:
        """The token batches of the stream; the last one says how generation ended."""
        frames = TokenFrames(self.server)
        for ids, _ in self.batches[:-1]:
            yield frames.take(ids)
        for ids, _ in self.batches[-1:]:
            error = None if self.raised is None else self.raised.partition(":")[0]
            yield frames.take(ids, done=True, finish_reason=self.finish_reason, stop_reason=self.stop_reason, snapshot_error=error)

    def rebatched(self, tokens_per_batch: int) -> Recording:
        """The same stream with another number of tokens per engine response.

        Raises:
            ValueError: If the number is below 1, or batches other than the last have frames: what a server makes of another batch is
                not known.
        """
        if tokens_per_batch < 1:
            raise ValueError(f"{tokens_per_batch} tokens per batch; at least 1 is needed")
        if any(batch.frames for batch in self.batches[:-1]):
            raise ValueError(f"{self.name} has events that belong to its batches, so it can only be played as it was recorded")
        ids = [token_id for batch in self.batches for token_id in batch.token_ids]
        parts = [ids[at : at + tokens_per_batch] for at in range(0, len(ids), tokens_per_batch)] or [[]]
        frames = self.batches[-1].frames if self.batches else []
        batches = [*(Batch(part, []) for part in parts[:-1]), Batch(parts[-1], frames)]
        return replace(self, batches=batches, pattern=str(tokens_per_batch))


def load(path: str | Path | None = None) -> list[Recording]:
    """Load recordings.

    Args:
        path: A file of JSON lines, which may be compressed (`.gz`, `.xz`); None for the shipped ones.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it holds no recording or a line is not one; the message names file and line.
    """
    if path is None:
        with (resources.files("server_ext") / "recordings" / _SHIPPED).open(encoding="utf-8") as lines:
            return _read(lines, _SHIPPED)
    try:
        with _open(Path(path)) as lines:
            return _read(lines, str(path))
    except (EOFError, lzma.LZMAError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be decompressed or is not UTF-8 ({error})") from error


def script(
    name: str,
    token_ids: Iterable[int],
    *,
    tokens_per_batch: int = 1,
    finish_reason: str = "stop",
    stop_reason: int | str | None = None,
    output: Sequence[Mapping[str, Any]] | None = (),
    raised: str | None = None,
) -> Recording:
    """Make a stream from a model's output: a server that opens, sends only tokens, and ends with a terminal event.

    So all the text comes by the tokens, as if the server had lost every event in between.

    Args:
        name: Its scenario name.
        token_ids: The model's output.
        tokens_per_batch: Tokens per engine response; a request can ask for another number (`name:20`).
        finish_reason: Why generation ended; "length" ends in `response.incomplete`.
        stop_reason: Id of a trimmed stop token, or a stop string.
        output: The items that the terminal event lists; None: the stream ends without a terminal event.
        raised: "Type: message" of an exception at the last batch: no terminal event, and the connection breaks.

    Raises:
        ValueError: If `tokens_per_batch` is below 1.
    """
    ids = list(token_ids)
    response = _response(name)
    opening = [_frame("response.created", response, 0), _frame("response.in_progress", response, 1)]
    frames = []
    if output is not None and raised is None:
        frames.append(_terminal_frame(response, output, finish_reason, len(ids)))
    return Recording(
        scenario=name,
        batches=[Batch(ids, frames)],
        opening=opening,
        version=_SCRIPTED,
        finish_reason=finish_reason,
        stop_reason=stop_reason,
        raised=raised,
    ).rebatched(tokens_per_batch)


def _response(name: str) -> dict[str, Any]:
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 0,
        "model": "gpt-oss-120b",
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "incomplete_details": None,
        "usage": None,
    }


def _terminal_frame(response: Mapping[str, Any], output: Sequence[Mapping[str, Any]], finish_reason: str, tokens: int) -> str:
    status = "incomplete" if finish_reason == "length" else "completed"
    usage = {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens,
    }
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    ended = {**response, "status": status, "output": list(output), "incomplete_details": details, "usage": usage}
    return _frame(f"response.{status}", ended, 2)


def _frame(event: str, response: Mapping[str, Any], number: int) -> str:
    data = json.dumps({"response": response, "sequence_number": number, "type": event}, separators=(",", ":"))
    return f"event: {event}\ndata: {data}\n\n"


def _payload(frame: str) -> dict[str, Any]:
    payload = json.loads(frame.partition("\ndata: ")[2])
    return payload if isinstance(payload, dict) else {}


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _read(lines: Iterable[str], source: str) -> list[Recording]:
    recordings = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                recordings.append(_recording(json.loads(line)))
            except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
                raise ValueError(f"{source}:{number}: not a recording ({type(error).__name__}: {error})") from error
    if not recordings:
        raise ValueError(f"{source}: no recordings in it")
    return recordings


def _recording(fields: Mapping[str, Any]) -> Recording:
    known = {name: fields[name] for name in Recording.__dataclass_fields__ if fields.get(name) is not None}
    batches = [Batch(list(batch["token_ids"]), list(batch["frames"])) for batch in fields["batches"]]
    recording = Recording(**{**known, "scenario": fields["scenario"], "batches": batches})
    list(recording.chunks(tokens=True))  # so that a bad id or frame is found here and not in the middle of a replay
    recording.response_id, recording.terminal_response()
    return recording
