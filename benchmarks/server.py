"""What the TensorRT-LLM extension costs the server, as ratios to the server without it in the same run.

    python benchmarks/server.py [--rounds N]

The server is a double that plays the recording `very_long` of TensorRT-LLM main, at 1 and at 20 tokens per engine response. CPU time of a
response, with the header on against without the extension, by three measures of the server's own share:

* `parser and frames`: the tokens go through openai-harmony's parser and the recorded frames are made of their payloads as the server makes
  them, one SDK event and `model_dump_json` each. Its adapter, which is left out, costs more than both, so the true ratio is smaller still.
* `whole server`: the same, and the application, its middleware, its streaming response and uvicorn, over a socket.
* `frames for nothing`: frames that are there already, and the application up to the ASGI server: the most that the extension can add.

Both sides run in turn and the fastest round of each counts, so the ratios hold on a busy machine; the microseconds are this machine's.
Exit status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import json
import logging
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from openai.types import responses
from openai_harmony import Role, StreamableParser
from pydantic import BaseModel

from harmony_client.wire import HEADER, HEADER_VALUE, encode_batch
from server_ext.asgi import Exchange, _current
from server_ext.replay import ReplayServer
from server_ext.tap import ANSWER, TokenFrames
from tests import oracle, trtllm_double
from tests.recordings import Recording, load

SIZES = (1, 20)
TARGETS = {"parser and frames": 1.50, "whole server": 1.40, "frames for nothing": 1.60}
TYPES: dict[str, type[BaseModel]] = {
    "response.reasoning_text.delta": responses.ResponseReasoningTextDeltaEvent,
    "response.output_text.delta": responses.ResponseTextDeltaEvent,
}
Run = Callable[[], float]


def made(recording: Recording) -> Recording:
    """The recording with frames that are made anew each time they are sent, as the server makes them."""
    batches = [batch._replace(frames=Made(batch.frames)) for batch in recording.batches]
    fields = {name: getattr(recording, name) for name in Recording.__dataclass_fields__}
    return Recording(**{**fields, "batches": batches})


class Made(list[str]):
    """Frames whose deltas are built and serialized at each reading; the few others are ready."""

    def __init__(self, frames: list[str]) -> None:
        super().__init__(frames)
        payloads = [json.loads(frame.partition("\ndata: ")[2]) for frame in frames]
        self.events = [(TYPES.get(payload["type"]), payload, frame) for payload, frame in zip(payloads, frames, strict=True)]

    def __iter__(self) -> Any:
        for kind, payload, frame in self.events:
            yield frame if kind is None else f"event: {payload['type']}\ndata: {kind(**payload).model_dump_json(indent=None)}\n\n"


class ParsingAdapter(trtllm_double.HarmonyAdapter):
    """An adapter with a real parser per response, which is asked what the server asks it once per engine response."""

    def parse(self, request_id: str, token_ids: list[int]) -> None:
        """Parse the ids of one engine response."""
        states: dict[str, Any] = self._stream_states
        if request_id not in states:
            states[request_id] = StreamableParser(oracle.encoding(), role=Role.ASSISTANT)
        parser = states[request_id]
        for token_id in token_ids:
            parser.process(token_id)
        assert (parser.last_content_delta, parser.current_channel, parser.current_recipient) is not None


class Side:
    """A server with or without the extension, for one recording."""

    def __init__(self, recording: Recording, *, extension: bool, parses: bool) -> None:
        self.recording = recording
        self.extension = extension
        self.modules = trtllm_double.install("main")
        if parses:
            adapter = ParsingAdapter()
            self.modules["serve.harmony_adapter"].get_harmony_adapter = lambda: adapter  # type: ignore[attr-defined]
        if extension:
            for name in [name for name in sys.modules if name.startswith("server_ext.trtllm")]:
                del sys.modules[name]
            from server_ext.trtllm.hook import install_in_new_servers

            assert install_in_new_servers()
        self.engine = trtllm_double.Engine([recording])
        self.server: Any = self.modules["serve.openai_server"]
        self.app = self.server.OpenAIServer(generator=self.engine, model="main").app
        self.bytes = 0

    def frames(self) -> float:
        """Make all frames of a response. Returns the CPU seconds, as the others do."""
        sys.modules.update({module.__name__: module for module in self.modules.values()})
        _current.set(Exchange() if self.extension else None)
        request = trtllm_double.ResponsesRequest("m", request_id="r", recording=self.recording)
        processor = self.server.ResponsesStreamingProcessor(request=request, sampling_params=None, model_name="m")
        args = trtllm_double.ResponsesAPIPostprocArgs(streaming_processor=processor)
        began = time.process_time()
        result = trtllm_double.RequestOutput(1, self.recording, self.engine, None)
        while not result._done:
            result._handle_response(result._next_response())
            trtllm_double.main_streaming_post_processor(result, args)
        self.modules["serve.harmony_adapter"].get_harmony_adapter().cleanup_stream_state(processor.stream_request_id)
        return time.process_time() - began

    def application(self) -> float:
        """Serve a response, up to the ASGI server."""
        sys.modules.update({module.__name__: module for module in self.modules.values()})
        began = time.process_time()
        asyncio.run(self._serve())
        return time.process_time() - began

    def whole(self) -> float:
        """Serve a response over a socket; the CPU time is that of the server's thread."""
        sys.modules.update({module.__name__: module for module in self.modules.values()})
        body, headers = json.dumps({"model": self.recording.name, "stream": True}), {HEADER: HEADER_VALUE} if self.extension else {}
        with ReplayServer(self.app) as running:
            clock = time.pthread_getcpuclockid(running._thread.ident or 0)
            connection = http.client.HTTPConnection(running.base_url.split("/")[2])
            connection.request("POST", "/v1/responses", body, headers)  # the first one pays for what is made once
            connection.getresponse().read()
            began = time.clock_gettime(clock)
            connection.request("POST", "/v1/responses", body, headers)
            connection.getresponse().read()
            connection.close()
            return time.clock_gettime(clock) - began

    async def _serve(self) -> None:
        body = json.dumps({"model": self.recording.name, "stream": True}).encode()
        requests = [{"type": "http.request", "body": body}]
        forever = asyncio.get_running_loop().create_future()
        self.bytes = 0

        async def receive() -> Any:
            return requests.pop() if requests else await forever

        async def send(message: Any) -> None:
            self.bytes += len(message.get("body", b""))

        headers = [(b"content-type", b"application/json"), *([ANSWER] if self.extension else [])]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/responses",
            "headers": headers,
            "query_string": b"",
            "asgi": {"spec_version": "2.4"},
        }
        await self.app(scope, receive, send)


def fastest(runs: list[Run], rounds: int) -> list[float]:
    """CPU milliseconds of the fastest round of each, taken in turn."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for number, run in enumerate(runs):
            gc.collect()
            best[number] = min(best[number], run())
    return [seconds * 1e3 for seconds in best]


def compare(recording: Recording, size: int, rounds: int) -> bool:
    """Print one line per share of a response's CPU time. Returns whether all targets are met."""
    own, free = made(recording), recording
    sides = [[Side(each, extension=extension, parses=each is own) for extension in (False, True)] for each in (own, free)]
    shares = {
        "parser and frames": [side.frames for side in sides[0]],
        "whole server": [side.whole for side in sides[0]],
        "frames for nothing": [side.application for side in sides[1]],
    }
    met = True
    for name, runs in shares.items():
        without, with_ = fastest(runs, rounds)
        ratio = with_ / without
        met &= ratio <= TARGETS[name]
        print(f"  {size:2} tokens/batch  {name:18} {without:8.2f} ms  {with_:8.2f} ms   x {ratio:.3f}  (target x {TARGETS[name]:.2f})")
    tokens = len(recording.token_ids)
    print(f"  {size:2} tokens/batch  bytes per token    {(sides[1][1].bytes - sides[1][0].bytes) / tokens:8.1f}")
    return met


def frame_costs() -> None:
    """Print what one frame costs, by the two ways to write it."""
    for size in SIZES:
        ids = list(range(100_000, 100_000 + size))
        quick, plain = TokenFrames("s"), TokenFrames("s")
        quick.frame(ids)
        ways = [
            lambda quick=quick, ids=ids: quick.frame(ids),
            lambda plain=plain, ids=ids: encode_batch(plain.take(ids)).decode(),
        ]
        ours, whole = (min(timeit.repeat(way, number=2_000, repeat=7)) / 2_000 * 1e6 for way in ways)
        print(f"  {size:2} tokens/batch  one frame          {ours:8.2f} us   by encode_batch {whole:.2f} us")


def main() -> int:
    """Run the benchmark. Returns the exit status."""
    parser = argparse.ArgumentParser(description="CPU cost of the TensorRT-LLM extension")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    logging.disable()
    recordings = {recording.pattern: recording for recording in load("main") if recording.scenario == "very_long"}
    print(f"very_long@main, {len(recordings['1'].token_ids)} tokens: CPU per response without the extension, with it and the header on")
    results = [compare(recordings[str(size)], size, rounds) for size in SIZES]
    frame_costs()
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
