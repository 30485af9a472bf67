"""Every program in `examples/`, run as its first lines say."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from server_ext.replay import ReplayServer

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if not path.stem.startswith("test_"))
#: What an example imports that is in an extra of its own; those without it are left out.
FRAMEWORKS = {"langchain_quickstart": "langchain_openai", "openai_agents_quickstart": "agents", "pydantic_ai_quickstart": "pydantic_ai"}
RUNNABLE = [example for example in EXAMPLES if find_spec(FRAMEWORKS.get(example.stem, "openai"))]


def run(example: Path, *arguments: str) -> str:
    line = [sys.executable, str(example), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(line, capture_output=True, encoding="utf-8", env=environment, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("example", RUNNABLE, ids=lambda path: path.stem)
def test_an_example_runs_with_a_server_of_its_own(example: Path) -> None:
    assert "verdict: match" in run(example)


@pytest.mark.parametrize("example", RUNNABLE, ids=lambda path: path.stem)
def test_an_example_runs_against_the_server_it_is_given(example: Path) -> None:
    with ReplayServer() as server:
        assert "verdict: match" in run(example, server.base_url)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_how_it_is_run(example: Path) -> None:
    assert f"python examples/{example.name}\n" in example.read_text("utf-8").partition('"""\n\nfrom')[0]


def test_the_quickstart_prints_the_answer() -> None:
    answer = "Your order #W2378156 shipped on Monday and should arrive by Thursday."
    assert run(ROOT / "examples" / "quickstart.py") == f"{answer}\n\nverdict: match (made from tokens)\n"


def test_the_asynchronous_quickstart_streams_the_call() -> None:
    expected = '{"|city|":"|Paris|"}|\ncall get_weather({"city":"Paris"})\nverdict: match\n'
    assert run(ROOT / "examples" / "quickstart_async.py") == expected
