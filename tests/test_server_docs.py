"""What docs/server.md shows is what a server sends, and what an operator gets to see."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from harmony_client import wire
from server_ext import tap
from tests import trtllm_double
from tests.trtllm_servers import Setup, serving

ROOT = Path(__file__).parents[1]
DOC = (ROOT / "docs" / "server.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", DOC, flags=re.S)


def block(start: str) -> str:
    [found] = [text for _, text in BLOCKS if text.startswith(start)]
    return str(found)


def test_the_response_shown_is_what_the_server_sends() -> None:
    with serving(Setup("1.2", "launcher")) as running:
        response = running.post("final_only@v12:3", ask=True)
    head, _, shown = block("HTTP/1.1 200 OK").partition("\n\n")
    for line in head.splitlines()[1:]:
        name, value = line.split(": ")
        assert response.headers[name] == value
    position = 0
    for piece in shown.split("…\n"):
        position = response.text.index(piece.strip("\n"), position)
    assert f"-H '{wire.HEADER}: {wire.HEADER_VALUE}'" in block("curl")


def test_the_check_shown_is_what_the_check_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (info := tmp_path / "tensorrt_llm-1.2.1.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: 1.2.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with trtllm_double.installed("1.2"):
        from server_ext.trtllm import check

        assert check.main(["--check"]) == 0
    assert capsys.readouterr().out.replace(str(check.MODULE_DIR.parents[2].parent), "/…") == block("TensorRT-LLM 1.2.1")


def test_the_log_line_shown_is_one_that_is_written(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(tap, "_reported", set())
    with trtllm_double.installed("main") as modules:
        monkeypatch.setattr(modules[""], "__version__", "1.4.0")
        modules["serve.responses_utils"].ResponsesStreamingProcessor.process_single_output = None
        from server_ext.trtllm import install

        assert not install()
    assert [record.getMessage() for record in caplog.records] == [block("tensorrt-llm/1.4.0").strip()]


@pytest.mark.parametrize(("extension", "status"), [("launcher", 0), ("nothing", 1)])
def test_the_example_that_asks_a_server_asks_this_one(
    extension: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [line] = re.findall(r"`python (examples/check_server\.py) (\S+) (\S+)`", DOC)
    assert line[1:] == ("http://localhost:8000/v1", "gpt-oss-120b")
    with serving(Setup("1.2", extension)) as running:
        monkeypatch.setattr(sys, "argv", [line[0], running.base_url, "reasoning_final@v12:3"])
        with pytest.raises(SystemExit) as exit_:
            runpy.run_path(str(ROOT / line[0]), run_name="__main__")
    assert int(exit_.value.code or 0) == status
    assert f"token batches: {'no' if status else 'yes'}" in capsys.readouterr().out


def test_the_start_script_checks_and_hands_over(tmp_path: Path) -> None:
    package = tmp_path / "tensorrt_llm"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import sys\nfrom tests import trtllm_double\n\n"
        "modules = trtllm_double.install('1.2')\nmodules['commands.serve'].RUN = lambda server: print(server.model, sys.argv[1:])\n"
    )
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    line = [str(ROOT / "examples" / "trtllm-serve.sh"), "v12", "--num_postprocess_workers", "0"]
    done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "v12 ['v12', '--num_postprocess_workers', '0']\n")
    assert "The extension will work" in done.stderr
    assert "sends token batches to clients that ask" in done.stderr
