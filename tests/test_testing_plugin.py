"""The pytest plugin: its fixture, what it says at the end of a test, what it costs those who do not use it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import openai  # here, so that the runs in this process need not import it again  # noqa: F401
import pytest
import respx  # noqa: F401

import harmony_client.client
import harmony_client.testing  # noqa: F401

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]

#: Other plugins kept quiet: hypothesis' would import hypothesis anew in each run, pytest-asyncio's would warn.
QUIET = ("-p", "no:hypothesispytest", "-p", "no:asyncio")

HEAD = """
import asyncio
import contextlib
from harmony_client import AsyncHarmonyOpenAI, HarmonyOpenAI

ASK = dict(model="gpt-oss-120b", input="How is the weather?")
CLIENT = dict(base_url="http://gpu:8000/v1", api_key="k", max_retries=0)


def ask(server, **options):
    client = HarmonyOpenAI(http_client=server.http_client(), **CLIENT)
    return [event.type for event in client.responses.create(**ASK, stream=True, **options)]


def ask_only(server):
    HarmonyOpenAI(http_client=server.http_client(), **CLIENT).responses.create(**ASK, stream=True)


def suppress(function, *arguments):
    with contextlib.suppress(Exception):
        function(*arguments)
"""


def outcome(pytester: pytest.Pytester, body: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD + body)
    return pytester.runpytest_inprocess("-p", "no:harmony_client", "-p", "harmony_client.pytest_plugin", *QUIET, *arguments)


def test_a_test_that_leaves_nothing_undone_passes(pytester: pytest.Pytester) -> None:
    body = """
def test_synchronous(harmony_server):
    harmony_server.reply("It is sunny.", reasoning="Easy.", faults="tensorrt-llm", tokens_per_batch=20)
    assert ask(harmony_server)[-1] == "response.completed"
    assert harmony_server.requests[0]["input"] == ASK["input"]
    assert harmony_server.reports[0].verdict == "match"


def test_asynchronous(harmony_server):
    async def ask():
        client = AsyncHarmonyOpenAI(http_client=harmony_server.async_http_client(), **CLIENT)
        async with client.responses.stream(**ASK) as stream:
            return [event.type async for event in stream]

    harmony_server.reply("It is sunny.")
    assert asyncio.run(ask())[-1] == "response.completed"


def test_nothing_scripted(harmony_server):
    pass
"""
    outcome(pytester, body).assert_outcomes(passed=3)


def test_with_respx_no_patch_is_needed(pytester: pytest.Pytester) -> None:
    body = """
def test_it(harmony_server, respx_mock):
    respx_mock.post("http://gpu:8000/v1/responses").mock(side_effect=harmony_server)
    harmony_server.reply("It is sunny.")
    assert [event.type for event in HarmonyOpenAI(**CLIENT).responses.create(**ASK, stream=True)][-1] == "response.completed"


def test_afterwards_respx_is_as_before():
    from respx.mocks import HTTPCoreMocker
    assert not any("httpcore2" in target for target in HTTPCoreMocker.targets)
"""
    outcome(pytester, body).assert_outcomes(passed=2)


#: What a test leaves undone, and what is said.
UNDONE = {
    "harmony_server.reply('A', faults='empty-ids')": "reply 1 (answer 'A') was never requested, so empty-ids was never used.",
    "harmony_server.reply('A'); ask_only(harmony_server)": "reply 1 (answer 'A') was requested, but its stream was never read.",
    "harmony_server.reply('A', faults='empty-terminal-text'); ask(harmony_server)": (
        "reply 1 (answer 'A'): the verdict is 'mismatch', not 'match' (text of item 0). "
        "If that is what the test is about, script the reply with verdict='mismatch'."
    ),
    "harmony_server.reply('A', cut_after=50); ask(harmony_server)": (
        "reply 1 (answer 'A') was to be cut (reset) after frame 50, but its stream has only 14."
    ),
    "suppress(ask, harmony_server)": "POST http://gpu:8000/v1/responses came when no reply was left.",
}


def test_what_is_left_undone_is_an_error_in_a_sentence(pytester: pytest.Pytester) -> None:
    tests = [f"def test_{number}(harmony_server):\n    {body}\n" for number, body in enumerate(UNDONE)]
    result = outcome(pytester, "\n\n".join(["", *tests]))
    result.assert_outcomes(passed=len(UNDONE), errors=len(UNDONE))
    for sentence in UNDONE.values():
        assert f"harmony_server:\n- {sentence}\n" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_every_complaint_has_a_line(pytester: pytest.Pytester) -> None:
    result = outcome(pytester, "\n\ndef test_it(harmony_server):\n    harmony_server.reply('A')\n    harmony_server.reply('B')\n")
    result.stdout.fnmatch_lines(["- reply 1 (answer 'A') was never requested.", "- reply 2 (answer 'B') was never requested."])


def test_a_test_that_fails_is_told_no_more(pytester: pytest.Pytester) -> None:
    body = "\n\ndef test_it(harmony_server):\n    harmony_server.reply('A')\n    assert False\n"
    outcome(pytester, body).assert_outcomes(failed=1)


def test_the_tests_of_one_run_have_servers_of_their_own(pytester: pytest.Pytester) -> None:
    body = """
def test_one(harmony_server):
    harmony_server.reply("A", optional=True)


def test_two(harmony_server):
    assert harmony_server.replies == []
"""
    outcome(pytester, body).assert_outcomes(passed=2)


def test_the_fixture_is_documented(pytester: pytest.Pytester) -> None:
    result = outcome(pytester, "", "--fixtures")
    result.stdout.fnmatch_lines(["harmony_server*", "*A server whose replies the test scripts*"])


# --- what it costs ----------------------------------------------------------------------------------------


def test_a_run_without_the_fixture_imports_nothing_more(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_it(): print(*sys.modules)")
    others = [word for name in ("respx", "anyio", "hypothesispytest") for word in ("-p", f"no:{name}")]
    loaded = printed("-m", "pytest", "-s", "-p", "no:harmony_client", "-p", "harmony_client.pytest_plugin", *others, folder=pytester.path)
    assert {"openai", "httpx", "httpx2", "respx", "pydantic"} & loaded == set()
    ours = {name for name in loaded if name.startswith(("harmony_client", "server_ext"))}
    assert ours == {"harmony_client", "harmony_client.pytest_plugin"}


def test_the_plugin_imports_nothing_but_pytest() -> None:
    code = "import sys, pytest; before = set(sys.modules); import harmony_client.pytest_plugin; print(*set(sys.modules) - before)"
    assert printed("-c", code, folder=ROOT) <= {"harmony_client", "harmony_client.pytest_plugin"}


def printed(*arguments: str, folder: Path) -> set[str]:
    """The words that a Python process prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_it_is_installed_under_a_name_by_which_it_can_be_kept_out() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"harmony_client": "harmony_client.pytest_plugin"}
    assert "no:harmony_client" in project["tool"]["pytest"]["ini_options"]["addopts"], "or the installed package would be tested"
