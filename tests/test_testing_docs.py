"""`docs/testing.md`: its code runs, its table is made from the faults. `python -m tests.test_testing_docs` writes the table anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harmony_client.testing import FAULTS, PRESETS, Reply, ScriptedServer
from tests.test_testing_faults import verdict
from tests.test_testing_plugin import QUIET
from tests.test_testing_server import harmony, read

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
TEXT = PAGE.read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
FIXTURE, CONFTEST, RESPX, ELSE = [code for language, code in BLOCKS if language == "python"]
_HEAD = ["| fault | what the server does | violations | with tokens | without |", "| --- | --- | --- | --- | --- |"]


def table() -> list[str]:
    """The table of faults, line by line."""
    rows = []
    for name, fault in FAULTS.items():
        codes = ", ".join(f"`{code}`" for code in fault.codes) or "none"
        rows.append(f"| `{name}` | {fault.what} | {codes} | {verdict(name, tokens=True)} | {verdict(name, tokens=False)} |")
    return [*_HEAD, *rows]


def test_the_table_of_faults_is_up_to_date() -> None:
    shown = [line for line in TEXT.splitlines() if line.startswith("| `") and line.count("|") == 6]
    assert shown == table()[2:], "run: python -m tests.test_testing_docs"


def test_the_presets_are_described() -> None:
    prose = " ".join(TEXT.split())
    for name, faults in PRESETS.items():
        assert f"`{name}` is a preset of {', '.join(f'`{fault}`' for fault in faults)}" in prose


def test_every_argument_is_described() -> None:
    section = TEXT[TEXT.index("## What a reply can be") : TEXT.index("## Faults")]
    described = {name for line in section.splitlines() if line.startswith("| ") for name in re.findall(r"`(\w+)`", line.split(" | ")[0])}
    assert described == {name for name, field in Reply.__dataclass_fields__.items() if field.init}


def test_the_fixture_is_used_as_shown(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FIXTURE)
    pytester.runpytest_inprocess("-p", "no:harmony_client", "-p", "harmony_client.pytest_plugin", *QUIET).assert_outcomes(passed=1)


def test_respx_is_used_as_shown(pytester: pytest.Pytester) -> None:
    from harmony_client.testing._respx import respx_patched

    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(RESPX)
    with respx_patched():  # so that what conftest.py does for ever ends here
        pytester.runpytest_inprocess(*QUIET).assert_outcomes(passed=1)


def test_the_other_forms_are_as_shown() -> None:
    names: dict[str, Reply] = {}
    exec(compile(ELSE, str(PAGE), "exec"), names)
    shown = re.findall(r"^reply\.(\w+)", ELSE, re.MULTILINE)
    assert shown == [name for name in shown if hasattr(names["reply"], name)]


def test_the_complaints_are_as_shown() -> None:
    server = ScriptedServer()
    server.reply("It is sunny.", faults="empty-terminal-text")
    read(harmony(server, "sync"))
    server.reply(calls=[("get_weather", {})], faults="tensorrt-llm")
    shown = next(code for language, code in BLOCKS if language == "text")
    assert shown.splitlines()[1:] == [f"- {complaint}" for complaint in server.complaints()]


def main() -> None:
    """Write the table anew."""
    start = TEXT.index("| fault |")
    PAGE.write_text(TEXT[:start] + "\n".join(table()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
