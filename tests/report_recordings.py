"""Every recording through the real SDK's ``responses.stream()``, stock and repaired, as a table.

Run ``python -m tests.report_recordings``. *Whole* means: iteration raises nothing, and every item of
the terminal response was announced, closed, and streamed with exactly its text. For the stock client
the server sends no token batches; for the repaired one it does, unless ``--without-tokens`` is given.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any

from tests.judge import TERMINALS, Event, Played, play
from tests.recordings import NAMES, Recording, load
from tests.sdk_oracle import Seen, see


def repaired(recording: Recording, *, tokens: bool, **options: Any) -> Played:
    """The recording after repair."""
    error = ConnectionResetError("reset by peer") if recording.breaks else None
    return play(recording.events(frames=tokens), error=error, tools=recording.tools, **options)


def is_whole(seen: Seen) -> bool:
    """Whether the SDK accepted the stream and it streamed what its terminal response lists."""
    if seen.error is not None or seen.final is None:
        return False
    listed = [(item["type"], _text(item)) for item in seen.final["output"]]
    streamed = [
        (item["type"], _text(item) if item["type"] == "web_search_call" else seen.deltas[at] + seen.summaries[at])
        for at, item in announced(seen)
    ]
    return streamed == listed and sorted(seen.announced) == sorted(seen.done)


def announced(seen: Seen) -> list[tuple[int, Event]]:
    """The announced items, in order; as their done events show them."""
    return [(index, seen.done.get(index, item)) for index, item in sorted(seen.announced.items())]


def _text(item: Event) -> str:
    for name in ("arguments", "code"):
        if name in item:
            return str(item[name] or "")
    return "".join(part.get("text") or "" for part in [*(item.get("content") or []), *(item.get("summary") or [])])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-tokens", action="store_true", help="the repaired client gets no token batches either")
    parser.add_argument("--deltas", default="auto", help="auto, live or hold; matters without tokens")
    options = parser.parse_args()
    print(f"{'recordings':12} {'streams':>7} {'stock whole':>11} {'repaired whole':>14}   verdicts")
    right = True
    for name in NAMES:
        recordings = load(name)
        stock = sum(is_whole(see(recording.events(frames=False))) for recording in recordings)
        streams = [repaired(recording, tokens=not options.without_tokens, deltas=options.deltas) for recording in recordings]
        whole = sum(bool(stream.events) and stream.events[-1]["type"] in TERMINALS and is_whole(see(stream.events)) for stream in streams)
        verdicts = Counter(stream.report.verdict for stream in streams)
        right &= whole == len(recordings)
        shown = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        print(f"{name:12} {len(recordings):7} {stock:11} {whole:14}   {shown}")
    return 0 if right or options.without_tokens else 1


if __name__ == "__main__":
    sys.exit(main())
