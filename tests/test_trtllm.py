"""The TensorRT-LLM extension against doubles of 1.1, 1.2 and main, by every loader, with and without worker processes."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

import httpx
import pytest

from server_ext.recording import Batch, Recording, script
from tests.trtllm_servers import ASKING, PLAIN, SETUPS, Running, Setup, frames_of, ids_of, serving, split

HELLO = [200005, 17196, 200008, 13225, 2375, 200002]  # <|channel|>final<|message|>Hello world<|return|>
TERMINAL = script("hello", HELLO).batches[-1].frames
CANCELLED = replace(script("cancelled", HELLO, finish_reason="cancelled"), batches=[Batch(HELLO[:4], []), Batch([], TERMINAL)])
NOTHING = replace(script("nothing", []), batches=[Batch([], TERMINAL)])
LONG = script("long", [*HELLO[:3], *[13225] * 20_000], finish_reason="length", tokens_per_batch=1)
CROWD = [
    script(f"crowd{number}", random.Random(number).choices(range(200_000), k=60), tokens_per_batch=1 + number % 4) for number in range(50)
]


@pytest.fixture(scope="module", params=SETUPS, ids=lambda setup: setup.label)
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    with serving(request.param, CANCELLED, NOTHING, LONG, *CROWD) as running:
        yield running


@pytest.fixture(scope="module", params=PLAIN, ids=lambda setup: setup.version)
def plain(request: pytest.FixtureRequest) -> Iterator[Running]:
    with serving(request.param) as running:
        yield running


def recorded(running: Running) -> list[Recording]:
    """All that the server's version recorded: one token per engine response, three, twenty, and at random."""
    return [recording for recording in running.recordings if recording.version != "script"]


def is_failure(frame: bytes) -> bool:
    return frame.startswith((b"event: error\n", b"event: response.failed\n"))


def test_every_token_arrives_in_order_and_once(running: Running) -> None:
    for recording in [*recorded(running), CANCELLED, NOTHING]:
        batches, _ = split(running.body(recording, ask=True)[0])
        assert ids_of(batches) == [token_id for batch in recording.batches for token_id in batch.token_ids], recording.name
        assert [batch.batch for batch in batches] == list(range(len(batches))), recording.name
        assert [batch.start for batch in batches] == [0, *accumulate(len(batch.token_ids) for batch in batches[:-1])]
        assert [list(batch.token_ids) for batch in batches[:-1]] == [batch.token_ids for batch in recording.batches if batch.token_ids]


def test_the_last_frame_says_how_generation_ended(running: Running) -> None:
    for recording in [*recorded(running), CANCELLED, NOTHING]:
        batches, _ = split(running.body(recording, ask=True)[0])
        end = batches[-1]
        assert [batch.done for batch in batches] == [False] * (len(batches) - 1) + [True]
        assert (end.finish_reason, end.stop_reason) == (recording.finish_reason, recording.stop_reason), recording.name
        assert end.total == len(ids_of(batches))
        assert end.snapshot_error == (recording.raised and recording.raised.partition(":")[0])


def test_the_first_frame_names_the_server(running: Running) -> None:
    name = {"1.1": "tensorrt-llm/1.1.0", "1.2": "tensorrt-llm/1.2.1", "main": "tensorrt-llm/1.3.0rc4"}[running.setup.version]
    batches, _ = split(running.read("reasoning_final@" + running.setup.recordings + ":1", ask=True)[0])
    assert [batch.server for batch in batches] == [name] + [None] * (len(batches) - 1)


def test_the_recordings_have_what_is_easily_lost(running: Running) -> None:
    streams = recorded(running)
    assert sum(not recording.batches[-1].token_ids for recording in streams) > 5, "an empty last batch"
    assert sum(recording.stop_reason is not None for recording in streams) > 10, "a trimmed stop token"
    assert sum(recording.raised is not None for recording in streams) > 10, "a failing terminal response"


def test_the_servers_own_frames_are_all_there_in_their_order(running: Running) -> None:
    for recording in recorded(running):
        _, own = split(running.body(recording, ask=True)[0])
        expected = b"".join(recording.chunks(tokens=False))
        if recording.raised:
            expected = b"".join(frame for frame in frames_of(expected) if not is_failure(frame))
        assert own == expected, recording.name


def test_a_token_frame_stands_before_what_the_server_made_of_it(running: Running) -> None:
    for recording in recorded(running):
        frames = frames_of(running.body(recording, ask=True)[0])
        expected = ["own"] * len(recording.opening)
        for number, batch in enumerate(recording.batches):
            expected += ["tokens"] if batch.token_ids else []
            last = number == len(recording.batches) - 1
            ended = last and recording.raised is None
            expected += ["own"] * (len(batch.frames) - ended) + ["tokens"] * last + ["own"] * ended
        assert ["tokens" if frame.startswith(b"event: harmony:") else "own" for frame in frames] == expected, recording.name


def test_a_stream_with_tokens_ends_cleanly_even_if_the_terminal_response_fails(running: Running) -> None:
    for recording in recorded(running):
        assert running.body(recording, ask=True)[1], recording.name


def test_without_the_header_no_byte_changes(running: Running) -> None:
    for recording in recorded(running):
        body, clean = running.body(recording, ask=False)
        assert body == b"".join(recording.chunks(tokens=False)), recording.name
        assert clean == (not recording.breaks)


def test_the_answer_header_is_there_exactly_if_tokens_are(running: Running) -> None:
    model = "reasoning_final@" + running.setup.recordings + ":20"
    asked, other = running.post(model, ask=True), running.post(model, ask=False)
    assert asked.headers["x-harmony-tokens"] == "1"
    assert "x-harmony-tokens" not in other.headers
    assert set(asked.headers) - set(other.headers) == {"x-harmony-tokens"}
    assert asked.headers["content-type"] == other.headers["content-type"]


@pytest.mark.parametrize("value", ["0", "yes", "", "11"])
def test_another_value_of_the_header_asks_for_nothing(running: Running, value: str) -> None:
    request = {"model": "final_only@" + running.setup.recordings + ":20", "stream": True}
    response = running.client.post(f"{running.base_url}/responses", json=request, headers={"x-harmony-tokens": value})
    assert b"harmony:" not in response.content
    assert "x-harmony-tokens" not in response.headers


def test_what_is_not_a_stream_of_gpt_oss_is_untouched(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    model = "reasoning_final@" + running.setup.recordings + ":20"
    for fields in ({"stream": False}, {"path": "/chat/completions"}, {"unknown": 1}):
        asked, other = (running.post(model, ask=ask, **fields) for ask in (True, False))  # type: ignore[arg-type]
        assert (asked.status_code, asked.content) == (other.status_code, other.content)
        assert "x-harmony-tokens" not in asked.headers
    monkeypatch.setattr(running.server, "use_harmony", False)
    asked, other = (running.post(model, ask=ask) for ask in (True, False))
    assert asked.content == other.content
    assert "x-harmony-tokens" not in asked.headers


def test_the_server_itself_sends_the_same_headers_without_the_extension(plain: Running) -> None:
    model = "reasoning_final@" + plain.setup.recordings + ":20"
    with_header, without = plain.post(model, ask=True), plain.post(model, ask=False)
    assert with_header.content == without.content == b"".join(plain.server.generator.recordings[model].chunks(tokens=False))
    assert set(with_header.headers) == {"date", "server", "content-type", "transfer-encoding"}


def test_the_parser_of_a_response_is_freed_after_its_last_output(running: Running) -> None:
    before = running.parsers()
    for recording in recorded(running)[:10]:
        running.read(recording.name, ask=True)
    assert running.parsers() == before
    running.read("final_only@" + running.setup.recordings + ":20", ask=False)
    assert running.parsers() == before + 1, "the server's own way, which is not ours to change"


async def test_fifty_streams_at_once_keep_their_tokens_apart(running: Running) -> None:
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=100)) as client:

        async def ids(recording: Recording, *, ask: bool) -> list[int]:
            request = {"model": recording.name, "stream": True}
            response = await client.post(f"{running.base_url}/responses", json=request, headers=ASKING if ask else {})
            return ids_of(split(response.content)[0])

        # Between them some that do not ask, so that a mixed-up request would show.
        asked = [number % 5 != 4 for number in range(50)]
        got = await asyncio.gather(*(ids(recording, ask=ask) for recording, ask in zip(CROWD, asked, strict=True)))
    expected = [[token_id for batch in recording.batches for token_id in batch.token_ids] for recording in CROWD]
    assert got == [ids if ask else [] for ids, ask in zip(expected, asked, strict=True)]


def test_a_client_that_disconnects_leaves_a_server_that_serves(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    engine = running.server.generator
    engine.aborted.clear()
    with running.stream(LONG.name) as response:
        assert next(response.iter_raw()).startswith(b"event: response.created")
    assert engine.aborted.wait(20), "the request was not aborted"
    body, clean = running.read(CANCELLED.name, ask=True)
    assert clean
    assert ids_of(split(body)[0]) == HELLO[:4]
    assert [record for record in caplog.records if record.name == "server_ext"] == []


async def test_pipelined_requests_do_not_inherit_the_header(running: Running) -> None:
    """The second request is already there when the first one ends, and is then started in its context."""
    body = json.dumps({"model": "final_only@" + running.setup.recordings + ":20", "stream": True}).encode()
    head = b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n" % len(body)
    host, port = running.base_url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head + b"x-harmony-tokens: 1\r\n\r\n" + body + head + b"connection: close\r\n\r\n" + body)
    answer = await reader.read()
    writer.close()
    first, second = answer.split(b"HTTP/1.1 200 OK")[1:]
    assert b"harmony:token_batch" in first
    assert b"harmony" not in second


def test_a_disconnect_while_the_engine_is_silent_stops_the_stream() -> None:
    with serving(Setup("1.1", "launcher"), LONG) as running:
        running.server.generator.pace = 60
        with running.stream(LONG.name) as response:
            assert next(response.iter_raw()).startswith(b"event: response.created")
        assert running.server.generator.aborted.wait(20)


def test_a_failing_terminal_response_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Setup("main", "middleware")) as running, caplog.at_level(logging.DEBUG, "server_ext"):
        running.read("bad_header@main:20", ask=True)
    line, details = [record for record in caplog.records if record.name == "server_ext"]
    assert line.levelno == logging.ERROR
    assert line.getMessage() == "tensorrt-llm/1.3.0rc4: HarmonyError over the last engine response of a stream; its tokens were sent"
    assert (line.exc_info, details.levelno) == (None, logging.DEBUG)
    assert details.exc_info is not None
