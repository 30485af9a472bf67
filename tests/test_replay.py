"""The replay server over a real socket: what it plays, how it ends, what it refuses."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import lzma
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import pytest

from harmony_client import wire
from harmony_client.wire import TokenBatch, decode_batch
from server_ext import replay
from server_ext.replay import Batch, BrokenEnding, Recording, ReplayApp, ReplayServer, load, script
from tests.recordings import load_all

SHIPPED = {recording.name: recording for recording in load()}
WHOLE = [name for name, recording in SHIPPED.items() if recording.raised is None]
BROKEN = [name for name, recording in SHIPPED.items() if recording.breaks]
WITH_TOKENS = {"x-harmony-tokens": "1"}
HELLO = [200005, 17196, 200008, 13225, 2375, 200002]  # <|channel|>final<|message|>Hello world<|return|>
HELLO_ITEM: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    scripted = [
        script("hello", HELLO, output=[HELLO_ITEM]),
        script("trimmed", HELLO[:-1], stop_reason=200002, tokens_per_batch=20),
        script("cut", HELLO[:-1], finish_reason="length", tokens_per_batch=2),
        script("endless", HELLO, output=None),
        script("breaking", HELLO, raised="HarmonyError: no"),
    ]
    with ReplayServer(ReplayApp([*SHIPPED.values(), *scripted])) as server:
        yield server.base_url


def post(url: str, model: object, headers: dict[str, str] | None = None, **fields: object) -> httpx.Response:
    return httpx.post(f"{url}/responses", json={"model": model, "stream": True, **fields}, headers=headers)


def read_broken(url: str, model: str, headers: dict[str, str] | None = None) -> bytes:
    """The bytes that arrive before the connection breaks."""
    body = b""
    request = {"model": model, "stream": True}
    with (
        httpx.stream("POST", f"{url}/responses", json=request, headers=headers) as response,
        pytest.raises(httpx.RemoteProtocolError, match="incomplete"),
    ):
        for chunk in response.iter_raw():
            body += chunk
    return body


def recorded(recording: Recording) -> list[str]:
    return [*recording.opening, *(frame for batch in recording.batches for frame in batch.frames), *recording.after]


def frames(body: bytes) -> list[str]:
    parts = body.decode().split("\n\n")
    assert parts.pop() == ""
    return [part + "\n\n" for part in parts]


def payload(frame: str) -> dict[str, Any]:
    result = json.loads(frame.partition("\ndata: ")[2])
    assert isinstance(result, dict)
    return result


def split_tokens(body: bytes) -> tuple[list[TokenBatch], list[str]]:
    tokens, others = [], []
    for frame in frames(body):
        if frame.startswith("event: harmony:token_batch\n"):
            tokens.append(decode_batch(payload(frame)))
        else:
            others.append(frame)
    return tokens, others


# What is played


@pytest.mark.parametrize("name", WHOLE)
def test_without_the_header_the_body_is_the_recording_byte_for_byte(url: str, name: str) -> None:
    response = post(url, name)
    assert response.content == "".join(recorded(SHIPPED[name])).encode()
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert wire.HEADER not in response.headers


@pytest.mark.parametrize("name", WHOLE)
def test_with_the_header_a_token_frame_precedes_each_batch(url: str, name: str) -> None:
    response = post(url, name, WITH_TOKENS)
    assert response.headers[wire.HEADER] == "1"
    expected = list(SHIPPED[name].opening)
    for batch, token_batch in zip(SHIPPED[name].batches, SHIPPED[name].token_batches(), strict=True):
        expected += [wire.encode_batch(token_batch).decode(), *batch.frames]
    assert frames(response.content) == expected + list(SHIPPED[name].after)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_token_frames_count_without_gaps_and_the_last_one_says_how_it_ended(name: str) -> None:
    recording = SHIPPED[name]
    batches = list(recording.token_batches())
    start = 0
    for number, batch in enumerate(batches):
        assert (batch.batch, batch.start, batch.done) == (number, start, number == len(batches) - 1)
        assert batch.server == (None if number else recording.server)
        start += len(batch.token_ids)
    assert batches[-1].total == start
    assert (batches[-1].finish_reason, batches[-1].stop_reason) == (recording.finish_reason, recording.stop_reason)
    assert batches[-1].snapshot_error == (recording.raised and "HarmonyError")


def test_every_recording_of_the_tests_is_played_whole_with_and_without_tokens() -> None:
    for recording in load_all():
        assert b"".join(recording.chunks(tokens=False)) == "".join(recorded(recording)).encode(), recording.name
        tokens, others = split_tokens(b"".join(recording.chunks(tokens=True)))
        assert others == recorded(recording), recording.name
        assert [list(batch.token_ids) for batch in tokens] == [batch.token_ids for batch in recording.batches], recording.name


@pytest.mark.parametrize("value", ["0", "2", "true", ""])
def test_another_value_of_the_header_does_not_ask_for_tokens(url: str, value: str) -> None:
    response = post(url, "multibyte", {"x-harmony-tokens": value})
    assert b"harmony:token_batch" not in response.content
    assert wire.HEADER not in response.headers


def test_a_stock_server_ignores_the_header(url: str) -> None:
    response = post(url, "multibyte@main:20", {**WITH_TOKENS, "x-replay-extension": "off"})
    assert wire.HEADER not in response.headers
    assert response.content == post(url, "multibyte@main:20").content


def test_the_extension_can_be_off_for_the_whole_app_and_on_for_a_request() -> None:
    with ReplayServer(ReplayApp(extension=False)) as server:
        assert wire.HEADER not in post(server.base_url, "multibyte", WITH_TOKENS).headers
        assert wire.HEADER in post(server.base_url, "multibyte", {**WITH_TOKENS, "x-replay-extension": "on"}).headers


def test_the_path_works_without_v1(url: str) -> None:
    assert post(url.removesuffix("/v1"), "multibyte").content == post(url, "multibyte").content


# How it ends


@pytest.mark.parametrize("name", BROKEN)
def test_a_recording_that_raised_breaks_the_connection_after_its_last_frame(url: str, name: str) -> None:
    assert read_broken(url, name) == "".join(recorded(SHIPPED[name])).encode()


@pytest.mark.parametrize("name", BROKEN)
def test_before_it_breaks_the_last_token_frame_names_the_exception(url: str, name: str) -> None:
    tokens, others = split_tokens(read_broken(url, name, WITH_TOKENS))
    assert (tokens[-1].done, tokens[-1].snapshot_error) == (True, "HarmonyError")
    assert others == recorded(SHIPPED[name])


def test_a_server_that_reports_its_error_ends_the_body_properly(url: str) -> None:
    tokens, others = split_tokens(post(url, "duplicate_end@main:20", WITH_TOKENS).content)
    assert tokens[-1].snapshot_error == "HarmonyError"
    assert [payload(frame)["type"] for frame in others[-2:]] == ["error", "response.failed"]


def test_an_intended_break_leaves_no_traceback_in_the_log(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        read_broken(url, BROKEN[0])
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_a_fault_of_the_application_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def faulty(scope: object, receive: object, send: object) -> None:
        raise ZeroDivisionError

    with ReplayServer(faulty) as server:
        assert httpx.get(server.base_url).status_code == 500
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


# Scripted outputs


def test_a_script_sends_tokens_and_a_terminal_event_and_nothing_else(url: str) -> None:
    tokens, others = split_tokens(post(url, "hello", WITH_TOKENS).content)
    assert [list(batch.token_ids) for batch in tokens] == [[token_id] for token_id in HELLO]
    assert [payload(frame)["type"] for frame in others] == ["response.created", "response.in_progress", "response.completed"]
    assert [payload(frame)["sequence_number"] for frame in others] == [0, 1, 2]
    assert payload(others[-1])["response"]["output"] == [HELLO_ITEM]
    assert tokens[0].server == "tensorrt-llm/script"


@pytest.mark.parametrize(("pattern", "sizes"), [("1", [1] * 6), ("4", [4, 2]), ("6", [6]), ("20", [6])])
def test_a_script_is_played_with_any_number_of_tokens_per_batch(url: str, pattern: str, sizes: list[int]) -> None:
    tokens, _ = split_tokens(post(url, f"hello:{pattern}", WITH_TOKENS).content)
    assert [len(batch.token_ids) for batch in tokens] == sizes
    assert [token_id for batch in tokens for token_id in batch.token_ids] == HELLO


def test_a_script_can_end_by_a_trimmed_stop_token(url: str) -> None:
    tokens, _ = split_tokens(post(url, "trimmed", WITH_TOKENS).content)
    assert (tokens[-1].finish_reason, tokens[-1].stop_reason, tokens[-1].total) == ("stop", 200002, 5)


def test_a_script_cut_by_length_ends_incomplete(url: str) -> None:
    tokens, others = split_tokens(post(url, "cut", WITH_TOKENS).content)
    assert tokens[-1].finish_reason == "length"
    assert payload(others[-1])["type"] == "response.incomplete"
    assert payload(others[-1])["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a_script_can_end_without_a_terminal_event(url: str) -> None:
    tokens, others = split_tokens(post(url, "endless", WITH_TOKENS).content)
    assert tokens[-1].done
    assert [payload(frame)["type"] for frame in others] == ["response.created", "response.in_progress"]


def test_a_script_can_break_the_connection(url: str) -> None:
    tokens, _ = split_tokens(read_broken(url, "breaking", WITH_TOKENS))
    assert tokens[-1].snapshot_error == "HarmonyError"


def test_an_empty_output_is_one_empty_batch() -> None:
    assert [(list(b.token_ids), b.done, b.total) for b in script("nothing", []).token_batches()] == [([], True, 0)]


def test_batches_of_no_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        script("hello", HELLO, tokens_per_batch=0)


def test_a_recording_cannot_be_rebatched_since_its_events_belong_to_its_batches() -> None:
    with pytest.raises(ValueError, match="as it was recorded"):
        SHIPPED["multibyte@v12:1"].rebatched(3)


# Which recording is played


@pytest.mark.parametrize(
    ("model", "played"),
    [
        ("multibyte@main:1", "multibyte@main:1"),
        ("multibyte@main", "multibyte@main:20"),
        ("multibyte", "multibyte@v12:20"),
        ("multibyte:1", "multibyte@v12:1"),
    ],
)
def test_the_model_names_the_recording(url: str, model: str, played: str) -> None:
    assert post(url, model).content == "".join(recorded(SHIPPED[played])).encode()


@pytest.mark.parametrize(
    ("text", "played"),
    [
        ("please play multibyte@main:1 now", "multibyte@main:1"),
        (
            [{"role": "user", "content": "no"}, {"role": "user", "content": "multibyte"}, {"role": "assistant", "content": "hello"}],
            "multibyte@v12:20",
        ),
        ([{"role": "user", "content": [{"type": "input_text", "text": "multibyte:1"}]}], "multibyte@v12:1"),
        ("anything else", "reasoning_final@v12:20"),
        ([{"role": "user", "content": None}, "x"], "reasoning_final@v12:20"),
        ([{"role": "user", "content": [None]}], "reasoning_final@v12:20"),
        (None, "reasoning_final@v12:20"),
    ],
)
def test_with_a_gpt_oss_model_the_input_names_it(url: str, text: object, played: str) -> None:
    assert post(url, "gpt-oss-120b", input=text).content == "".join(recorded(SHIPPED[played])).encode()


def test_the_models_are_listed(url: str) -> None:
    listed = httpx.get(f"{url}/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]][: len(SHIPPED)] == list(SHIPPED)


def test_a_response_is_retrieved_by_its_id_or_the_name_of_its_recording(url: str) -> None:
    recording = SHIPPED["multibyte@v12:20"]
    for name in (recording.response_id, recording.name):
        assert httpx.get(f"{url}/responses/{name}?stream=true").content == "".join(recorded(recording)).encode()
        tokens, _ = split_tokens(httpx.get(f"{url}/responses/{name}?stream=true", headers=WITH_TOKENS).content)
        assert tokens[-1].done


# Without streaming


def test_without_streaming_the_terminal_response_is_the_answer(url: str) -> None:
    expected = payload(recorded(SHIPPED["multibyte@main:20"])[-1])["response"]
    for response in (post(url, "multibyte@main:20", stream=False), httpx.get(f"{url}/responses/multibyte@main:20")):
        assert (response.status_code, response.json()) == (200, expected)


@pytest.mark.parametrize("model", ["duplicate_end@v12:20", "duplicate_end@main:20", "endless", "breaking"])
def test_without_streaming_a_recording_without_an_answer_is_a_server_error(url: str, model: str) -> None:
    response = post(url, model, stream=None)
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"


# What is refused


@pytest.mark.parametrize("model", ["unknown", "unknown@v12", "multibyte@v9", "multibyte:3", "multibyte@v12:x", "", "hello:0", "hello:-1"])
def test_an_unknown_model_is_not_found(url: str, model: str) -> None:
    response = post(url, model)
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "model_not_found", "model")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"5", b'"x"', b"\xff", b"{}", b'{"model": 5}', b'{"model": "hello", "stream": "yes"}', b"[" * 100_000]
)
def test_a_bad_body_is_a_bad_request(url: str, body: bytes) -> None:
    response = httpx.post(f"{url}/responses", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_a_huge_body_is_refused(url: str) -> None:
    assert httpx.post(f"{url}/responses", content=b" " * (replay.MAX_BODY_BYTES + 1)).status_code == 413


@pytest.mark.parametrize(
    "headers", [{"x-replay-pace": "soon"}, {"x-replay-pace": "-1"}, {"x-replay-pace": "inf"}, {"x-replay-extension": "maybe"}]
)
def test_a_bad_option_is_a_bad_request(url: str, headers: dict[str, str]) -> None:
    response = post(url, "hello", headers)
    assert (response.status_code, response.json()["error"]["param"]) == (400, next(iter(headers)))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/", 404),
        ("GET", "/responses/resp_unknown", 404),
        ("GET", "/responses/hello?stream=true&starting_after=3", 400),
        ("GET", "/responses", 405),
        ("POST", "/models", 405),
        ("DELETE", "/responses/hello", 405),
    ],
)
def test_other_paths_and_methods_are_refused(url: str, method: str, path: str, status: int) -> None:
    response = httpx.request(method, url + path)
    assert response.status_code == status
    assert response.json()["error"]["message"]


def test_nothing_to_replay_is_refused() -> None:
    with pytest.raises(ValueError, match="no recordings"):
        ReplayApp([])


# Pace and departure


def test_the_pace_is_waited_for_before_each_batch(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    wait = asyncio.wait

    async def count(tasks: Any, *, timeout: float) -> object:
        waited.append(timeout)
        return await wait(tasks, timeout=0)

    monkeypatch.setattr(asyncio, "wait", count)
    tokens, _ = split_tokens(post(url, "hello:3", {**WITH_TOKENS, "x-replay-pace": "7.5"}).content)
    assert len(tokens) == 2
    assert waited[:3] == [0, 7.5, 7.5]


def test_a_client_that_leaves_ends_its_stream() -> None:
    app = ReplayApp(pace=3600)
    ended = threading.Event()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        ended.set()

    with ReplayServer(watched) as server:
        with httpx.stream("POST", f"{server.base_url}/responses", json={"model": "multibyte", "stream": True}) as response:
            chunks = response.iter_raw()  # kept, since a discarded iterator closes the connection
            assert next(chunks).startswith(b"event: response.created\n")
            assert not ended.is_set()
        assert ended.wait(20)


def test_the_server_stops_while_a_stream_is_open() -> None:
    with ReplayServer(ReplayApp(pace=3600)) as server, httpx.Client() as client:
        request = client.build_request("POST", f"{server.base_url}/responses", json={"model": "multibyte", "stream": True})
        response = client.send(request, stream=True)
        server.__exit__(None, None, None)
        with pytest.raises(httpx.RemoteProtocolError):
            response.read()


def test_a_client_that_leaves_before_its_request_is_whole_is_not_served() -> None:
    sent: list[replay.Message] = []

    async def receive() -> replay.Message:
        return {"type": "http.disconnect"}

    async def send(message: replay.Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": []}
    asyncio.run(ReplayApp()(scope, receive, send))
    assert sent[0]["status"] == 400


def test_the_lifespan_protocol_is_answered() -> None:
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[str] = []

    async def receive() -> replay.Message:
        return next(messages)

    async def send(message: replay.Message) -> None:
        sent.append(message["type"])

    asyncio.run(ReplayApp()({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_break_is_an_exception_into_the_asgi_server() -> None:
    async def receive() -> replay.Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: replay.Message) -> None:
        pass

    scope = {"type": "http", "method": "GET", "path": "/v1/responses/breaking", "query_string": b"stream=true", "headers": []}
    with pytest.raises(BrokenEnding, match="HarmonyError: no"):
        asyncio.run(ReplayApp([script("breaking", HELLO, raised="HarmonyError: no")])(scope, receive, send))


# Files of recordings


def test_a_file_of_recordings_may_be_compressed(tmp_path: Path) -> None:
    text = (resources.files("server_ext") / "recordings" / "trtllm.jsonl").read_bytes()
    (tmp_path / "a.jsonl").write_bytes(text)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.jsonl.xz").write_bytes(lzma.compress(text))
    for name in ("a.jsonl", "a.jsonl.gz", "a.jsonl.xz"):
        assert load(tmp_path / name) == list(SHIPPED.values())


def test_a_minimal_recording_has_a_scenario_and_batches(tmp_path: Path) -> None:
    file = tmp_path / "small.jsonl"
    file.write_text('{"scenario": "small", "batches": [{"token_ids": [5], "frames": []}], "unknown": 1}\n\n')
    (recording,) = load(file)
    assert recording == Recording("small", [Batch([5], [])])
    assert (recording.name, recording.response_id, recording.terminal_response()) == ("small", None, None)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"batches": []}',
        '{"scenario": "x"}',
        '{"scenario": "x", "batches": [{"frames": []}]}',
        '{"scenario": "x", "batches": [{"token_ids": [-1], "frames": []}]}',
        '{"scenario": "x", "batches": [{"token_ids": [], "frames": [5]}]}',
        '{"scenario": "x", "batches": [], "opening": ["event: x"]}',
    ],
)
def test_a_line_that_is_no_recording_is_named_by_file_and_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text("\n" + line + "\n")
    with pytest.raises(ValueError, match=r"bad\.jsonl:2: not a recording"):
        load(file)


@pytest.mark.parametrize(
    ("name", "content"), [("a.jsonl", b""), ("a.jsonl", b"\xff"), ("a.jsonl.xz", b"junk"), ("a.jsonl.gz", gzip.compress(b"{}")[:-9])]
)
def test_a_file_without_readable_recordings_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.jsonl"):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("version", "server"),
    [("v12", "tensorrt-llm/1.2.1"), ("main", "tensorrt-llm/1.3.0rc"), ("vllm-0.33", "vllm/0.33"), ("", "tensorrt-llm/unknown")],
)
def test_the_server_is_named_as_the_extension_would_name_it(version: str, server: str) -> None:
    assert Recording("x", [], version=version).server == server


# From a shell


def run_replay(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "server_ext.replay", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def test_the_server_runs_from_a_shell_on_any_free_port() -> None:
    with run_replay("--port", "0") as process:
        assert process.stderr is not None
        try:
            base_url = process.stderr.readline().split(" ", 1)[0]
            assert post(base_url, "multibyte").content == "".join(recorded(SHIPPED["multibyte@v12:20"])).encode()
            read_broken(base_url, BROKEN[0])
        finally:
            process.terminate()
        assert "Traceback" not in process.stderr.read()


def test_what_cannot_be_served_exits_with_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments in ([str(tmp_path / "missing.jsonl")], ["--pace", "-1"], ["--port", "99999"]):
        assert replay.main(arguments) == 2
        assert capsys.readouterr().err.startswith("python -m server_ext.replay: ")


def test_without_uvicorn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ImportError, match=r"harmony-stream-client\[demo\]"), ReplayServer():
        pass
    assert replay.main([]) == 2
    assert "[demo]" in capsys.readouterr().err


def test_the_app_itself_needs_only_the_standard_library() -> None:
    code = "import sys, server_ext.replay; server_ext.replay.ReplayApp(); print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & {"uvicorn", "openai", "httpx", "httpx2", "pydantic", "anyio", "h11"}
