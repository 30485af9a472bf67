"""The clients against TensorRT-LLM doubles with the extension: ours, sync and async, and the SDK's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from harmony_client import AsyncHarmonyOpenAI, HarmonyOpenAI, report_of
from tests.clients import ASK, HTTP, KINDS, Server, entered, events_of, result
from tests.recordings import Recording, load
from tests.trtllm_servers import SETUPS, Running, serving


@pytest.fixture(scope="module", params=[setup for setup in SETUPS if " and " not in setup.loader], ids=lambda setup: setup.label)
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    with serving(request.param) as running:
        yield running


def recordings(running: Running) -> list[Recording]:
    return [recording for recording in load(running.setup.recordings) if recording.pattern in ("3", "20")]


async def streamed(client: Any, recording: Recording) -> tuple[list[Any], Any]:
    tools: Any = [{"type": "function", "name": name, "parameters": {}, "strict": False} for name in recording.tools]
    async with entered(client.responses.stream(**{**ASK, "model": recording.name}, tools=tools)) as stream:
        return await events_of(stream), report_of(stream)


def replayed(recording: Recording, kind: str) -> Any:
    """A client that is given the recording as the recordings' own tests give it."""
    error = HTTP.RemoteProtocolError("peer closed connection without sending complete message body") if recording.breaks else None
    return Server(recording.frames(True), error=error).client(kind, on_mismatch="ignore")


@pytest.mark.parametrize("kind", KINDS)
async def test_our_client_gets_from_the_server_what_the_recordings_hold(running: Running, kind: str) -> None:
    harmony = HarmonyOpenAI if kind == "sync" else AsyncHarmonyOpenAI
    verdicts: Counter[str] = Counter()
    async with entered(harmony(base_url=running.base_url, api_key="k", max_retries=0, on_mismatch="ignore")) as client:
        for recording in recordings(running):
            events, report = await streamed(client, recording)
            async with entered(replayed(recording, kind)) as other:
                expected, expected_report = await streamed(other, recording)
            assert [event.to_dict(warnings=False) for event in events] == [event.to_dict(warnings=False) for event in expected], (
                recording.name
            )
            assert (report.mode, report.verdict, report.tokens_offered) == ("tokens", expected_report.verdict, True), recording.name
            assert report.output_tokens == len(recording.token_ids)
            verdicts[report.verdict] += 1
    raised = sum(recording.raised is not None for recording in recordings(running))
    assert verdicts == Counter(match=len(recordings(running)) - raised, unverifiable=raised)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_plain_sdk_sees_what_it_saw_before(running: Running, kind: str) -> None:
    plain = openai.OpenAI if kind == "sync" else openai.AsyncOpenAI
    async with entered(plain(base_url=running.base_url, api_key="k", max_retries=0)) as client:
        for recording in recordings(running)[::4]:
            if not recording.breaks:
                got = await plain_events(client, recording)
                async with entered(Server(recording.frames(False)).plain(kind)) as other:
                    assert got == await plain_events(other, recording), recording.name


async def plain_events(client: Any, recording: Recording) -> list[Any]:
    """What the SDK makes of a stream, its exception included."""
    events: list[Any] = []
    try:
        await events_of(await result(client.responses.create(**{**ASK, "model": recording.name}, stream=True)), events)
    except openai.APIError as error:
        return [*(event.to_dict(warnings=False) for event in events), str(error)]
    return [event.to_dict(warnings=False) for event in events]
