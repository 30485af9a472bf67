"""The recorded streams and the cases of `tests/data`, as a server with or without token batches would send them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from harmony_client.wire import encode_batch
from server_ext import recording
from server_ext.recording import Batch

__all__ = ["NAMES", "Recording", "load", "load_all", "load_cases"]

Event = dict[str, Any]

NAMES = ("v12", "main", "pr", "vllm-0.33", "vllm-0.24")
_FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Recording(recording.Recording):
    """One recorded stream, with what only tests need to know of it. `tests/data/README.md` describes the fields."""

    finish: str = ""
    tools: Sequence[str] = ()
    harmony_text: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def ended(self) -> str:
        """`finished`, or `raised` where the server's code did. Whether the client is told: see `breaks`."""
        return "raised" if self.raised else "finished"

    @property
    def token_ids(self) -> list[int]:
        """The model's whole output."""
        return [token_id for batch in self.batches for token_id in batch.token_ids]

    @property
    def snapshot(self) -> Event | None:
        """The response in the server's terminal event, if it sent one."""
        return self.terminal_response()

    def events(self, frames: bool, k: int | None = None) -> list[Event]:
        """The payloads in order, each a new dict.

        Args:
            frames: Whether the server sends token batches.
            k: Ids per token batch; without it as recorded.
        """
        return [json.loads(frame.partition(b"data: ")[2]) for frame in self.frames(frames, k)]

    def sse(self, frames: bool, k: int | None = None) -> bytes:
        """The body of the HTTP response, with the arguments of `events`."""
        return b"".join(self.frames(frames, k))

    def frames(self, frames: bool, k: int | None = None) -> list[bytes]:
        """The body, frame by frame, with the arguments of `events`."""
        source = self if k is None else self.recut(k)
        body = [frame.encode() for frame in source.opening]
        for batch, token_batch in zip(source.batches, source.token_batches(), strict=True):
            body += [encode_batch(token_batch)] if frames else []
            body += [frame.encode() for frame in batch.frames]
        return body + [frame.encode() for frame in source.after]

    def recut(self, k: int) -> Recording:
        """The same events with k ids per token batch: each recorded batch's frames come with the batch that completes its ids."""
        ids = self.token_ids
        parts = [ids[at : at + k] for at in range(0, len(ids), k)] or [[]]
        frames: list[list[str]] = [[] for _ in parts]
        end = 0
        for batch in self.batches:
            end += len(batch.token_ids)
            frames[max(0, -(-end // k) - 1)].extend(batch.frames)
        return replace(self, batches=[Batch(part, own) for part, own in zip(parts, frames, strict=True)], pattern=str(k))


@cache
def load(name: str) -> tuple[Recording, ...]:
    """The recordings of one server version, one of `NAMES`."""
    return tuple(_recording(line) for line in _lines(name))


def load_all() -> list[Recording]:
    """All 463 recordings: 370 of TensorRT-LLM, 93 of vLLM."""
    return [recorded for name in NAMES for recorded in load(name)]


def load_cases() -> list[Event]:
    """The 100 cases, each a new dict."""
    return list(_lines("cases"))


def _lines(name: str) -> Iterator[Event]:
    with lzma.open(_FOLDER / f"{name}.jsonl.xz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def _recording(fields: Event) -> Recording:
    batches = [Batch(**batch) for batch in fields.pop("batches")]
    return Recording(batches=batches, **fields)
