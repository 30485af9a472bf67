"""The page and the examples: every Python block and every program runs, and the tables are those that the command makes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from server_ext.replay import ReplayServer
from tests.frameworks import table
from tests.frameworks.server import Conversation

ROOT = Path(__file__).parents[2]
SERVER = "http://gpu:8000/v1"
ANSWER = "Your order #W2378156 shipped on Monday and should arrive by Thursday."
BLOCKS = re.findall(r"^```python\n(.*?)^```$", table.PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
PRINTED = {  # pieces of a block's output, and how often each comes
    "agents": {"match\n": 3, ANSWER: 2},
    "pydantic-ai": {"match\n": 3, ANSWER: 2},
    "langchain": {"match\n": 1, "{'name': 'get_weather', 'args': {'city': 'Paris'}": 1},
    "reports": {"": 1},
}


@pytest.mark.parametrize(("number", "name"), list(enumerate(PRINTED)), ids=list(PRINTED))
def test_a_python_block_of_the_page_runs(number: int, name: str, tmp_path: Path) -> None:
    app = Conversation("tool_commentary@v12:20", "reasoning_final@v12:20", "final_only@v12:20")
    program = tmp_path / "block.py"
    with ReplayServer(app) as server:
        assert SERVER in BLOCKS[number]
        program.write_text(BLOCKS[number].replace(SERVER, server.base_url), "utf-8")
        output = run(program)
    assert {piece: output.count(piece) for piece in PRINTED[name]} == PRINTED[name]
    assert (app.refusals, len(BLOCKS)) == ([], len(PRINTED))


@pytest.mark.parametrize("name", ["openai_agents", "pydantic_ai", "langchain"])
def test_an_example_calls_the_tool_and_streams_the_answer(name: str) -> None:
    expected = f"get_weather(Paris)\n{ANSWER}\n" + "verdict: match (made from tokens)\n" * 2
    assert run(ROOT / "examples" / f"{name}_quickstart.py") == expected


async def test_the_tables_are_those_that_the_command_makes_whatever_the_versions() -> None:
    def without_versions(tables: str) -> str:
        return re.sub(r"\d+\.\d+\.\d+", "x", tables)

    page = table.PAGE.read_text("utf-8")
    assert without_versions(table.shown(page)) == without_versions(await table.made()), "run: python -m tests.frameworks.table --write"
    assert table.written(page, table.shown(page)) == page


def test_links_lead_to_files_that_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", table.PAGE.read_text("utf-8")) if not link.startswith("https://")]
    assert len(links) == 3
    assert [link for link in links if not (table.PAGE.parent / link).is_file()] == []


def run(program: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, program], capture_output=True, encoding="utf-8", env=environment, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
