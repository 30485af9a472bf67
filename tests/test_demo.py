"""The demo: what it prints on a terminal and into a pipe, how it exits, and what it calls whole."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len

from harmony_client import cli, demo
from harmony_client.demo import Item, Row, model_items
from server_ext.replay import ReplayApp
from tests import oracle

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")}
ENVIRONMENT |= {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
COMMAND = [sys.executable, "-m", "harmony_client.cli", "demo"]


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = ENVIRONMENT | variables
    return subprocess.run([*COMMAND, *arguments], capture_output=True, encoding="utf-8", env=environment, timeout=60, check=False)


def on_a_terminal(**variables: str) -> str:
    """What the demo writes to a terminal of 80 columns."""
    pty = pytest.importorskip("pty", reason="no pseudo terminals on this platform")
    ours, theirs = pty.openpty()
    environment = ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "80", "LINES": "40"} | variables
    with subprocess.Popen(COMMAND, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment) as running:
        os.close(theirs)
        written = b""
        try:
            while data := os.read(ours, 1 << 16):
                written += data
        except OSError:  # how Linux says that the other end is closed
            pass
    os.close(ours)
    assert running.returncode == 0
    return written.decode()


@pytest.fixture(scope="module")
def piped() -> subprocess.CompletedProcess[str]:
    return run()


@pytest.fixture(scope="module")
def as_json() -> subprocess.CompletedProcess[str]:
    return run("--json")


@pytest.fixture(scope="module")
def rows(as_json: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in as_json.stdout.splitlines()]


# --- the whole demo -----------------------------------------------------------------------------------


def test_the_demo_exits_with_0_and_says_nothing_on_standard_error(piped: subprocess.CompletedProcess[str]) -> None:
    assert (piped.returncode, piped.stderr) == (0, "")


def test_piped_output_is_plain_text_of_80_columns(piped: subprocess.CompletedProcess[str]) -> None:
    assert "\x1b" not in piped.stdout
    assert max(map(cell_len, piped.stdout.splitlines())) <= 80


def test_it_opens_with_two_sentences_and_closes_with_a_pointer(piped: subprocess.CompletedProcess[str]) -> None:
    opening, *_, closing = piped.stdout.strip().split("\n\n")
    assert opening.count(". ") + opening.count(".\n") + opening.endswith(".") == 2
    assert "HarmonyOpenAI" in opening
    assert "wrap(client)" in closing
    assert "harmony-client check -" in " ".join(closing.split())


def test_no_text_is_cropped(piped: subprocess.CompletedProcess[str]) -> None:
    assert "…" not in piped.stdout.replace("(…)", "").replace("-N …", "")


def test_the_stock_sdk_shows_a_dot_where_harmony_openai_shows_the_answer(piped: subprocess.CompletedProcess[str]) -> None:
    _, _, stream = piped.stdout.partition("reasoning and an answer, 20 tokens per batch ---")
    left = [line[:40].strip() for line in stream.splitlines()[2:16]]
    right = " ".join(line[40:].strip() for line in stream.splitlines()[2:16])
    assert left[:4] == ["item 0 added: reasoning", "“.”", "“ by”", "item 1 done"]
    assert "“Your order #W2378156 shipped on Monday and should arrive by Thursday.”" in right


def test_the_table_has_a_row_for_each_stream_and_client(piped: subprocess.CompletedProcess[str]) -> None:
    _, _, table = piped.stdout.partition("all streams ---")
    assert sum(line.startswith(" stock SDK ") for line in table.splitlines()) == 8
    assert sum(line.startswith(" HarmonyOpenAI whole ") for line in table.splitlines()) == 8
    assert "8 of 8 streams are whole with HarmonyOpenAI, 0 with the stock SDK." in table


def test_json_rows_stand_alone_on_standard_output(as_json: subprocess.CompletedProcess[str], rows: list[dict[str, Any]]) -> None:
    assert as_json.returncode == 0
    assert "HarmonyOpenAI" in as_json.stderr
    assert [row["client"] for row in rows] == ["openai", "harmony_client"] * 8
    assert {row["tokens_per_batch"] for row in rows} == {1, 20}


def test_every_row_of_ours_is_whole_and_none_of_the_stock_sdk(rows: list[dict[str, Any]]) -> None:
    assert [row["whole"] for row in rows] == [False, True] * 8
    ours = [row for row in rows if row["client"] == "harmony_client"]
    assert all(row["items_streamed"] == row["items_written"] for row in ours)
    assert {row["basis"] for row in ours} == {"tokens"}
    broken = [row for row in ours if row["recording"].startswith("duplicate_end")]
    assert {row["verdict"] for row in broken} == {"unverifiable"}
    assert {row["verdict"] for row in ours if row not in broken} == {"match"}


def test_a_terminal_gets_colours_and_the_columns_live() -> None:
    written = on_a_terminal()
    assert "\x1b[32m" in written
    assert "\x1b[1A" in written  # the cursor goes up, to draw again


def test_no_color_means_no_colours_and_characters_that_cannot_be_shown_are_replaced() -> None:
    written = on_a_terminal(NO_COLOR="1", PYTHONIOENCODING="ascii")
    assert "\x1b[32m" not in written
    assert "\\u65e5" in written
    assert "8 of 8 streams are whole" in written


# --- how it ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [{"uvicorn"}, {"rich"}, {"rich", "uvicorn"}])
def test_a_missing_extra_is_one_line_that_names_the_command(
    missing: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else object())
    assert cli.main(["demo"]) == 2
    names = " and ".join(sorted(missing))
    assert capsys.readouterr().err == f"harmony-client: the demo needs {names}: pip install 'harmony-stream-client[demo]'\n"


def test_it_exits_with_1_if_a_stream_is_not_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "SCENARIOS", {"reasoning_final": "an answer"})
    monkeypatch.setattr(demo, "model_items", lambda text: model_items(text)[:1])
    assert cli.main(["demo"]) == 1
    assert "0 of 2 streams are whole with HarmonyOpenAI" in capsys.readouterr().out


def test_it_exits_with_1_if_the_server_answers_with_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "SCENARIOS", {"reasoning_final": "an answer"})
    monkeypatch.setattr(ReplayApp, "find", lambda *_: None)
    assert cli.main(["demo", "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(row["raised"].startswith("NotFoundError: ") for row in rows)


def test_the_pace_reaches_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reached(Exception):
        pass

    def app(*, pace: float) -> None:
        raise Reached(pace)

    monkeypatch.setattr("server_ext.replay.ReplayApp", app)
    with pytest.raises(Reached, match=r"0\.25"):
        cli.main(["demo", "--json", "--pace", "0.25"])


# --- what is whole ------------------------------------------------------------------------------------


def test_the_splitter_of_the_demo_agrees_with_openai_harmony() -> None:
    import openai_harmony

    outputs = {text for name, text in demo._model_outputs().items() if not name.startswith("duplicate_end")}
    assert len(outputs) == 3
    for text in outputs:
        messages = oracle.encoding().parse_messages_from_completion_tokens(oracle.encode(text), openai_harmony.Role.ASSISTANT)
        expected = [Item(demo._KINDS[m.channel], m.content[0].text, (m.recipient or "").removeprefix("functions.")) for m in messages]
        assert model_items(text) == expected


def test_the_splitter_skips_a_stray_stop_token() -> None:
    outputs = demo._model_outputs()
    assert model_items(outputs["duplicate_end@v12:1"]) == model_items(outputs["reasoning_final@v12:1"])


WRITTEN = [Item("reasoning", "Hm."), Item("function_call", "{}", "look")]


def events() -> list[Any]:
    """A whole stream of both items."""
    reasoning = SimpleNamespace(type="reasoning")
    call = SimpleNamespace(type="function_call", name="look")
    return [
        SimpleNamespace(type="response.created"),
        SimpleNamespace(type="response.output_item.added", output_index=0, item=reasoning),
        SimpleNamespace(type="response.reasoning_text.delta", output_index=0, delta="H"),
        SimpleNamespace(type="response.reasoning_text.delta", output_index=0, delta="m."),
        SimpleNamespace(type="response.output_item.done", output_index=0, item=reasoning),
        SimpleNamespace(type="response.output_item.added", output_index=1, item=call),
        SimpleNamespace(type="response.function_call_arguments.delta", output_index=1, delta="{}"),
        SimpleNamespace(type="response.output_item.done", output_index=1, item=call),
        SimpleNamespace(type="response.completed", response=SimpleNamespace(output=[reasoning, call])),
    ]


def row(stream: list[Any], error: Exception | None = None, helper_error: Exception | None = None) -> Row:
    made = Row("recording", 1, demo.STOCK, WRITTEN)
    for event in stream:
        made.receive(event)
    made.receive_end(error, None)
    made.receive_judgement(helper_error)
    return made


def test_a_whole_stream_is_whole() -> None:
    whole = row(events())
    assert (whole.whole, whole.text_whole, whole.calls) == (True, True, 1)
    shown = ["".join(line.parts) for line in whole.lines]
    assert shown[:3] == ["item 0 added: reasoning", "Hm.", "item 0 done"]


@pytest.mark.parametrize("lost", range(1, 9))
def test_a_stream_that_lacks_an_event_is_not_whole(lost: int) -> None:
    assert not row([event for number, event in enumerate(events()) if number != lost]).whole


@pytest.mark.parametrize("number", [1, 4, 5, 7])
def test_a_stream_with_a_wrong_index_is_not_whole(number: int) -> None:
    stream = events()
    stream[number].output_index += 1
    assert not row(stream).whole


def test_repeated_text_another_tool_and_failed_responses_are_not_whole() -> None:
    repeated, renamed, failed = events(), events(), events()
    repeated.insert(3, repeated[2])
    renamed[5] = SimpleNamespace(**{**vars(renamed[5]), "item": SimpleNamespace(type="function_call", name="other")})
    failed[-1].type = "response.failed"
    assert not any(row(stream).whole for stream in (repeated, renamed, failed))
    assert row(renamed).calls == 0


def test_a_stream_that_raises_is_not_whole() -> None:
    assert not row(events(), error=ValueError("broken")).whole
    judged = row(events(), helper_error=AssertionError())
    assert not judged.whole
    assert "responses.stream() raises AssertionError" in ["".join(line.parts) for line in judged.lines]


def test_an_error_is_shown_once() -> None:
    both = row(events()[:3], ValueError("broken"), ValueError("broken"))
    assert ["".join(line.parts) for line in both.lines].count("raises ValueError: broken") == 1
    assert both.lines[-1].role == "bad"


def test_text_for_the_wrong_item_stands_on_a_line_of_its_own() -> None:
    stream = events()[:4]
    stream.append(SimpleNamespace(type="response.output_text.delta", output_index=0, delta=" by"))
    assert ["".join(line.parts) for line in row(stream).lines][:3] == ["item 0 added: reasoning", "Hm.", " by"]
    assert replace(row(stream)).items == [Item("reasoning", "Hm."), Item("message", " by")]
