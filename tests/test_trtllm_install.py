"""What an operator does: install without dependencies and start, by each loader, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

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
