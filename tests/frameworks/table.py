"""Makes the tables of docs/frameworks.md: what each framework shows with the stock client, and what with the wrapped one.

`python -m tests.frameworks.table` prints them, `--write` puts them into the page.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from importlib import metadata
from pathlib import Path

from tests.frameworks.drivers import DRIVERS, Driver, Eta, Run, play
from tests.frameworks.server import Conversation, doubts

__all__ = ["PAGE", "made", "shown", "written"]

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
ANSWER = "Your order #W2378156 shipped on Monday and should arrive by Thursday."
QUESTION = "How is the weather in Paris?"

_MARKED = re.compile(r"(<!-- tables: python -m tests\.frameworks\.table --write -->\n).*?(<!-- end of tables -->\n)", re.DOTALL)
_DOUBTS = {
    "call not found": "refuses: no call found for the output",
    "message refused": "refuses: assistant message without status",
    "message passed over": "accepts, passes over earlier answers",
}


async def made() -> str:
    """Both tables, as Markdown."""
    rows = ["| framework | version | conversation | stock client | wrapped client |", "| --- | --- | --- | --- | --- |"]
    for driver in DRIVERS:
        version = metadata.version(driver.distribution)
        rows += [f"| {driver.label} | {version} | {' | '.join(cells)} |" for cells in await _compared(driver)]
    types = f"TensorRT-LLM 1.1 and 1.2, by the types of openai {metadata.version('openai')}"
    rows += ["", f"| framework | the tests' server | {types} |", "| --- | --- | --- |"]
    for driver in DRIVERS:
        rows.append(f"| {driver.label} | {' | '.join(await _sent_back(driver))} |")
    return "\n".join(rows) + "\n"


def shown(page: str) -> str:
    """The tables that a page has."""
    found = _MARKED.search(page)
    return found[0].removeprefix(found[1]).removesuffix(found[2]) if found else ""


def written(page: str, tables: str) -> str:
    """A page with other tables."""
    return _MARKED.sub(lambda found: found[1] + tables + found[2], page)


async def _compared(driver: Driver) -> list[tuple[str, str, str]]:
    rows = []
    for what, action, scenarios, questions, say in (
        ("a tool call, then an answer", driver.converse, ("tool_commentary", "reasoning_final"), [QUESTION], _of_the_call),
        ("structured output", driver.extract, ("structured_final",), [], _of_the_form),
        ("the server breaks off after the answer", driver.converse, ("duplicate_end",), ["Where is my order?"], _of_the_answer),
    ):
        app = [Conversation(*(f"{scenario}@v12:20" for scenario in scenarios)) for _ in range(2)]
        stock = await play(action, app[0], *questions, wrapped=False)
        wrapped = await play(action, app[1], *questions, wrapped=True)
        rows.append((what, say(stock), f"{say(wrapped)}; {', '.join(report.verdict for report in wrapped.reports)}"))
    return rows


async def _sent_back(driver: Driver) -> tuple[str, str]:
    app = Conversation("tool_commentary@v12:20", "reasoning_final@v12:20", "final_only@v12:20")
    await play(driver.converse, app, QUESTION, "And my order?", wrapped=True)
    doubted = doubts(app.inputs[-1])
    return "; ".join(app.refusals) or "accepts", "; ".join(_DOUBTS[doubt] for doubt in doubted) or "accepts"


def _of_the_call(run: Run) -> str:
    called = "tool called" if run.cities == ["Paris"] else "**tool never called**"
    return f"{called}, {_of_the_answer(run)}"


def _of_the_answer(run: Run) -> str:
    if run.error is not None:
        return f"**raises {type(run.error).__name__}**"
    final = "final answer right" if run.answers == [ANSWER] else f"**final answer `{run.answers[-1]!r}`**"
    streamed = "streamed whole" if run.streamed == [ANSWER] else f"**streamed `{run.streamed[-1]!r}`**"
    return "answer whole" if run.answers == run.streamed == [ANSWER] else f"{streamed}, {final}"


def _of_the_form(run: Run) -> str:
    if run.error is not None:
        return f"**raises {type(run.error).__name__}**"
    final = "right" if run.answers == [Eta(eta="Thursday")] else "**nothing**"
    return final if all(run.streamed) else f"**streamed nothing**, final answer {final}"


def main() -> int:
    """Print or write the tables. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.table", description="The tables of docs/frameworks.md.")
    parser.add_argument("--write", action="store_true", help="put them into docs/frameworks.md")
    options = parser.parse_args()
    tables = asyncio.run(made())
    if options.write:
        PAGE.write_text(written(PAGE.read_text("utf-8"), tables), encoding="utf-8")
    else:
        print(tables, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
