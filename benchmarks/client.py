"""What the wrapped client costs, as ratios to the plain SDK in the same run.

    python benchmarks/client.py [--rounds N] [--only PART]

CPU time of the whole way from the bytes of the HTTP body to the last event object, over an in-process
transport, one chunk per server-sent event. Both sides run in turn, the fastest round of each counts,
so the ratios hold on a busy machine; the microseconds are this machine's. Exit status 1 if a target
is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import openai

from harmony_client.client import AsyncHarmonyOpenAI, HarmonyOpenAI, report_of
from harmony_client.vocabulary import decode_table
from harmony_client.wire import TokenBatch, encode_batch

HTTP: Any = importlib.import_module("httpx2" if int(openai.VERSION.partition(".")[0]) >= 3 else "httpx")
ASK: dict[str, Any] = {"model": "gpt-oss-120b", "input": "Where is my order?"}
TOKENS = 6_000
Body = list[bytes]

# --- streams --------------------------------------------------------------------------------------

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1790000000,
    "model": "gpt-oss-120b",
    "status": "in_progress",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def frame(number: int, event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n".encode()


def content_tokens(count: int) -> list[int]:
    """Ids that spell ASCII text on their own, which the server's own deltas then spell alike."""
    table = decode_table()
    usable = [token for token in range(20_000) if isinstance(text := table[token], str) and text.isascii()]
    return random.Random(1).choices(usable, k=count)


def events_of_text(deltas: list[str]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """A correct stream in three pieces: the opening, one event per delta, the ending."""
    text = "".join(deltas)
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    whole = {**part, "text": text}
    done = {**item, "status": "completed", "content": [whole]}
    opening: list[dict[str, Any]] = [
        {"type": "response.created", "response": RESPONSE},
        {"type": "response.in_progress", "response": RESPONSE},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **at, "part": part},
    ]
    middle = [{"type": "response.output_text.delta", **at, "delta": delta, "logprobs": []} for delta in deltas]
    ending: list[dict[str, Any]] = [
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": whole},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {**RESPONSE, "status": "completed", "output": [done]}},
    ]
    numbered = [frame(number, event) for number, event in enumerate([*opening, *middle, *ending])]
    return numbered[:4], numbered[4:-4], numbered[-4:]


def correct(count: int) -> Body:
    """One event per delta, as the SDK wants it and as PR 22110 would send it."""
    table = decode_table()
    return [chunk for piece in events_of_text([str(table[token]) for token in content_tokens(count)]) for chunk in piece]


def with_batches(count: int, size: int, *, own_events: int) -> Body:
    """The same text as token batches of ``size``, beside the server's own events, one per ``own_events`` tokens."""
    table, ids = decode_table(), content_tokens(count)
    texts = [str(table[token]) for token in ids]
    deltas = ["".join(texts[start : start + own_events]) for start in range(0, count, own_events)]
    opening, middle, ending = events_of_text(deltas)
    sent = [200005, 17196, 200008, *ids, 200002]  # <|channel|>final<|message|> … <|return|>
    body, own = opening[:2], iter([*opening[2:], *middle])
    for number, start in enumerate(range(0, len(sent), size)):
        batch = sent[start : start + size]
        last = start + size >= len(sent)
        body.append(encode_batch(TokenBatch(number, start, batch, done=last, finish_reason="stop" if last else None)))
        body.extend(islice(own, max(1, len(batch) // own_events)))
    return [*body, *own, *ending]


# --- ways to read them ----------------------------------------------------------------------------


class Chunks(HTTP.SyncByteStream, HTTP.AsyncByteStream):  # type: ignore[misc]
    """A body, one chunk at a time."""

    def __init__(self, chunks: Body) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self.chunks

    async def __aiter__(self) -> Any:
        for chunk in self.chunks:
            yield chunk


def options(chunks: Body, client: Any = HTTP.Client) -> dict[str, Any]:
    transport = HTTP.MockTransport(lambda request: HTTP.Response(200, stream=Chunks(chunks)))
    return {"api_key": "k", "base_url": "http://server/v1", "http_client": client(transport=transport)}


def create(client: Any) -> int:
    return sum(1 for _ in client.responses.create(**ASK, stream=True))


def helper(client: Any) -> int:
    with client.responses.stream(**ASK) as stream:
        return sum(1 for _ in stream)


def create_async(client: Any) -> int:
    async def run() -> int:
        return sum([1 async for _ in await client.responses.create(**ASK, stream=True)])

    return asyncio.run(run())


def plain(chunks: Body, read: Callable[[Any], int]) -> Callable[[], int]:
    if read is create_async:
        return lambda: read(openai.AsyncOpenAI(**options(chunks, HTTP.AsyncClient)))
    client = openai.OpenAI(**options(chunks))
    return lambda: read(client)


def ours(chunks: Body, read: Callable[[Any], int]) -> Callable[[], int]:
    if read is create_async:
        return lambda: read(AsyncHarmonyOpenAI(**options(chunks, HTTP.AsyncClient)))
    client = HarmonyOpenAI(**options(chunks))
    return lambda: read(client)


# --- measuring ------------------------------------------------------------------------------------


def cpu_seconds(run: Callable[[], int]) -> float:
    gc.collect()
    start = time.process_time()
    run()
    return time.process_time() - start


def fastest(rounds: int, *runs: Callable[[], int]) -> list[float]:
    """The fastest round of each, all run in turn."""
    for run in runs:
        run()
    measured = [[cpu_seconds(run) for run in runs] for _ in range(rounds)]
    return [min(times) for times in zip(*measured, strict=True)]


class Results:
    """Prints one line per figure and remembers whether all targets were met."""

    def __init__(self) -> None:
        self.met = True

    def line(self, what: str, value: float, target: float | None, note: str = "") -> None:
        """Print one figure; without a target it is only for information."""
        ok = target is None or value <= target
        self.met = self.met and ok
        aim = "" if target is None else f"(target <= {target:g}) {'ok' if ok else 'MISSED'}"
        print(f"{what:<62} {value:>8.2f}  {aim}  {note}".rstrip())


def ratio(results: Results, what: str, times: list[float], target: float | None) -> None:
    theirs, own = times
    results.line(what, own / theirs, target, f"{own / TOKENS * 1e6:.1f} against {theirs / TOKENS * 1e6:.1f} us per token")


def events(results: Results, rounds: int) -> None:
    body = correct(TOKENS)
    for read, target in ((create, 0.5), (create_async, 0.5), (helper, None)):
        times = fastest(rounds, plain(body, read), ours(body, read))
        ratio(results, f"correct stream, {read.__name__}: ours / SDK", times, target)


def tokens(results: Results, rounds: int) -> None:
    sdk = plain(correct(TOKENS), create)
    for size, own_events, whose in ((1, 1, "any server's"), (20, 1, "PR 22110's"), (20, 20, "a stock server's")):
        body = with_batches(TOKENS, size, own_events=own_events)
        times = fastest(rounds, sdk, ours(body, create))
        ratio(results, f"{size} token(s) per batch beside {whose} own events: ours / SDK", times, 0.6)


def linear(results: Results, rounds: int) -> None:
    bodies: dict[str, Callable[[int], Body]] = {
        "correct stream": correct,
        "1 token per batch": lambda count: with_batches(count, 1, own_events=1),
        "20 tokens per batch": lambda count: with_batches(count, 20, own_events=20),
    }
    for what, make in bodies.items():
        short, long = fastest(max(2, rounds // 2), ours(make(TOKENS), create), ours(make(10 * TOKENS), create))
        results.line(f"{what}: time for 60,000 / (10 x time for 6,000)", long / short / 10, 1.15)


def memory(results: Results, rounds: int) -> None:
    """What is held just before the terminal event, the application keeping nothing."""
    del rounds
    for what, body in (("correct stream", correct(TOKENS)), ("20 tokens per batch", with_batches(TOKENS, 20, own_events=20))):
        held = {}
        for name, client in (("ours", HarmonyOpenAI(**options(body))), ("SDK", openai.OpenAI(**options(body)))):
            create(client)
            gc.collect()
            tracemalloc.start()
            stream = client.responses.create(**ASK, stream=True)
            before = tracemalloc.get_traced_memory()[0]
            for event in stream:
                if event.type == "response.output_item.done":
                    break
            del event
            held[name] = (tracemalloc.get_traced_memory()[0] - before) / 1024
            tracemalloc.stop()
            if name == "ours":
                assert report_of(stream).events_received > 0
            stream.close()
        note = f"the SDK alone holds {held['SDK']:.0f} KiB; the terminal event has {len(body[-1]) / 1024:.0f} KiB"
        results.line(f"{what}: KiB held per response of {TOKENS} tokens", held["ours"], None, note)


def imports(results: Results, rounds: int) -> None:
    heavy = "any(name in sys.modules for name in ('openai', 'httpx', 'httpx2', 'pydantic'))"
    code = f"import sys, time; start = time.process_time(); import harmony_client; print(time.process_time() - start, {heavy})"
    command, root = [sys.executable, "-c", code], Path(__file__).resolve().parent.parent
    outputs = [subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout.split() for _ in range(rounds)]
    results.line("import harmony_client: CPU milliseconds", min(float(seconds) for seconds, _ in outputs) * 1000, None)
    results.line("import harmony_client imports openai, httpx or pydantic", max(loaded == "True" for _, loaded in outputs), 0)


PARTS: dict[str, Callable[[Results, int], None]] = {
    "events": events,
    "tokens": tokens,
    "linear": linear,
    "memory": memory,
    "imports": imports,
}


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=PARTS, action="append")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    print(f"openai {openai.VERSION} on {HTTP.__name__} {HTTP.__version__}, Python {sys.version.split()[0]}, {TOKENS} tokens")
    results = Results()
    for name in chosen.only or PARTS:
        PARTS[name](results, chosen.rounds)
    return 0 if results.met else 1


if __name__ == "__main__":
    raise SystemExit(main())
