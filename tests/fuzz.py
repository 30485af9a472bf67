"""Fuzz the client with damaged bytes and events: ``python -m tests.fuzz --minutes 10``.

Each round takes a stream (a recording, a case, a built one), damages its events, then its bytes,
cuts the bytes into chunks, and plays them. What must hold: no exception but the documented errors;
one ending; a well-formed output, with every item closed; and a report that is plain JSON. A failure
prints the seed that repeats it (``--seed N --rounds 1``) and is the exit status.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from collections import Counter
from typing import Any

from tests.cases import all_cases
from tests.judge import Event, Played, play_bytes
from tests.mutations import damage
from tests.recordings import NAMES, load
from tests.streams import Call, Message, Reasoning, Tool, build, sample

_NOISE = [
    b"\n",
    b"\r",
    b"\n\n",
    b"data:",
    b"data: [DONE]\n\n",
    b":\n\n",
    b"event: x\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b'{"',
    b'"}',
    b"[" * 70,
    b"null",
]


def streams() -> list[list[Event]]:
    """The streams to damage."""
    found = [recording.events(frames) for name in NAMES for recording in load(name) for frames in (True, False)]
    found = [events for events in found if len(events) < 120]
    built = [Reasoning(texts=[["a ", "b"]]), Message(texts=[["c ", "d"]], annotated=True), Call(["{", "}"]), Tool()]
    return [*found, sample(), build(built), build(built, "incomplete"), build([], "failed")]


def bodies() -> list[bytes]:
    """The bodies to damage besides."""
    return [case.body for case in all_cases() if len(case.body) < 20_000]


def round_of(seed: int, known: list[list[Event]], raw: list[bytes]) -> Played:
    """One round."""
    chooser = random.Random(seed)
    if chooser.random() < 0.8:
        events: list[Any] = damage(chooser.choice(known), chooser.randrange(2**32), most=6)
        if chooser.random() < 0.3:
            events = odd_values(events, chooser)
        body = b"".join(
            b"event: %s\ndata: %s\n\n" % (str(event.get("type")).encode("utf-8", "replace"), json.dumps(event).encode()) for event in events
        )
    else:
        body = chooser.choice(raw)
    body = noise(body, chooser) if chooser.random() < 0.4 else body
    size = chooser.choice((1, 7, 100, 10**9)) if len(body) < 30_000 else 10**9
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    options: dict[str, Any] = {
        "deltas": chooser.choice(("auto", "live", "hold")),
        "preambles": chooser.choice(("auto", "message", "drop")),
        "on_disconnect": chooser.choice(("error", "incomplete")),
        "on_mismatch": chooser.choice(("ignore", "raise")),
        "error": chooser.choice((None, None, ConnectionResetError("reset"), TimeoutError())),
    }
    return play_bytes(chunks, **options)


def odd_values(events: list[Event], chooser: random.Random) -> list[Event]:
    """Some values replaced by values of other types, anywhere."""
    for _ in range(chooser.randrange(1, 4)):
        node: Any = events
        for _depth in range(chooser.randrange(1, 6)):
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = chooser.choice(keys)
            if isinstance(node[key], dict | list) and chooser.random() < 0.7:
                node = node[key]
            elif node is not events:
                node[key] = chooser.choice([None, 0, -1, 2.5, True, "", "x", [], {}, [None], {"type": "message"}, "\ud800", 10**30])
                break
    return events


def noise(body: bytes, chooser: random.Random) -> bytes:
    """Bytes changed, inserted and removed."""
    for _ in range(chooser.randrange(1, 5)):
        at = chooser.randrange(len(body) + 1)
        kind = chooser.randrange(4)
        if kind == 0:
            body = body[:at] + chooser.choice(_NOISE) + body[at:]
        elif kind == 1:
            body = body[:at] + body[at + chooser.randrange(1, 50) :]
        elif kind == 2:
            body = body[:at]
        else:
            body = body[:at] + bytes([chooser.randrange(256)]) + body[at + 1 :]
    return body


def complaints(stream: Played) -> list[str]:
    """What is wrong with what came out."""
    found = [f"{violation.code}: {violation.message}" for violation in stream.violations()]
    if (stream.terminal is None) == (stream.failure is None):
        found.append(f"two endings or none: {stream.terminal and stream.terminal['type']}, {stream.failure!r}")
    found += [f"{item.kind} left open" for item in stream.items if item.done is None]
    json.dumps(stream.report.as_dict())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=10**12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    known, raw = streams(), bodies()
    end, endings, failed = time.monotonic() + 60 * options.minutes, Counter[str](), 0
    seed = options.seed
    while time.monotonic() < end and seed < options.seed + options.rounds and failed < 10:
        try:
            stream = round_of(seed, known, raw)
            found = complaints(stream)
            endings[str(stream.report.ending)] += 1
        except Exception:
            found = [traceback.format_exc()]
        if found:
            failed += 1
            print(f"seed {seed}:", *found[:3], sep="\n  ")
        seed += 1
    print(f"{seed - options.seed} rounds, {failed} failed; endings: {dict(endings.most_common())}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
