"""Every recording with token batches through ``HarmonyOpenAI(...).responses.stream()``, sync and async."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from harmony_client import report_of
from tests.clients import ASK, HTTP, KINDS, Server, entered, events_of, result
from tests.judge import TERMINALS
from tests.recordings import NAMES, Recording, load

PARTS = {"response.output_text.delta", "response.reasoning_text.delta", "response.function_call_arguments.delta"}


async def streamed(recording: Recording, kind: str) -> tuple[list[Any], Any]:
    error = HTTP.RemoteProtocolError("peer closed connection without sending complete message body") if recording.breaks else None
    server = Server(recording.frames(True), error=error)
    tools: Any = [{"type": "function", "name": name, "parameters": {}, "strict": False} for name in recording.tools]
    async with entered(server.client(kind, on_mismatch="ignore")) as client, entered(client.responses.stream(**ASK, tools=tools)) as stream:
        events = await events_of(stream)
        if events[-1].type == "response.completed":
            assert (await result(stream.get_final_response())).id == events[0].response.id
        return events, report_of(stream)


def texts_of(item: Any) -> str:
    if item.type == "function_call":
        return str(item.arguments)
    return "".join(part.text for part in item.content or []) if item.type in ("message", "reasoning") else ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
async def test_every_recording_is_whole_in_the_sdk(name: str, kind: str) -> None:
    verdicts: Counter[str] = Counter()
    for recording in load(name):
        events, report = await streamed(recording, kind)
        verdicts[report.verdict] += 1
        added = {event.output_index: event.item for event in events if event.type == "response.output_item.added"}
        done = {event.output_index: event.item for event in events if event.type == "response.output_item.done"}
        assert list(added) == list(done) == list(range(len(added))), recording
        texts = dict.fromkeys(added, "")
        for event in events:
            if event.type in PARTS:
                texts[event.output_index] += event.delta
                assert event.item_id == added[event.output_index].id, recording
        assert events[-1].type in TERMINALS, recording
        output = events[-1].response.output
        assert [item.id for item in output] == [item.id for item in added.values()] == [item.id for item in done.values()], recording
        assert len({item.id for item in output} - {""}) == len(output), recording
        assert [texts_of(item) for item in output] == list(texts.values()) == [texts_of(item) for item in done.values()], recording
        numbers = [event.sequence_number for event in events]
        assert numbers == sorted(set(numbers)), recording
        assert (events[-1].type == "response.incomplete") == (events[-1].response.status == "incomplete"), recording
        if recording.finish_reason == "length":
            assert events[-1].type == "response.incomplete", recording
    unverifiable = sum(recording.raised is not None for recording in load(name))
    assert verdicts == Counter(match=len(load(name)) - unverifiable, unverifiable=unverifiable)
