"""The seam between a server's engine and the wire: how token frames get into a response, whatever the server is.

What a tap for another server must bring (`server_ext.trtllm` is the one for TensorRT-LLM, `server_ext.replay` plays recorded engines):

1. **A name**, `"vllm/0.33.0"`: it tells clients which items that server's terminal response would list.
2. **Who asks.** Only a request that `asks_for_tokens` gets token frames; every other response keeps each of its bytes. A response that has
   them carries `ANSWER`. `server_ext.asgi.TokenRequests` does both for a server that is an ASGI application, and carries the question from
   the request to the code that makes the stream.
3. **What the engine says**: a function that reads one engine response into an `EngineOutput`.
4. **Two places in the stream.** What `Tap.receive` returns goes before the frames that the server makes of that engine response, and never
   before `response.created`. What `Tap.close` returns goes before the terminal event, or, where the server cannot build that event, in
   its place.
5. **Failing open.** A `Tap` never raises: at its first trouble it logs one line and is silent from then on. The code around it must do as
   much: where the server is not as expected, `report_once` and serve unchanged.

Nothing here is bound to an engine, and nothing but the standard library is needed.
"""

from __future__ import annotations

import logging
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from harmony_client.errors import FrameError
from harmony_client.wire import HEADER, HEADER_VALUE, MAX_BATCH_IDS, MAX_TOKEN_ID, TokenBatch, encode_batch

__all__ = ["ANSWER", "MAX_REPORTS", "EngineOutput", "Tap", "TokenFrames", "asks_for_tokens", "logger", "report_once"]

ANSWER: Final = (HEADER.encode(), HEADER_VALUE.encode())
"""The header of a response that has token frames, as ASGI writes headers."""

logger: Final = logging.getLogger("server_ext")

MAX_REPORTS: Final = 100
"""Lines of `report_once` in one process; a server that has more to complain of is known well enough."""

# What stands around the numbers of a plain frame, taken from one that `encode_batch` wrote: the wire format is known in one place only.
_PLAIN: Final = encode_batch(TokenBatch(11111, 22222, [33333])).decode()
_BEFORE_BATCH, _BEFORE_START, _BEFORE_IDS, _AFTER_IDS = re.split("11111|22222|33333", _PLAIN)

_reported: set[tuple[str, str, str]] = set()


def asks_for_tokens(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request with these ASGI headers asks for token frames. `1, 1` is how some proxies write a header given twice."""
    name, value = ANSWER
    return any(part.strip() == value for key, given in headers if key.lower() == name for part in given.split(b","))


def report_once(
    server: str, symbol: str, problem: str | BaseException, loss: str = "Served without token frames; nothing else changes."
) -> None:
    """Log what is not as expected, and what that costs: one line per server, symbol and problem, and `MAX_REPORTS` lines in a process.

    The text of an exception can quote what the model wrote. So the line has its type alone; the traceback follows at level DEBUG.

    Args:
        server: Name and version of the server.
        symbol: What is not as expected; replaced by the name of the attribute that an AttributeError misses.
        problem: What is wrong with it, in words of our own, or the exception that told.
        loss: A sentence: what happens instead.
    """
    if isinstance(problem, AttributeError) and problem.name:
        symbol = f"{type(problem.obj).__name__}.{problem.name}"
    words = problem if isinstance(problem, str) else _kind(problem)
    if (server, symbol, words) in _reported or len(_reported) >= MAX_REPORTS:
        return
    _reported.add((server, symbol, words))
    logger.warning("%s: %s: %s. %s", server, symbol, words, loss)
    if not isinstance(problem, str):
        logger.debug("The exception of the line above", exc_info=problem)


def _kind(error: BaseException) -> str:
    return type(error).__name__ + (f" {error.code}" if isinstance(error, FrameError) else "")


class EngineOutput(NamedTuple):
    """What a tap must know of one engine response.

    Attributes:
        token_ids: The new ids, those that no earlier engine response of this request had.
        done: Whether it is the last one.
        finish_reason: Why generation ended ("stop", "length", "cancelled", …), in the last one.
        stop_reason: Id of a stop token that the engine trimmed from the ids, or a stop string, in the last one.
    """

    token_ids: Sequence[int]
    done: bool = False
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class TokenFrames:
    """Numbers the token batches of one response and writes their frames.

    Args:
        server: Name and version of the server, `"tensorrt-llm/1.2.1"`.
    """

    __slots__ = ("batch", "server", "start")

    def __init__(self, server: str) -> None:
        self.server = server
        self.batch = 0
        self.start = 0

    def take(self, token_ids: Sequence[int], **end: Any) -> TokenBatch:
        """The next token batch.

        Args:
            token_ids: Its ids.
            end: For the last batch, `done=True` and the fields of `TokenBatch` that only a last batch has; `total` is known here.
        """
        number, start = self.batch, self.start
        self.batch += 1
        self.start += len(token_ids)
        total = self.start if end else None
        return TokenBatch(number, start, token_ids, total=total, server=None if number else self.server, **end)

    def frame(self, token_ids: Sequence[int]) -> str:
        """The frame of the next token batch, which is not the last. A tenth of the cost of `encode_batch`, which writes the same.

        Raises:
            FrameError: If the ids are not ids of the vocabulary.
        """
        count = len(token_ids)
        if not self.batch or not 0 < count <= MAX_BATCH_IDS:
            return encode_batch(self.take(token_ids)).decode()
        try:
            highest = max(array("I", token_ids))  # refuses, at the speed of C, what is no int or below 0
        except (TypeError, OverflowError) as error:
            raise FrameError("bad-ids", f"token ids of batch {self.batch}: {error}") from None
        if highest > MAX_TOKEN_ID:
            raise FrameError("bad-ids", f"token id {highest} of batch {self.batch} is above {MAX_TOKEN_ID}")
        ids = ("%d," * count % tuple(token_ids))[:-1]  # twice as fast as joining
        frame = f"{_BEFORE_BATCH}{self.batch}{_BEFORE_START}{self.start}{_BEFORE_IDS}{ids}{_AFTER_IDS}"
        self.batch += 1
        self.start += count
        return frame


class Tap:
    """The token frames of one response, for a server's code to put into its stream. It never raises.

    It can be pickled, so that it can go with a request to a worker process.

    Args:
        server: Name and version of the server, `"tensorrt-llm/1.2.1"`.
        read: Reads one engine response of that server; a function of a module, so that it can be pickled.
    """

    __slots__ = ("_frames", "_last", "_read", "server")

    def __init__(self, server: str, read: Callable[[Any], EngineOutput]) -> None:
        self.server = server
        self._read = read
        self._frames: TokenFrames | None = TokenFrames(server)
        self._last = EngineOutput(())

    @property
    def open(self) -> bool:
        """Whether there can be frames yet: it was not closed, and nothing went wrong."""
        return self._frames is not None

    @property
    def done(self) -> bool:
        """Whether the last engine response was received, and its tokens are not yet closed."""
        return self._frames is not None and self._last.done

    def receive(self, response: Any) -> str:
        """The frame that goes before what the server makes of an engine response; `""` for one without ids, and after trouble."""
        if self._frames is None:
            return ""
        try:
            self._last = self._read(response)
            return self._frames.frame(self._last.token_ids) if len(self._last.token_ids) else ""
        except Exception as error:
            self.stop("engine response", error)
            return ""

    def close(self, error: BaseException | None = None) -> str:
        """The frame that goes before the terminal event, once; `""` after trouble.

        Args:
            error: What kept the server from building its terminal response.
        """
        frames, self._frames = self._frames, None
        if frames is None:
            return ""
        last = self._last
        end = {"finish_reason": last.finish_reason, "stop_reason": last.stop_reason, "snapshot_error": error and type(error).__name__}
        try:
            return encode_batch(frames.take((), done=True, **end)).decode()
        except Exception as trouble:
            self.stop("last engine response", trouble)
            return ""

    def stop(self, symbol: str, problem: str | BaseException) -> None:
        """Send no more frames for this response, and log why."""
        self._frames = None
        report_once(self.server, symbol, problem)
