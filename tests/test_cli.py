"""The command line: what it reads, what it prints, how it exits; never a traceback for a user's mistake."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import harmony_client
from harmony_client import check, cli, dump
from harmony_client.sse import Marker
from server_ext.replay import ReplayServer
from tests.clients import Socket, answer, frames
from tests.recordings import Recording, load

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
CORRECT = b"".join(frames(answer()))
HEADERS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ndate: Mon, 02 Nov 2026 10:00:00 GMT\r\n\r\n"
ERROR = {"error": {"message": "no such model", "code": "model_not_found"}}


class Outcome(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Command = Callable[..., Outcome]


@pytest.fixture
def command(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command in this process, with bytes as its standard input."""

    def run(*arguments: str | Path, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse's way out
            status = int(end.code or 0)
        captured = capsysbinary.readouterr()
        return Outcome(status, captured.out.decode(), captured.err.decode())

    return run


def process(*arguments: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    line = [sys.executable, "-m", "harmony_client.cli", *arguments]
    return subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT)


def recorded(scenario: str, pattern: str = "20") -> Recording:
    return next(r for r in load("v12") if (r.scenario, r.pattern) == (scenario, pattern))


def json_lines(events: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def events_in(body: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")]


# --- check ----------------------------------------------------------------------------------------


def test_check_prints_event_code_and_sentence_of_each_violation(command: Command, tmp_path: Path) -> None:
    recording = recorded("reasoning_final")
    file = tmp_path / "stream.sse"
    file.write_bytes(recording.sse(frames=False))
    outcome = command("check", file)
    violations = check(recording.events(frames=False))
    assert len(violations) > 3
    assert outcome.lines == [f"event {v.position}: {v.code}: {v.message}" for v in violations]
    assert outcome.err == f"{len(violations)} violations in 10 events\n"
    assert outcome.status == 1


def test_check_finds_nothing_in_a_correct_stream(command: Command) -> None:
    assert command("check", "-", stdin=CORRECT) == (0, "", "no violations in 10 events\n")


def test_check_prints_one_json_object_per_violation(command: Command) -> None:
    recording = recorded("reasoning_final")
    outcome = command("check", "--json", "-", stdin=recording.sse(frames=False))
    assert [json.loads(line) for line in outcome.lines] == [v._asdict() for v in check(recording.events(frames=False))]


def test_token_batches_are_no_violations_but_count_as_events(command: Command) -> None:
    recording = recorded("reasoning_final")
    without = command("check", "--json", "-", stdin=recording.sse(frames=False))
    outcome = command("check", "--json", "-", stdin=recording.sse(frames=True))
    assert outcome.err.endswith("in 10 events (and 3 token batches)\n")
    found, expected = ([json.loads(line) for line in run.lines] for run in (outcome, without))
    assert [v["code"] for v in found] == [v["code"] for v in expected]
    types = [event["type"] for event in recording.events(frames=True)]
    assert [types[v["position"]] for v in found] == [recording.events(frames=False)[v["position"]]["type"] for v in expected]


def test_done_markers_and_keepalives_are_no_events(command: Command) -> None:
    assert command("check", "-", stdin=b": ping\n\ndata:\n\n" + CORRECT + b"data: [DONE]\n\n").status == 0


def test_a_record_that_is_no_json_is_a_violation(command: Command) -> None:
    outcome = command("check", "-", stdin=CORRECT.replace(b"\n\n", b"\n\ndata: {oops\n\n", 1))
    assert outcome.status == 1
    assert outcome.lines[0].startswith("event 1: event-malformed: ")


def test_control_characters_of_a_server_do_not_reach_the_terminal(command: Command) -> None:
    evil = b'data: {"error": {"message": "\\u001b]0;owned\\u0007\\u001b[2J"}}\n\n'
    for outcome in (command("check", "-", stdin=evil), command("repair", "-", stdin=evil)):
        assert outcome.status == 1
        assert all(character.isprintable() or character == "\n" for character in outcome.out + outcome.err)


# --- the forms of a saved stream --------------------------------------------------------------------

EVENTS = answer("caf\u00e9 \u2028", "!")
FORMS = {
    "events": b"".join(frames(EVENTS)),
    "events, CRLF": b"".join(frames(EVENTS)).replace(b"\n", b"\r\n"),
    "events, byte order mark": b"\xef\xbb\xbf" + b"".join(frames(EVENTS)),
    "JSON lines": json_lines(EVENTS),
    "JSON lines, CRLF, blank lines, no last line feed": json_lines(EVENTS).replace(b"\n", b"\r\n\r\n").rstrip(),
    "JSON lines, byte order mark": b"\xef\xbb\xbf" + json_lines(EVENTS),
    "curl -i": HEADERS + b"".join(frames(EVENTS)),
    "curl -i, HTTP/2": b"HTTP/2 200 \r\n\r\n" + b"".join(frames(EVENTS)),
    "curl -i behind a proxy": b"HTTP/1.1 200 Connection established\r\n\r\n" + HEADERS + b"".join(frames(EVENTS)),
    "curl -i, JSON lines, LF": HEADERS.replace(b"\r", b"") + json_lines(EVENTS),
    "curl -v": b"* Connected to gpu\n> POST /v1/responses HTTP/1.1\n>\n< HTTP/1.1 200 OK\n< date: x\n<\n" + b"".join(frames(EVENTS)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_events_whatever_the_chunks(form: str) -> None:
    data = FORMS[form]
    for size in (1, 2, 3, 7, 64, len(data)):
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        assert [payload for payload in dump.payloads(chunks) if payload is not Marker.EMPTY] == EVENTS


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("headers", [b"", HEADERS])
def test_a_json_error_body_is_one_event(command: Command, indent: int | None, headers: bytes) -> None:
    body = headers + json.dumps(ERROR, indent=indent).encode()
    assert list(dump.payloads([body])) == [ERROR]
    assert command("check", "-", stdin=body).lines[0].startswith("event 0: error-key: ")
    outcome = command("repair", "-", stdin=body)
    assert outcome.status == 1
    assert outcome.err.splitlines()[-1] == "error: server-error: the server reported an error: no such model"


def test_events_are_not_held_back(command: Command) -> None:
    for start in (CORRECT[:200], HEADERS + CORRECT[:200], json_lines(answer()[:1])):
        body = dump.sse_body(iter([start, b"never asked for"]))
        assert sum(len(next(body)) for _ in range(2)) > 0


def test_input_that_never_ends_its_headers_is_passed_on() -> None:
    endless = (b"HTTP/1.1 200 OK\n" + b"x" * 100_000 for _ in range(30))
    assert sum(map(len, dump.sse_body(endless))) == 30 * 100_016
    assert sum(map(len, dump.sse_body(b"{" + b" " * 100_000 for _ in range(30)))) > 0


# --- repair -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [True, False])
def test_repair_writes_a_stream_in_which_check_finds_nothing(command: Command, frames: bool) -> None:
    recording = recorded("reasoning_final")
    outcome = command("repair", "-", stdin=recording.sse(frames))
    assert outcome.status == 0
    assert outcome.err.startswith(f"verdict: match (made from {'tokens' if frames else 'events'})\nending: completed\n")
    assert command("check", "-", stdin=outcome.out.encode()).status == 0
    terminal = events_in(outcome.out)[-1]
    texts = [part["text"] for item in terminal["response"]["output"] for part in item["content"]]
    assert all(text in recording.harmony_text for text in texts)
    again = command("repair", "-", stdin=outcome.out.encode())
    assert again.out == outcome.out


def test_repair_reports_as_json(command: Command) -> None:
    outcome = command("repair", "--json", "-", stdin=recorded("reasoning_final").sse(frames=True))
    report = json.loads(outcome.err)
    assert (report["verdict"], report["basis"], report["output_tokens"]) == ("match", "tokens", 43)


def test_repair_names_what_it_repaired(command: Command) -> None:
    outcome = command("repair", "-", stdin=recorded("reasoning_final").sse(frames=False))
    repairs = [line for line in outcome.err.splitlines() if line.startswith("repair: ")]
    assert any(line.startswith("repair: id-rewritten: item 0, event 2, ") for line in repairs)
    tokens = command("repair", "-", stdin=recorded("reasoning_final").sse(frames=True))
    assert "tokens: 43, finish reason stop, from tensorrt-llm/1.2.1\n" in tokens.err


def test_repair_of_a_cut_stream_exits_with_1_and_names_the_error(command: Command) -> None:
    outcome = command("repair", "-", stdin=CORRECT[: len(CORRECT) // 2])
    assert outcome.status == 1
    assert outcome.err.splitlines()[-1].startswith("error: disconnected: ")
    assert events_in(outcome.out)[-1]["type"] == "response.output_item.done"


def test_repair_exits_with_1_if_the_terminal_response_contradicts_the_stream(command: Command) -> None:
    events = answer("Berlin")
    events[-1]["response"]["output"][0]["content"][0]["text"] = "Paris"
    outcome = command("repair", "-", stdin=json_lines(events))
    assert outcome.status == 1
    assert 'difference: item 0 text: streamed "Berlin", server "Paris"\n' in outcome.err


def test_repair_shows_differences_dropped_text_and_preambles(command: Command) -> None:
    found = {
        line.partition(":")[0]
        for scenario in {recording.scenario for recording in load("v12")}
        for line in command("repair", "-", stdin=recorded(scenario).sse(frames=True)).err.splitlines()
    }
    assert {"difference", "dropped", "preamble", "repair", "tokens"} <= found


def test_repair_says_why_tokens_were_lost(command: Command) -> None:
    events = [event for event in recorded("reasoning_final").events(frames=True) if event.get("batch") != 1]
    outcome = command("repair", "-", stdin=json_lines(events))
    assert any(line.startswith("tokens lost: ") for line in outcome.err.splitlines())


def test_half_a_surrogate_pair_passes(command: Command) -> None:
    outcome = command("repair", "-", stdin=json_lines(answer("\ud83d", "!")))
    assert outcome.status == 0
    assert "\ud83d" in {event.get("delta") for event in events_in(outcome.out)}


def test_repaired_events_come_while_the_stream_still_runs() -> None:
    with process("repair", "-") as running:
        assert running.stdin
        assert running.stdout
        running.stdin.write(b"".join(frames(answer()[:1])))
        running.stdin.flush()
        assert running.stdout.readline() == b"event: response.created\n"
        running.communicate(b"".join(frames(answer()[1:])))
    assert running.returncode == 0


# --- the timeline -----------------------------------------------------------------------------------


def drawing(text: str) -> list[str]:
    lines = text.splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("event  ")) :]


def test_check_draws_the_stream_after_the_violations(command: Command) -> None:
    stream = recorded("reasoning_final").sse(frames=True)
    plain, outcome = command("check", "-", stdin=stream), command("check", "--timeline", "-", stdin=stream)
    assert (outcome.status, outcome.err) == (plain.status, plain.err)
    assert outcome.out.startswith(plain.out + "\n")
    lines = drawing(outcome.out)
    assert [line[:18] for line in lines if line.startswith("──")] == ["── stock stream: 1", "── repaired stream"]
    assert max(map(len, lines)) == 80


def test_repair_draws_the_stream_to_standard_error_after_the_report(command: Command) -> None:
    stream = recorded("reasoning_final").sse(frames=True)
    plain, outcome = command("repair", "-", stdin=stream), command("repair", "--timeline", "-", stdin=stream)
    assert (outcome.status, outcome.out) == (plain.status, plain.out)
    assert outcome.err.startswith(plain.err + "\n")
    assert drawing(outcome.err) == drawing(command("check", "--timeline", "-", stdin=stream).out)


def test_a_stream_that_breaks_off_is_drawn_as_far_as_it_goes(command: Command) -> None:
    for name in ("check", "repair"):
        outcome = command(name, "--timeline", "-", stdin=b"".join(frames(answer()[:5])))
        assert outcome.status == 1
        text = "\n".join(drawing(outcome.out if name == "check" else outcome.err))
        assert "! item-done-missing, terminal-missing\n" in text
        assert "── repaired stream: 8 events, unverifiable, from events, error: disconnected ─" in text


def test_the_drawing_is_plain_ascii_where_nothing_else_can_be_shown() -> None:
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
    line = [sys.executable, "-m", "harmony_client.cli", "check", "--timeline", "-"]
    done = subprocess.run(line, input=CORRECT, capture_output=True, env=environment, check=False)
    assert "-- stock stream: 10 events, no violations ---" in done.stdout.decode("ascii")
    assert b"\\" not in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("name", ["check", "repair"])
@pytest.mark.parametrize(
    ("variables", "width", "coloured"),
    [({}, 50, True), ({"COLUMNS": "60"}, 60, True), ({"NO_COLOR": "1"}, 50, False), ({"TERM": "dumb"}, 50, False)],
)
def test_on_a_terminal_the_drawing_is_as_wide_as_it_and_in_colour(name: str, variables: dict[str, str], width: int, coloured: bool) -> None:
    import termios

    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 50))
    hidden = {"NO_COLOR", "COLUMNS"} - set(variables)
    environment = {key: value for key, value in {**ENVIRONMENT, "TERM": "xterm", **variables}.items() if key not in hidden}
    line = [sys.executable, "-m", "harmony_client.cli", name, "--timeline", "-"]
    streams: dict[str, Any] = {"stdout": slave} if name == "check" else {"stdout": subprocess.DEVNULL, "stderr": slave}
    with subprocess.Popen(line, stdin=subprocess.PIPE, env=environment, **streams) as running:
        running.communicate(CORRECT)
    os.close(slave)
    output = b""
    with contextlib.suppress(OSError):  # the way a pseudo-terminal ends
        while data := os.read(master, 1 << 16):
            output += data
    os.close(master)
    lines = output.decode().splitlines()
    assert any("\x1b[" in line for line in lines) is coloured
    assert max(len(re.sub("\x1b\\[\\d*m", "", line)) for line in lines) == width


# --- a live server ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with ReplayServer() as server:
        yield server.base_url


class Listener:
    """A server that answers with what it is given, and keeps the requests."""

    def __init__(self, answers: dict[str, tuple[int, str, bytes]]) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"] or 0))
                self._answer(body)

            def do_GET(self) -> None:
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                outer.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                status, kind, data = answers.get(self.path, (404, "text/html", b"<html>no such page</html>"))
                self.send_response(status)
                self.send_header("content-type", kind)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Listener:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


STREAM = (200, "text/event-stream", CORRECT)


def test_check_asks_a_live_server_and_gets_its_raw_stream(command: Command, base_url: str) -> None:
    model = "reasoning_final@v12:20"
    outcome = command("check", "--url", base_url, "--model", model, "Where is my order?")
    saved = command("check", "-", stdin=recorded("reasoning_final").sse(frames=True))
    assert (outcome.status, outcome.out) == (saved.status, saved.out)
    assert outcome.err == f"{model} at {base_url}: it sends token batches\n{saved.err}"


@pytest.mark.parametrize(("flags", "basis"), [([], "tokens"), (["--no-tokens"], "events")])
def test_repair_asks_a_live_server_with_or_without_tokens(command: Command, base_url: str, flags: list[str], basis: str) -> None:
    outcome = command("repair", "--url", base_url, "--model", "reasoning_final@v12:20", *flags, "Where is my order?")
    assert outcome.status == 0
    assert f"verdict: match (made from {basis})\n" in outcome.err
    assert command("check", "-", stdin=outcome.out.encode()).status == 0


def test_a_live_stream_is_drawn(command: Command, base_url: str) -> None:
    outcome = command("check", "--timeline", "--url", base_url, "--model", "reasoning_final@v12:20", "x")
    assert drawing(outcome.out) == drawing(command("check", "--timeline", "-", stdin=recorded("reasoning_final").sse(frames=True)).out)


def test_without_a_model_the_first_of_the_list_is_asked_and_without_a_prompt_a_sum(command: Command) -> None:
    models = json.dumps({"object": "list", "data": [{"id": "gpt-oss-20b", "object": "model"}]}).encode()
    with Listener({"/v1/models": (200, "application/json", models), "/v1/responses": STREAM}) as server:
        outcome = command("check", "--url", f"{server.url}/v1/responses/")
    assert outcome.status == 0
    assert outcome.err.startswith(f"gpt-oss-20b at {server.url}/v1/responses/: asked for token batches, but it does not offer them\n")
    assert [path for path, _, _ in server.requests] == ["/v1/models", "/v1/responses"]
    _, headers, body = server.requests[-1]
    assert json.loads(body) == {"model": "gpt-oss-20b", "input": "What is 17 times 23? Answer in one sentence.", "stream": True}
    assert headers["x-harmony-tokens"] == "1"


def test_an_api_key_is_sent_only_if_its_variable_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    with Listener({"/v1/responses": STREAM}) as server:
        line = ["check", "--url", f"{server.url}/v1", "--model", "m", "--no-tokens"]
        assert command(*line, "x").status == 0
        assert command(*line, "--api-key-env", "OPENAI_API_KEY", "x").status == 0
    assert [headers["authorization"] for _, headers, _ in server.requests] == ["Bearer none", "Bearer sk-mine"]
    assert "x-harmony-tokens" not in server.requests[0][1]
    missing = command("check", "--url", server.url, "--api-key-env", "NO_SUCH_KEY", "x")
    assert (missing.status, missing.out) == (2, "")
    assert missing.err == "harmony-client: --api-key-env: there is no environment variable NO_SUCH_KEY, or it is empty\n"


@pytest.mark.parametrize("name", ["check", "repair"])
def test_a_server_that_cannot_be_asked_exits_with_2_and_one_line_that_names_it(command: Command, name: str) -> None:
    refusal = json.dumps({"error": {"message": "no such model: m", "code": "model_not_found"}}).encode()
    empty = json.dumps({"object": "list", "data": []}).encode()
    answers = {"/v1/responses": (400, "application/json", refusal), "/v1/models": (200, "application/json", empty)}
    with Listener(answers) as server:
        for url, model, expected in (
            (f"{server.url}/v1", "m", f"{server.url}/v1/responses: HTTP 400: no such model: m"),
            (f"{server.url}/v1", None, f"{server.url}/v1/models: the server lists no model; name one with --model"),
            (server.url, "m", f"{server.url}/responses: HTTP 404: Not Found; a base URL usually ends in /v1"),
            (
                server.url,
                None,
                f"{server.url}/models: HTTP 404: Not Found; a base URL usually ends in /v1 (--model names one without asking)",
            ),
            ("http://127.0.0.1:9/v1", "m", "http://127.0.0.1:9/v1/responses: "),
            ("gpu:8000/v1", "m", "gpu:8000/v1: not the URL of a server, such as http://gpu:8000/v1"),
            ("http://gpu:port/v1", "m", "http://gpu:port/v1: not the URL"),
            ("http://[gpu/v1", "m", "http://[gpu/v1: not the URL"),
            ("ftp://gpu/v1", "m", "ftp://gpu/v1: not the URL"),
        ):
            outcome = command(name, "--url", url, *(["--model", model] if model else []), "Hello")
            assert (outcome.status, outcome.out) == (2, ""), url
            assert outcome.err.startswith(f"harmony-client: {expected}")
            assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("name", ["check", "repair"])
def test_a_page_instead_of_a_stream_exits_with_2(command: Command, name: str) -> None:
    with Listener({"/v1/responses": (200, "text/html", b"<html>welcome</html>")}) as server:
        outcome = command(name, "--url", f"{server.url}/v1", "--model", "m", "x")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.splitlines()[-1].startswith(f"harmony-client: {server.url}/v1/responses: no events; expected ")


def test_a_connection_that_breaks_is_said_and_what_came_is_used(command: Command) -> None:
    with Socket(answer()[:4], "drop") as server:
        checked = command("check", "--url", server.base_url, "--model", "m", "x")
    with Socket(answer()[:4], "drop") as server:
        repaired = command("repair", "--url", server.base_url, "--model", "m", "x")
    assert (checked.status, repaired.status) == (1, 1)
    assert "terminal-missing" in checked.out
    assert checked.err.splitlines()[-1].startswith("the connection broke: RemoteProtocolError(")
    assert repaired.err.splitlines()[-1].startswith("error: disconnected: the connection broke before the terminal event")
    with Socket([], "drop") as server:
        nothing = command("repair", "--url", server.base_url, "--model", "m", "x")
    assert nothing.status == 2
    assert "the connection broke before the first event" in nothing.err


# --- mistakes ---------------------------------------------------------------------------------------


@pytest.fixture
def unusable(tmp_path: Path) -> dict[str, Path]:
    contents = {
        "empty": b"",
        "blank": b"\n \n",
        "prose": b"Hello,\nworld\n",
        "binary": bytes(range(256)) * 40,
        "compressed": gzip.compress(CORRECT),
        "compressed by HTTP": HEADERS.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n") + gzip.compress(CORRECT),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: tmp_path / name for name in (*contents, "missing", ".")}


@pytest.mark.parametrize("name", ["check", "repair"])
def test_input_that_is_no_stream_exits_with_2_and_one_line(command: Command, unusable: dict[str, Path], name: str) -> None:
    for path in unusable.values():
        outcome = command(name, path)
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err.startswith("harmony-client: ")
        assert outcome.err.count("\n") == 1


def test_a_missing_file_is_named(command: Command) -> None:
    assert command("check", "nowhere.sse").err == "harmony-client: nowhere.sse: No such file or directory\n"


def test_what_a_stream_should_look_like_is_said(command: Command) -> None:
    expected = "no events; expected server-sent events, JSON lines, or what curl -i prints"
    assert command("check", "-", stdin=b"Hello").err == f"harmony-client: standard input: {expected}\n"


def test_a_compressed_body_is_recognised(command: Command, unusable: dict[str, Path]) -> None:
    assert "compressed (gzip); save it with curl --compressed" in command("check", unusable["compressed by HTTP"]).err


@pytest.mark.parametrize("name", ["check", "repair"])
def test_json_nested_too_deeply_is_refused_in_one_line(command: Command, name: str) -> None:
    outcome = command(name, "-", stdin=b'data: {"type": "x", "x": ' + b"[" * 100 + b"]" * 100 + b"}\n\n")
    assert outcome.status in (1, 2)
    assert "nested deeper than 64" in outcome.err
    assert "Traceback" not in outcome.err


MISTAKES = [
    *([], ["chek", "x"], ["check"], ["check", "a", "b"], ["repair", "--no"], ["demo", "--pace", "-1"]),
    *(["check", "--json", "--timeline", "a"], ["check", "--model", "m", "a"], ["repair", "--no-tokens", "a"]),
    *(["check", "--api-key-env", "KEY", "a"], ["check", "--url"]),
]


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_usage_error_exits_with_2_and_shows_the_usage(command: Command, arguments: list[str]) -> None:
    outcome = command(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("usage: harmony-client")


def test_a_reader_that_leaves_ends_the_command_quietly() -> None:
    with process("check", "-") as running:
        assert running.stdin
        assert running.stdout
        assert running.stderr
        running.stdout.close()
        running.stdin.write(recorded("reasoning_final").sse(frames=False))
        running.stdin.close()
        assert b"Traceback" not in running.stderr.read()
        assert running.wait() == 2


def test_an_interrupt_ends_the_command_quietly(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> Iterator[bytes]:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "payloads", interrupted)
    assert command("check", "-") == (130, "", "")


# --- help -------------------------------------------------------------------------------------------


def test_the_version_is_that_of_the_package(command: Command) -> None:
    assert command("--version") == (0, f"harmony-client {harmony_client.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["check", "--help"], ["repair", "--help"]])
def test_help_fits_80_columns(command: Command, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    outcome = command(*arguments)
    assert outcome.status == 0
    assert max(map(len, outcome.lines)) <= 80
    assert ("exit status:" if arguments[1:] else "examples:\n") in outcome.out


def test_help_check_and_repair_need_neither_openai_nor_an_extra(tmp_path: Path) -> None:
    code = """
import sys
for name in ("openai", "httpx", "httpx2", "pydantic", "rich", "uvicorn", "server_ext"):
    sys.modules[name] = None  # importing it now raises
from harmony_client.cli import main
assert main(["check", sys.argv[1]]) == 1
assert main(["repair", sys.argv[1]]) == 0
main(["--help"])
"""
    file = tmp_path / "stream.sse"
    file.write_bytes(recorded("reasoning_final").sse(frames=True))
    done = subprocess.run([sys.executable, "-c", code, file], capture_output=True, env=ENVIRONMENT, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
