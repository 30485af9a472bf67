"""The tap of TensorRT-LLM 1.1, which has no processor class: its function `process_streaming_events` is given a tapped source.

That function draws engine responses from a generator and yields frames. Token frames must not wait for its next frame, as whole messages
(tool calls, preambles) bring none. So it runs in a task of its own that fills a queue of one place, and the source that it draws from
puts token frames into the same queue.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from server_ext.asgi import current_exchange
from server_ext.tap import Tap, report_once
from server_ext.trtllm.engine import free_parser, read_result, server_name
from server_ext.trtllm.failures import STOPS, log_failure

__all__ = ["NAME", "is_tapped", "tapped"]

NAME: Final = "process_streaming_events"
_TERMINAL: Final = ("event: response.completed\n", "event: response.incomplete\n", "event: response.failed\n")
_END: Final = object()
_MARK: Final = "_server_ext_tapped"


def is_tapped(function: Any) -> bool:
    """Whether a function is one that `tapped` made."""
    return hasattr(function, _MARK)


def tapped(original: Callable[..., Any]) -> Callable[..., Any]:
    """`process_streaming_events` with token frames for requests that ask; for all others it is called as it is."""

    @functools.wraps(original)
    def process_streaming_events(*args: Any, **kwargs: Any) -> Any:
        exchange = current_exchange()
        if exchange is None:
            return original(*args, **kwargs)
        try:
            stream = _Stream(original, inspect.signature(original).bind(*args, **kwargs))
        except Exception as error:
            report_once(server_name(), NAME, error)
            return original(*args, **kwargs)
        exchange.begin()
        return stream.frames()

    setattr(process_streaming_events, _MARK, True)
    return process_streaming_events


class _Stream:
    """One response."""

    def __init__(self, original: Callable[..., Any], call: inspect.BoundArguments) -> None:
        self._tap = Tap(server_name(), read_result)
        self._queue: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)
        self._arguments = call.arguments
        self._error: BaseException | None = None
        self._is_closed = False
        call.arguments["generator"] = _Source(call.arguments["generator"], self._receive)
        self._events = original(*call.args, **call.kwargs)

    async def frames(self) -> AsyncIterator[Any]:
        """The server's frames with token frames between them."""
        task = asyncio.create_task(self._run())
        try:
            while (frame := await self._queue.get()) is not _END:
                yield frame
        finally:
            self._is_closed = True
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        try:
            async with aclosing(self._events) as events:
                await self._pass_on(events)
        except BaseException as error:  # whatever it is, it is for the task that reads the frames
            if self._is_closed:
                raise
            self._error = error
        finally:
            free_parser(self._free)
        await self._queue.put(_END)

    async def _pass_on(self, events: AsyncIterator[Any]) -> None:
        try:
            async for frame in events:
                if _is_terminal(frame):
                    await self._put(self._tap.close())
                await self._queue.put(frame)
        except STOPS:
            raise
        except BaseException as error:
            last = self._tap.close(error) if self._tap.done else ""
            if not last:
                raise
            log_failure(error)
            await self._put(last)
        if self._tap.open:
            loss = "The last token frame comes at the end, or not at all."
            report_once(server_name(), NAME, "gave no terminal event that is known", loss)
        if self._tap.done:
            await self._put(self._tap.close())

    async def _receive(self, result: Any) -> None:
        await self._put(self._tap.receive(result))

    async def _put(self, frame: str) -> None:
        if frame:
            await self._queue.put(frame)

    def _free(self) -> None:
        self._arguments["harmony_adapter"].cleanup_stream_state(f"responses-api-{self._arguments['request'].request_id}")


def _is_terminal(frame: Any) -> bool:
    text = frame.decode(errors="replace") if isinstance(frame, bytes) else frame
    return isinstance(text, str) and text.startswith(_TERMINAL)


class _Source:
    """The engine's generator, which shows each engine response to the tap before it hands it out."""

    def __init__(self, generator: Any, receive: Callable[[Any], Awaitable[None]]) -> None:
        self._generator = generator
        self._results = aiter(generator)
        self._receive = receive

    def __aiter__(self) -> _Source:
        return self

    async def __anext__(self) -> Any:
        result = await anext(self._results)
        await self._receive(result)
        return result

    def __await__(self) -> Any:
        return self._generator.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)
