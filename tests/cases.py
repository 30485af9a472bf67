"""The cases of ``tests/data/cases.jsonl.xz``: small faulty streams from public reports, and what must come out.

As a command, ``python -m tests.cases`` prints a line per case; with ``--every-byte`` each is also cut
at every byte (the huge one at 200 places), which takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harmony_client.wire import TokenBatch, encode_batch
from tests.judge import Event, Item, Played, play_bytes
from tests.recordings import load_cases

_BASE: Event = {
    "id": "resp_t1",
    "object": "response",
    "created_at": 1790000000,
    "model": "gpt-oss-20b",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


@dataclass(frozen=True)
class Case:
    """One case, one body."""

    id: str
    variant: str
    title: str
    later: bool
    body: bytes
    chunks: tuple[bytes, ...]
    end: str
    tools: list[Any] | None
    expect: Event

    def __str__(self) -> str:
        return self.id + self.variant

    def play(self, chunks: list[bytes] | None = None, **options: Any) -> Played:
        return play_bytes(self.chunks if chunks is None else chunks, error=self.error(), tools=self.tools, **options)

    def error(self) -> BaseException | None:
        return {"reset": ConnectionResetError("reset by peer"), "hang": TimeoutError("read timed out")}.get(self.end)


def all_cases() -> list[Case]:
    return [case for fields in load_cases() for case in _cases(fields)]


def _cases(fields: Event) -> Iterator[Case]:
    for variant, chunks in _bodies(fields):
        yield Case(
            id=fields["id"],
            variant=variant,
            title=fields["title"],
            later=fields.get("scope") == "later",
            body=b"".join(chunks),
            chunks=tuple(chunks),
            end=fields.get("stream_end", "eof"),
            tools=(fields.get("request") or {}).get("tools"),
            expect=fields["expect"],
        )


def _bodies(fields: Event) -> Iterator[tuple[str, list[bytes]]]:
    if fields["level"] == "event":
        frames = [_frame(event) for event in fields["events"]]
        yield "", frames + ([b"data: [DONE]\n\n"] if fields.get("done_sentinel") else [])
    elif fields["level"] == "sse":
        if fields.get("chunks_hex"):
            yield "", [bytes.fromhex(chunk) for chunk in fields["chunks_hex"]]
            return
        raw = fields["raw_sse"]
        if fields.get("pad"):
            raw = raw.replace(fields["pad"]["token"], fields["pad"]["char"] * fields["pad"]["count"])
        yield "", [raw.encode()]
    else:
        for size in fields.get("batch_sizes") or (1, 3, 20, 10**6):
            yield f"-by-{size}", list(_token_frames(fields, size))


def _frame(event: Event) -> bytes:
    return f"event: {event.get('type', '')}\ndata: {json.dumps(event)}\n\n".encode()


def _token_frames(fields: Event, size: int) -> Iterator[bytes]:
    ids, expect = fields["token_ids"], fields["expect"]
    opened = _BASE | {"status": "in_progress", "output": []}
    yield _frame({"type": "response.created", "response": opened, "sequence_number": 0})
    yield _frame({"type": "response.in_progress", "response": opened, "sequence_number": 1})
    for number, start in enumerate(range(0, len(ids), size)):
        part = ids[start : start + size]
        last = start + size >= len(ids)
        yield encode_batch(
            TokenBatch(
                batch=number,
                start=start,
                token_ids=part,
                done=last,
                finish_reason=fields.get("finish_reason") if last else None,
                total=len(ids) if last else None,
                server="tensorrt-llm/1.2.1" if number == 0 else None,
            )
        )
    name = expect["terminal"].split()[0]
    output = [_listed(number, item) for number, item in enumerate(expect["items"])]
    status = name.removeprefix("response.")
    yield _frame({"type": name, "response": _BASE | {"status": status, "output": output}, "sequence_number": 2})


def _listed(number: int, item: Event) -> Event:
    kind, common = item["kind"], {"type": item["kind"], "id": f"{item['kind']}_{number}", "status": item["status"]}
    if kind == "function_call":
        return common | {"call_id": f"call_{number}", "name": item["name"], "arguments": item["arguments"]}
    if kind == "reasoning":
        return common | {"summary": [], "content": [{"type": "reasoning_text", "text": item["text"]}]}
    return common | {"role": "assistant", "content": [{"type": "output_text", "text": item["text"], "annotations": []}]}


def complaints(case: Case, played: Played) -> list[str]:
    """What is not as the case expects it."""
    found = [str(violation) for violation in played.violations()]
    found += _item_complaints(case, played)
    wanted, terminal = case.expect["terminal"], played.terminal
    if terminal is not None and not wanted.startswith(terminal["type"]):
        found.append(f"ended with {terminal['type']}, not {wanted}")
    if terminal is None and not any(word in wanted for word in ("error", "exception")):
        found.append(f"ended with {played.failure!r}, not {wanted}")
    if played.report.verdict != case.expect["verify"]:
        found.append(f"verdict {played.report.verdict}, not {case.expect['verify']}")
    return found


def _item_complaints(case: Case, played: Played) -> list[str]:
    found: list[str] = []
    got = played.items
    for wanted in case.expect["items"]:
        if wanted.get("response"):  # of a second response in the stream, which is only reported
            continue
        if got and got[0].kind == wanted["kind"] and (not wanted.get("optional") or _fits(got[0], wanted)):
            item = got.pop(0)
            found += _compare(item, wanted, _listed_status(played, item), replaced="text-replaced" in played.report.repair_codes)
        elif not wanted.get("optional"):
            found.append(f"no {wanted['kind']} {wanted!r}")
    return found + [f"unexpected {item.kind} {item.text[:40]!r}" for item in got]


def _listed_status(played: Played, item: Item) -> str | None:
    output = played.terminal["response"]["output"] if played.terminal is not None else []
    listed = next((entry for entry in output if entry["id"] == item.added["id"]), item.done or {})
    return listed.get("status")


def _fits(item: Item, wanted: Event) -> bool:
    return item.text == wanted.get("text", wanted.get("arguments"))


def _compare(item: Item, wanted: Event, status: str | None, *, replaced: bool) -> list[str]:
    found = []
    text = wanted.get("text", wanted.get("arguments"))
    if text not in (None, "@@PAD@@", item.text) and not replaced:
        found.append(f"streamed {item.text!r}, not {text!r}")
    if item.done is None:
        return [*found, f"{item.kind} was not closed"]
    for name in ("name", "call_id", "code"):
        if name in wanted and item.done.get(name) != wanted[name]:
            found.append(f"{name} is {item.done.get(name)!r}, not {wanted[name]!r}")
    if "query" in wanted and item.done["action"].get("query") != wanted["query"]:
        found.append(f"query is {item.done['action']!r}, not {wanted['query']!r}")
    if "phase" in wanted and item.done.get("phase") != wanted["phase"]:
        found.append(f"phase is {item.done.get('phase')!r}, not {wanted['phase']!r}")
    if wanted.get("status") != status and not (status is None and wanted.get("status") == "completed"):
        found.append(f"status is {status!r}, not {wanted.get('status')!r}")
    return found


def cut_complaints(case: Case, place: int) -> list[str]:
    """What is wrong with the stream that comes out if the body ends at a byte."""
    played = play_bytes([case.body[:place]], tools=case.tools)
    found = [str(violation) for violation in played.violations()]
    if played.terminal is None and played.failure is None:
        found.append("ended with neither a terminal event nor an error")
    if any(item.done is None for item in played.items):
        found.append("left an item open")
    return [f"cut at {place}: {complaint}" for complaint in found]


def cut_places(case: Case, count: int | None, seed: int = 0) -> list[int]:
    """Where to cut: at every byte, or at some."""
    if count is None and len(case.body) < 100_000:
        return list(range(len(case.body)))
    return sorted(random.Random(seed).sample(range(len(case.body)), min(count or 200, len(case.body))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every-byte", action="store_true", help="also cut each case at every byte")
    parser.add_argument("--only", help="one case")
    options = parser.parse_args()
    wrong = 0
    for case in all_cases():
        if options.only not in (None, case.id):
            continue
        played = case.play()
        found = complaints(case, played) + complaints(case, case.play([case.body[at : at + 1] for at in range(len(case.body))]))
        cuts = [complaint for place in cut_places(case, None) for complaint in cut_complaints(case, place)] if options.every_byte else []
        wrong += bool(cuts) or (bool(found) and not case.later)
        state = "later" if case.later else "wrong" if found or cuts else "right"
        print(f"{case!s:14} {state:6} {played.report.verdict:13} {', '.join(sorted(played.report.repair_codes))}")
        for complaint in dict.fromkeys(found + cuts[:3]):
            print(f"               {complaint}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
