"""The README and the generated documentation: what they show is true, and every Python block runs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import harmony_client
from harmony_client import StreamRepairer, cli
from server_ext.replay import ReplayServer
from tests.recordings import load

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python"]
SHELL = [code for language, code in BLOCKS if language == "sh"]
SERVER = "http://gpu:8000/v1"


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with ReplayServer() as server:
        yield server.base_url


# --- shape --------------------------------------------------------------------------------------------


def test_the_readme_is_short_and_shows_code_early() -> None:
    lines = README.splitlines()
    assert len(lines) <= 150
    assert lines.index("```python") < 30
    assert max(map(len, lines)) <= 140


def test_the_first_two_commands_do_everything() -> None:
    commands = [line.partition("  #")[0].rstrip() for line in SHELL[0].splitlines()]
    assert commands[:2] == ["pip install '.[demo]' && harmony-client demo", "pip install '.[test]' && pytest"]


def test_the_first_use_takes_about_twelve_lines_and_ends_by_line_30() -> None:
    assert PYTHON[0].count("\n") <= 13
    assert README[: README.index(PYTHON[0]) + len(PYTHON[0])].count("\n") <= 30


def test_links_lead_to_files_that_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("https://")]
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_the_commands_shown_exist(capsys: pytest.CaptureFixture[str]) -> None:
    shown = set(re.findall(r"harmony-client (\w+)", "".join(SHELL)))
    assert shown == {"demo", "check", "repair"}
    for name in shown:
        with pytest.raises(SystemExit, match="0"):
            cli.main([name, "--help"])
    assert "usage: harmony-client" in capsys.readouterr().out


def test_the_supported_versions_are_those_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'requires-python = ">=3.11"' in project
    assert "Programming Language :: Python :: 3.14" in project
    assert '"openai>=2.45,<4"' in project
    assert "Python 3.11 to 3.14, openai 2.45 to 3." in README


# --- code ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_a_python_block_runs_against_the_replay_server(number: int, base_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = PYTHON[number].replace(SERVER, base_url)
    assert SERVER not in code
    exec(compile(code, f"README.md, Python block {number + 1}", "exec"), {"__name__": "readme"})
    assert "Error" not in capsys.readouterr().out


def test_the_first_block_prints_the_answer_and_the_verdict(base_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(PYTHON[0].replace(SERVER, base_url), {})
    answer = "Your order #W2378156 shipped on Monday and should arrive by Thursday."
    assert capsys.readouterr().out.startswith(answer + "match tokens")


def test_names_in_the_python_blocks_are_public() -> None:
    imported = {name.strip() for line in re.findall(r"from harmony_client import (.+)", "".join(PYTHON)) for name in line.split(",")}
    assert imported <= set(harmony_client.__all__)


# --- the stream before and after ----------------------------------------------------------------------


def outline(events: Iterable[dict[str, Any]]) -> list[str]:
    """A stream as the README shows it."""
    return [_outline(event) for event in events if event["type"] != "harmony:token_batch"]


def _outline(event: dict[str, Any]) -> str:
    detail = ""
    if "delta" in event:
        text = event["delta"]
        detail = json.dumps(text if len(text) <= 20 else text[:20] + "…", ensure_ascii=False)
    elif "item" in event:
        detail = event["item"]["type"]
    line = f"{event['type'].removeprefix('response.'):20}  {event.get('output_index', '')}  {detail}"
    return line.rstrip()


def test_the_stream_before_and_after_is_a_recorded_one() -> None:
    recording = next(r for r in load("v12") if (r.scenario, r.pattern) == ("reasoning_final", "20"))
    repairer = StreamRepairer()
    sent = recording.events(frames=True)
    before = outline(sent)
    after = outline(out for event in sent for out in repairer.receive(event))
    rows = ["what the server sends".ljust(51) + "what HarmonyOpenAI hands out"]
    rows += [f"{before[at] if at < len(before) else '':51}{after[at]}".rstrip() for at in range(len(after))]
    shown = next(code for language, code in BLOCKS if language == "text")
    assert shown.splitlines() == rows


# --- generated documentation --------------------------------------------------------------------------


def test_the_page_of_codes_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("build_report_docs", ROOT / "scripts" / "build_report_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_text("utf-8") == module.page(), "run: python scripts/build_report_docs.py"


def test_the_page_of_codes_has_every_field_of_the_report() -> None:
    page = (ROOT / "docs" / "report.md").read_text("utf-8")
    public = [name for name in harmony_client.Report.__dataclass_fields__ if not name.startswith("_")]
    assert [name for name in public if f"| `{name}` | " not in page] == []


def test_report_fields_named_in_the_readme_exist() -> None:
    report = StreamRepairer().report
    named = set(re.findall(r"report\.(\w+)\b(?!\.?md)", README)) - {"md", "py"}
    with contextlib.suppress(AttributeError):
        named -= {name for name in named if hasattr(report, name)}
    assert named == set()
