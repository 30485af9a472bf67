"""The tap of TensorRT-LLM 1.1, mostly without a socket: its function may be called, fail and end as it likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from server_ext import asgi, tap
from server_ext.recording import Recording, script
from tests import trtllm_double
from tests.test_trtllm_faults import HELLO, OLD, lines
from tests.test_trtllm_processor import WHOLE, PanicException, body, parts
from tests.trtllm_double import GenerationResult, Response, ResponsesRequest
from tests.trtllm_servers import Modules, ids_of, serving

Events = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Modules]:
    monkeypatch.setattr(tap, "_reported", set())
    with trtllm_double.installed("1.1") as modules:
        yield modules


async def engine(recording: Recording = WHOLE, *, ends: bool = True) -> Any:
    """The engine's generator."""
    result = GenerationResult(1)
    for number, batch in enumerate(recording.batches, 1):
        is_last = ends and number == len(recording.batches)
        result._handle_response(Response(1, batch.token_ids, is_last, recording.finish_reason if is_last else None, None))
        yield result


def called(events: Events, *args: Any, **kwargs: Any) -> tuple[Any, asgi.Exchange]:
    """What the server gets from its function in a request that asks."""
    from server_ext.trtllm.generator import tapped

    token = asgi._current.set(exchange := asgi.Exchange())
    try:
        return tapped(events)(*args, **kwargs), exchange
    finally:
        asgi._current.reset(token)


def serve(events: Events, recording: Recording = WHOLE, **options: Any) -> Any:
    request = ResponsesRequest("m", recording=recording, request_id="resp_1")
    adapter = trtllm_double.HarmonyAdapter()
    return called(events, request=request, generator=engine(recording, **options), harmony_adapter=adapter)[0]


async def own(request: Any, generator: Any, harmony_adapter: Any) -> Any:
    """The function itself, with the parameters that the tap reads."""
    async for frame in trtllm_double.process_streaming_events(request, None, generator, harmony_adapter, "m", None):
        yield frame


def but(change: Callable[[str], Any]) -> Events:
    """The function, with its terminal frame changed; None for a function that gives no such frame."""

    async def events(request: Any, generator: Any, harmony_adapter: Any) -> Any:
        async for frame in own(request, generator, harmony_adapter):
            changed = change(frame) if frame.startswith(trtllm_double.TERMINAL) else frame
            if changed is not None:
                yield changed

    return events


def texts(frames: list[Any]) -> list[str]:
    return [frame.decode() if isinstance(frame, bytes) else frame for frame in frames]


# --- how it ends ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [str, str.encode], ids=["str", "bytes"])
async def test_the_last_token_frame_comes_before_the_terminal_event(change: Any, caplog: pytest.LogCaptureFixture) -> None:
    frames = [frame async for frame in serve(but(change))]
    batches, rest = parts(texts(frames))
    assert (ids_of(batches), batches[-1].done, rest) == (HELLO, True, body())
    assert "harmony:token_batch" in frames[-2]
    assert type(frames[-1]) is (str if change is str else bytes)
    assert lines(caplog) == []


UNKNOWN = (
    "tensorrt-llm/1.1.0: process_streaming_events: gave no terminal event that is known. "
    "The last token frame comes at the end, or not at all."
)


@pytest.mark.parametrize("change", [lambda _: None, str.upper, lambda frame: [frame]], ids=["none", "unknown", "another type"])
async def test_without_a_terminal_event_that_is_known_the_last_token_frame_ends_the_stream(
    change: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        frames = [frame async for frame in serve(but(change))]
        batches, _ = parts([frame for frame in frames if isinstance(frame, str)])
        assert (ids_of(batches), [batch.done for batch in batches]) == (HELLO, [False] * 3 + [True])
        assert '"done":true' in frames[-1]
    assert lines(caplog) == [UNKNOWN]


async def test_without_a_last_engine_response_there_is_no_last_token_frame(caplog: pytest.LogCaptureFixture) -> None:
    batches, _ = parts([frame async for frame in serve(but(lambda _: None), ends=False)])
    assert (ids_of(batches), any(batch.done for batch in batches)) == (HELLO, False)
    assert lines(caplog) == [UNKNOWN]


async def test_after_our_own_trouble_no_end_is_missed(caplog: pytest.LogCaptureFixture) -> None:
    recording = script("strange", [300_000, *HELLO], tokens_per_batch=3)
    frames = [frame async for frame in serve(own, recording)]
    assert "".join(frames) == body(recording)
    assert all(frames)
    [line] = lines(caplog)
    assert "engine response: FrameError bad-ids." in line


async def test_a_frame_that_is_none_is_a_frame() -> None:
    async def events(request: Any, generator: Any, harmony_adapter: Any) -> Any:
        yield None
        yield "after"

    assert [frame async for frame in serve(events)] == [None, "after"]


# --- exceptions -------------------------------------------------------------------------------------------------------------------------


def raising(error: BaseException, *, after: int) -> Events:
    """The function raises when it has so many engine responses."""

    async def events(request: Any, generator: Any, harmony_adapter: Any) -> Any:
        seen = 0
        async for _ in generator:
            seen += 1
            if seen == after:
                raise error
        raise AssertionError("more was asked for")
        yield ""

    return events


@pytest.mark.parametrize("error", [trtllm_double.HarmonyError("no"), PanicException("no")], ids=lambda error: type(error).__name__)
async def test_an_exception_over_the_last_engine_response_does_not_lose_its_tokens(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    batches, _ = parts([frame async for frame in serve(raising(error, after=3))])
    assert (ids_of(batches), batches[-1].done, batches[-1].snapshot_error) == (HELLO, True, type(error).__name__)
    [line] = lines(caplog)
    assert line == f"tensorrt-llm/1.1.0: {type(error).__name__} over the last engine response of a stream; its tokens were sent"


ENDS = [trtllm_double.HarmonyError("no"), PanicException("no"), asyncio.CancelledError(), SystemExit(3)]


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
async def test_an_exception_before_that_comes_to_the_server(error: BaseException) -> None:
    frames: list[str] = []
    with pytest.raises(type(error)):
        async with asyncio.timeout(10):
            async for frame in serve(raising(error, after=2)):
                frames.append(frame)
    batches, _ = parts(frames)
    assert [batch.done for batch in batches] == [False, False]


@pytest.mark.parametrize("error", ENDS[2:], ids=lambda error: type(error).__name__)
async def test_what_says_that_the_work_is_to_end_is_no_failure(error: BaseException) -> None:
    with pytest.raises(type(error)):
        async with asyncio.timeout(10):
            assert not [frame async for frame in serve(raising(error, after=3)) if '"done":true' in frame]


def test_a_failure_before_the_first_frame_is_what_it_is_without_the_extension() -> None:
    def change(modules: Modules) -> None:
        async def events(*args: Any, request: Any, generator: Any, **kwargs: Any) -> Any:
            raise RuntimeError("early")
            yield ""

        modules["serve.openai_server"].responses_api_process_streaming_events = events  # type: ignore[attr-defined]

    with serving(OLD, before=change) as running:
        for ask in (False, True):
            with running.stream("reasoning_final@v12:20", ask=ask) as response:
                assert response.status_code == 200
            assert running.read("reasoning_final@v12:20", ask=ask) == (b"", False)


# --- how it is called -------------------------------------------------------------------------------------------------------------------


async def test_a_token_frame_does_not_wait_for_a_frame_of_the_server() -> None:
    result, closed = GenerationResult(1), asyncio.Event()

    async def engine() -> Any:
        result._handle_response(Response(1, [200005], False, None, None))
        yield result
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def silent(request: Any, generator: Any) -> Any:
        async for _ in generator:
            pass
        yield "too late"

    frames, _ = called(silent, ResponsesRequest("m"), engine())
    assert '"token_ids":[200005]' in await asyncio.wait_for(anext(frames), 10)
    await frames.aclose()
    assert closed.is_set(), "a closed stream closes what it reads"


async def test_a_stream_is_closed_while_its_frames_wait_to_be_read() -> None:
    third = asyncio.Event()

    async def many(request: Any, generator: Any) -> Any:
        yield "first"
        yield "second"
        third.set()
        yield "third"

    frames, _ = called(many, ResponsesRequest("m"), engine())
    async with asyncio.timeout(10):
        assert await anext(frames) == "first"
        await third.wait()
        await frames.aclose()


async def test_the_function_may_be_called_by_position_and_without_results() -> None:
    class Promise:
        name = "promise"

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            raise StopAsyncIteration

        def __await__(self) -> Any:
            yield from ()
            return "whole"

    async def events(request: Any, generator: Any) -> Any:
        async for _ in generator:
            raise AssertionError
        yield f"{generator.name} {await generator}"

    frames, exchange = called(events, ResponsesRequest("m"), Promise())
    assert [frame async for frame in frames] == ["promise whole"]
    assert exchange.active


async def test_a_call_that_is_not_understood_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def events(request: Any, source: Any) -> Any:
        yield source

    frames, exchange = called(events, None, "as it was")
    assert [frame async for frame in frames] == ["as it was"]
    assert not exchange.active
    assert [line.split(": ")[1:] for line in lines(caplog)] == [
        ["process_streaming_events", "KeyError. Served without token frames; nothing else changes."]
    ]


async def test_a_call_without_an_adapter_costs_no_token(caplog: pytest.LogCaptureFixture) -> None:
    async def events(request: Any, generator: Any) -> Any:
        async for frame in own(request, generator, trtllm_double.HarmonyAdapter()):
            yield frame

    frames, _ = called(events, ResponsesRequest("m", recording=WHOLE), engine())
    batches, rest = parts([frame async for frame in frames])
    assert (ids_of(batches), batches[-1].done, rest) == (HELLO, True, body())
    [line] = lines(caplog)
    assert "HarmonyAdapter.cleanup_stream_state: KeyError. The parser of a response stays in memory" in line
