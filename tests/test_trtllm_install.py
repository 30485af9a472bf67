"""What an operator does: install without dependencies, check, start, by each loader, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import httpx
import pytest

from server_ext import tap
from server_ext.trtllm import check, launcher
from tests import trtllm_double
from tests.recordings import load
from tests.trtllm_servers import ASKING, ids_of, split

ROOT = Path(__file__).parents[1]
SHIM = "from tests import trtllm_double\n\ntrtllm_double.install({version!r})\n"
METADATA = "Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "_reported", set())


def site(folder: Path, version: str, *requirements: str) -> Path:
    """A folder for the module path with what `import tensorrt_llm` and `importlib.metadata` find of a double."""
    (folder / "tensorrt_llm").mkdir(parents=True)
    (folder / "tensorrt_llm" / "__init__.py").write_text(SHIM.format(version=version))
    info = folder / f"tensorrt_llm-{trtllm_double.VERSIONS[version]}.dist-info"
    info.mkdir()
    lines = [f"Requires-Dist: {requirement}" for requirement in requirements]
    (info / "METADATA").write_text(METADATA.format(version=trtllm_double.VERSIONS[version]) + "\n".join(lines) + "\n")
    return folder


def run(*arguments: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(path), str(ROOT)))}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=60, check=False)


# --- check -----------------------------------------------------------------------------------------------------------------------------


def checked(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], *requires: str, change: Any = None
) -> tuple[int, str]:
    monkeypatch.syspath_prepend(site(tmp_path, version, *requires))
    with trtllm_double.installed(version) as modules:
        if change is not None:
            change(modules)
        status = check.main(["--check"])
    return status, capsys.readouterr().out


LOADERS = {
    "1.1": ["harmony-trtllm-serve …"],
    "1.2": [f"trtllm-serve … --custom_module_dirs {check.MODULE_DIR}", "harmony-trtllm-serve …"],
    "main": ["trtllm-serve … --middleware server_ext.trtllm.TokenTap", "harmony-trtllm-serve …"],
}


@pytest.mark.parametrize("version", LOADERS)
def test_the_check_says_which_loader_to_use(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = checked(version, monkeypatch, tmp_path, capsys, "openai>=2", "pydantic>=2; python_version > '3'", "torch")
    assert status == 0
    assert out.startswith(f"TensorRT-LLM {trtllm_double.VERSIONS[version]}, /opt/tensorrt_llm\nThe extension will work, by ")
    assert "nothing will be missing" in out
    assert "Start the server with\n  " + "\nor with\n  ".join(LOADERS[version]) + "\n" in out
    assert out.endswith("openai and pydantic are what TensorRT-LLM requires.\n")


def test_the_check_says_what_will_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def change(modules: Any) -> None:
        modules["serve.harmony_adapter"].HarmonyAdapter = object
        del modules["serve.openai_server"].OpenAIServer

    status, out = checked("main", monkeypatch, tmp_path, capsys, change=change)
    assert status == 0
    assert "HarmonyAdapter.cleanup_stream_state: there is none; the parser of each response stays in memory" in out
    assert "OpenAIServer: is not a class; only --middleware can load the extension" in out
    assert "what will be missing stands above" in out


def test_the_check_fails_where_the_extension_will_not_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(modules: Any) -> None:
        modules["serve.responses_utils"].ResponsesStreamingProcessor.process_single_output = None

    status, out = checked("1.2", monkeypatch, tmp_path, capsys, change=change)
    assert status == 1
    assert "ResponsesStreamingProcessor.process_single_output: there is none" in out
    assert "will not work" in out
    assert "Start the server" not in out


@pytest.mark.parametrize(
    ("requirement", "warning"),
    [
        ("openai<2", "openai {openai} is installed, but TensorRT-LLM requires openai<2"),
        ("pydantic (==1.0)", "requires pydantic (==1.0)"),
        ("openai<2; python_version < '3'", None),
        ("openai-harmony==0.0.4", None),
    ],
)
def test_the_check_warns_of_a_replaced_dependency_of_the_server(
    requirement: str, warning: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import openai

    status, out = checked("1.2", monkeypatch, tmp_path, capsys, requirement)
    assert status == (0 if warning is None else 1)
    if warning is not None:
        assert warning.format(openai=openai.VERSION) in out
        assert "--no-deps" in out


def test_without_tensorrt_llm_the_check_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--check"]) == 2
    out = capsys.readouterr().out
    assert out.startswith("TensorRT-LLM is not installed in this Python (")
    assert sys.executable in out


def test_a_tensorrt_llm_that_cannot_be_imported_is_not_called_absent(tmp_path: Path) -> None:
    folder = site(tmp_path, "1.2")
    (folder / "tensorrt_llm" / "__init__.py").write_text("raise OSError('libcuda.so.1: cannot open shared object file')\n")
    done = run("-m", "server_ext.trtllm", "--check", path=folder)
    assert done.returncode == 2
    assert done.stdout.startswith("TensorRT-LLM 1.2.1 is installed but cannot be imported here")
    assert "libcuda.so.1" in done.stdout


def test_the_check_runs_from_a_shell(tmp_path: Path) -> None:
    done = run("-m", "server_ext.trtllm", "--check", path=site(tmp_path, "main", "openai"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "--middleware server_ext.trtllm.TokenTap" in done.stdout


def test_the_module_directory_is_printed_and_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--module-dir"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert (folder / "__init__.py").is_file()
    assert [entry.name for entry in folder.parent.iterdir() if entry.name != "__pycache__"] == ["harmony_token_tap"]


# --- start -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "line"), [
    ("1.1", ["-m", "server_ext.trtllm.launcher", "v12"]),
    ("1.2", ["-m", "server_ext.trtllm.launcher", "v12", "--num_postprocess_workers", "2"]),
    ("1.2", ["-m", "trtllm_serve", "v12", "--custom_module_dirs", str(check.MODULE_DIR)]),
    ("main", ["-m", "trtllm_serve", "main", "--num_postprocess_workers", "2", "--middleware", "server_ext.trtllm.TokenTap"]),
], ids=["1.1 launcher", "1.2 launcher and workers", "1.2 module directory", "main middleware and workers"])  # fmt: skip
def test_a_server_in_a_process_of_its_own_sends_tokens(version: str, line: list[str], tmp_path: Path) -> None:
    folder = site(tmp_path, version)
    (folder / "trtllm_serve.py").write_text("if __name__ == '__main__':\n    from tensorrt_llm.commands.serve import main\n\n    main()\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    recording = next(recording for recording in load(line[2]) if recording.name.startswith("reasoning_final@"))
    with subprocess.Popen([sys.executable, *line], stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1/responses"
            response = httpx.post(url, json={"model": recording.name, "stream": True}, headers=ASKING, timeout=30)
        finally:
            server.terminate()
    assert response.headers["x-harmony-tokens"] == "1"
    assert ids_of(split(response.content)[0]) == recording.token_ids


def test_the_launcher_needs_tensorrt_llm(capsys: pytest.CaptureFixture[str]) -> None:
    assert launcher.main() == 2
    assert capsys.readouterr().err.startswith("harmony-trtllm-serve: TensorRT-LLM's own command cannot be loaded: ModuleNotFoundError")


def test_the_launcher_hands_over_even_if_the_extension_cannot_be_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with trtllm_double.installed("1.2") as modules:
        from server_ext.trtllm import launcher as own

        monkeypatch.delattr(modules["serve.openai_server"], "ResponsesStreamingProcessor")
        handed_over: list[list[str]] = []
        monkeypatch.setattr(modules["commands.serve"], "main", lambda: handed_over.append(sys.argv), raising=False)
        monkeypatch.setattr(sys, "argv", ["harmony-trtllm-serve", "model", "--port", "1"])
        assert own.main() == 0
    assert handed_over == [["harmony-trtllm-serve", "model", "--port", "1"]]
    assert "sends token batches" not in capsys.readouterr().err


# --- install ---------------------------------------------------------------------------------------------------------------------------

BARE = """
import asyncio, importlib.util, json, logging, sys
logging.disable()
import server_ext, server_ext.trtllm
from server_ext.trtllm import TokenTap

assert not any(importlib.util.find_spec(name) for name in ("openai", "pydantic", "starlette", "uvicorn", "tensorrt_llm"))

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send({"type": "http.response.body", "body": b"data: {}"})

async def send(message):
    sent.append(message)

sent = []
asyncio.run(TokenTap(app)({"type": "http", "headers": [(b"x-harmony-tokens", b"1")]}, None, send))
print(json.dumps([sent[0]["status"], len(sent[0]["headers"]), sent[1]["body"].decode(), server_ext.__file__]))
"""


def test_installed_without_dependencies_it_does_no_harm(tmp_path: Path) -> None:
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(wheel, check=True, capture_output=True, timeout=120)
    [built] = tmp_path.glob("*.whl")
    venv.create(tmp_path / "bare", with_pip=False)
    bin_ = tmp_path / "bare" / ("Scripts" if sys.platform == "win32" else "bin")
    install = [sys.executable, "-m", "pip", "--python", str(bin_ / "python"), "install", "-q", "--no-deps", "--no-index", str(built)]
    subprocess.run(install, check=True, capture_output=True, timeout=120)

    done = subprocess.run([bin_ / "python", "-I", "-c", BARE], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert done.stderr == ""
    status, headers, body, file = json.loads(done.stdout)
    assert (status, headers, body) == (200, 1, "data: {}")
    assert Path(file).is_relative_to(tmp_path.resolve())
    for command in ([bin_ / "python", "-I", "-m", "server_ext.trtllm", "--check"], [bin_ / "harmony-trtllm-serve", "model"]):
        assert subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=60, check=False).returncode == 2
    printed = subprocess.run(
        [bin_ / "python", "-I", "-m", "server_ext.trtllm", "--module-dir"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=True,
    )
    assert (Path(printed.stdout.strip()) / "__init__.py").is_file()


IMPORT = """
import sys, time
began = time.perf_counter()
import server_ext, server_ext.trtllm
took = time.perf_counter() - began
heavy = [name for name in ("openai", "pydantic", "starlette", "uvicorn", "asyncio", "inspect", "tensorrt_llm") if name in sys.modules]
print(took * 1e3, *heavy)
"""


def test_importing_it_takes_less_than_fifty_milliseconds_and_brings_nothing_along() -> None:
    runs = [run("-c", IMPORT) for _ in range(5)]
    assert [(done.returncode, done.stderr) for done in runs] == [(0, "")] * len(runs)
    times, heavy = zip(*((float(took), rest) for took, *rest in (done.stdout.split() for done in runs)), strict=True)
    assert heavy == ([],) * len(runs)
    assert min(times) < 50
