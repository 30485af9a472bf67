"""`python -m server_ext.trtllm --check`: what it finds, what it says, and its exit status."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from server_ext import tap
from server_ext.trtllm import check
from tests import trtllm_double
from tests.test_trtllm_install import run, site


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "_reported", set())


Checked = Callable[..., tuple[int, str]]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checked:
    """Runs the check on a version with such requirements, changed like that: its exit status, and what it prints."""

    def run_check(version: str, *requires: str, change: Any = None) -> tuple[int, str]:
        folder = site(tmp_path / str(len([*tmp_path.iterdir()])), version, *requires)
        with trtllm_double.installed(version) as modules, monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            if change is not None:
                change(modules)
            return check.main(["--check"]), capsys.readouterr().out

    return run_check


LOADERS = {
    "1.1": ["harmony-trtllm-serve …"],
    "1.2": [f"trtllm-serve … --custom_module_dirs {check.MODULE_DIR}", "harmony-trtllm-serve …"],
    "main": ["trtllm-serve … --middleware server_ext.trtllm.TokenTap", "harmony-trtllm-serve …"],
}


@pytest.mark.parametrize("version", LOADERS)
def test_the_check_says_which_loader_to_use(version: str, checked: Checked) -> None:
    status, out = checked(version, "openai>=2", "pydantic>=2; python_version > '3'", "torch")
    assert status == 0
    assert out.startswith(f"TensorRT-LLM {trtllm_double.VERSIONS[version]}, /opt/tensorrt_llm\nThe extension will work, by ")
    assert "nothing will be missing.\n" in out
    assert "Start the server with\n  " + "\nor with\n  ".join(LOADERS[version]) + "\n" in out
    assert out.endswith("What TensorRT-LLM requires of openai and pydantic is installed.\n")


def test_the_check_says_what_will_be_missing(checked: Checked) -> None:
    def change(modules: Any) -> None:
        modules["serve.harmony_adapter"].HarmonyAdapter = object
        del modules["serve.openai_server"].OpenAIServer

    status, out = checked("main", change=change)
    assert status == 0
    assert "HarmonyAdapter.cleanup_stream_state: there is none; the parser of each response stays in memory" in out
    assert "OpenAIServer: is not a class; only --middleware can load the extension" in out
    assert "The extension will work, by ResponsesStreamingProcessor; what will be missing stands above.\n" in out


def without_ids(modules: Any) -> None:
    modules["executor.result"].CompletionOutput = type("CompletionOutput", (), {"finish_reason": None, "stop_reason": None})


def without_end(modules: Any) -> None:
    modules["executor.result"].GenerationResult = type("GenerationResult", (), {"outputs": ()})


def without_process(modules: Any) -> None:
    modules["serve.responses_utils"].ResponsesStreamingProcessor.process_single_output = None


def unreadable_function(modules: Any) -> None:
    modules["serve.openai_server"].responses_api_process_streaming_events = dict.update


def unlookable(modules: Any) -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            if name == "process_single_output":
                raise RuntimeError("not for you")
            return super().__getattribute__(name)

    own = Meta("ResponsesStreamingProcessor", (modules["serve.responses_utils"].ResponsesStreamingProcessor,), {})
    for name in ("serve.openai_server", "serve.responses_utils"):
        modules[name].ResponsesStreamingProcessor = own


@pytest.mark.parametrize(
    ("version", "change", "line"),
    [
        ("1.2", without_process, "ResponsesStreamingProcessor.process_single_output: there is none; there are no token frames"),
        ("main", without_ids, "CompletionOutput.token_ids_diff: there is none; there are no token frames"),
        ("1.1", without_end, "GenerationResult._done: there is none; there are no token frames"),
        ("1.1", unreadable_function, "responses_api_process_streaming_events: its signature cannot be read; there are no token frames"),
        ("main", unlookable, "tensorrt_llm.serve.openai_server: cannot be looked at (RuntimeError); there are no token frames"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_check_fails_where_the_extension_will_not_work(version: str, change: Any, line: str, checked: Checked) -> None:
    def changed(modules: Any) -> None:
        from server_ext.trtllm import install

        change(modules)
        assert install() is False

    status, out = checked(version, change=changed)
    assert status == 1
    assert f"  {line}\nThe extension will not work: the server would run as if it were not there.\n" in out
    assert "Start the server" not in out


def without_app(modules: Any) -> None:
    modules["serve.openai_server"].OpenAIServer = type("OpenAIServer", (), {"__init__": lambda self: None})


def without_request_id(modules: Any) -> None:
    def init(self: Any, use_harmony: bool = True) -> None:
        self.use_harmony = use_harmony

    methods = {name: lambda self, res: [] for name in ("process_single_output", "get_final_response_non_store")}
    own = type("ResponsesStreamingProcessor", (), {"__init__": init, **methods})
    for name in ("serve.openai_server", "serve.responses_utils"):
        modules[name].ResponsesStreamingProcessor = own


def without_adapter(modules: Any) -> None:
    def events(request: Any, generator: Any) -> None: ...

    modules["serve.openai_server"].responses_api_process_streaming_events = events


def adapter_elsewhere(modules: Any) -> None:
    del sys.modules["tensorrt_llm.serve.harmony_adapter"]


def without_getter(modules: Any) -> None:
    del modules["serve.harmony_adapter"].get_harmony_adapter


PARSER = "the parser of each response stays in memory, as it does without the extension"


@pytest.mark.parametrize(
    ("version", "change", "line"),
    [
        ("1.2", without_app, "OpenAIServer.app: there is none; only --middleware can load the extension"),
        ("1.2", without_request_id, f"ResponsesStreamingProcessor.stream_request_id: there is none; {PARSER}"),
        ("1.1", without_adapter, f"responses_api_process_streaming_events: has no parameter harmony_adapter; {PARSER}"),
        ("main", adapter_elsewhere, f"tensorrt_llm.serve.harmony_adapter: cannot be imported (ModuleNotFoundError); {PARSER}"),
        ("main", without_getter, f"get_harmony_adapter: there is none; {PARSER}"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_check_says_what_will_be_missing_of_the_rest(version: str, change: Any, line: str, checked: Checked) -> None:
    status, out = checked(version, change=change)
    assert status == 0
    assert f"  {line}\nThe extension will work, by " in out
    assert "; what will be missing stands above.\n" in out


def results_elsewhere(modules: Any) -> None:
    del sys.modules["tensorrt_llm.executor.result"]


def results_without_class(modules: Any) -> None:
    modules["executor.result"].GenerationResult = None


def compiled_application(modules: Any) -> None:
    modules["serve.openai_server"].OpenAIServer = type("OpenAIServer", (), {"__init__": dict.__init__})


def answering_application(modules: Any) -> None:
    modules["serve.openai_server"].OpenAIServer = type("OpenAIServer", (), {"__getattr__": lambda self, name: None})


def compiled_method(modules: Any) -> None:
    owner: Any = modules["serve.responses_utils"].ResponsesStreamingProcessor
    owner.process_single_output = dict.update


def compiled_constructor(modules: Any) -> None:
    owner: Any = modules["serve.responses_utils"].ResponsesStreamingProcessor
    owner.__init__ = dict.update


def unreadable_command(modules: Any) -> None:
    def leave(name: str) -> Any:
        raise SystemExit(name)

    modules["commands.serve"].__getattr__ = leave


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            results_elsewhere,
            "tensorrt_llm.executor.result: cannot be imported (ModuleNotFoundError); if it is not as expected, there are no",
        ),
        (results_without_class, "tensorrt_llm.executor.result.GenerationResult: is not a class; if it is not as expected, there are no"),
        (compiled_application, "OpenAIServer.app: its code does not show it; if it is not as expected, only --middleware can load"),
        (answering_application, "OpenAIServer.app: its code does not show it; if it is not as expected, only --middleware can load"),
        (
            compiled_method,
            "ResponsesStreamingProcessor.process_single_output: its signature cannot be read; if it is not as expected, there",
        ),
        (
            compiled_constructor,
            "ResponsesStreamingProcessor.__init__: its signature cannot be read; if it is not as expected, there are no",
        ),
        (
            unreadable_command,
            "tensorrt_llm.commands.serve.main: its options cannot be read (SystemExit); if it is not as expected, the launcher",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_check_says_what_could_not_be_looked_at(change: Any, line: str, checked: Checked) -> None:
    status, out = checked("1.2", change=change)
    assert status == 0
    assert f"  {line}" in out
    assert (
        "The extension should work, by ResponsesStreamingProcessor; what could not be looked at, or will be missing, stands above.\n" in out
    )


def test_what_a_class_has_is_seen_wherever_it_comes_from(checked: Checked) -> None:
    @dataclass
    class GenerationResult:
        outputs: list[Any]

        @functools.lru_cache  # noqa: B019
        def run(self) -> None:
            self._done = True

    class CompletionOutput:
        __slots__ = ("finish_reason", "stop_reason")
        token_ids_diff = property(lambda self: [])

    def change(modules: Any) -> None:
        vars(modules["executor.result"]).update(GenerationResult=GenerationResult, CompletionOutput=CompletionOutput)

    status, out = checked("main", change=change)
    assert status == 0
    assert "nothing will be missing.\n" in out


def test_a_tensorrt_llm_without_version_and_place_can_be_checked(checked: Checked) -> None:
    def change(modules: Any) -> None:
        del modules[""].__version__
        del modules[""].__file__

    status, out = checked("1.2", change=change)
    assert status == 0
    assert out.startswith("TensorRT-LLM unknown version, in an unknown place\nThe extension will work")


@pytest.mark.parametrize(
    ("requirement", "warning"),
    [
        ("openai<2", "openai {openai} is installed, but TensorRT-LLM requires openai<2. Install that, and this package with --no-deps."),
        ("pydantic (==1.0)", "requires pydantic (==1.0)"),
        (" OpenAI <2", "TensorRT-LLM requires OpenAI <2. Install that"),
        ("openai ~> 2", "openai {openai} is installed, TensorRT-LLM requires openai ~> 2: compare them yourself, that cannot be read."),
        ("openai<2; python_version < '3'", None),
        ("openai-harmony==0.0.4", None),
        ("~~~", None),
        ("", None),
    ],
)
def test_the_check_warns_of_a_replaced_dependency_of_the_server(requirement: str, warning: str | None, checked: Checked) -> None:
    import openai

    status, out = checked("1.2", requirement)
    assert status == (0 if warning is None else 1)
    if warning is not None:
        assert warning.format(openai=openai.VERSION) in out


def test_the_check_says_what_it_cannot_compare(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    status, out = checked("1.2", "openai>=2")
    assert status == 1
    assert "TensorRT-LLM requires openai>=2: compare them yourself, `packaging` is not installed." in out


def test_the_check_says_what_is_not_installed(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise check.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(check.metadata, "version", absent)
    status, out = checked("1.2", "pydantic>=2")
    assert status == 1
    assert out.endswith("pydantic is not installed; TensorRT-LLM requires pydantic>=2.\n")
    monkeypatch.setattr(check.metadata, "requires", absent)
    status, out = checked("1.2")
    assert status == 1
    assert out.endswith("There is no distribution tensorrt-llm, so it is not known which openai and pydantic it requires.\n")


def test_without_tensorrt_llm_the_check_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--check"]) == 2
    out = capsys.readouterr().out
    assert out.startswith("TensorRT-LLM is not installed in this Python (")
    assert sys.executable in out


@pytest.mark.parametrize(
    ("code", "told"),
    [("raise OSError('libcuda.so.1: cannot open shared object file')", "libcuda.so.1"), ("raise SystemExit(0)", "SystemExit(0)")],
)
def test_a_tensorrt_llm_that_cannot_be_imported_is_not_called_absent(code: str, told: str, tmp_path: Path) -> None:
    folder = site(tmp_path, "1.2")
    (folder / "tensorrt_llm" / "__init__.py").write_text(code + "\n")
    done = run("-m", "server_ext.trtllm", "--check", path=folder)
    assert done.returncode == 2
    assert done.stdout.startswith("TensorRT-LLM 1.2.1 is installed but cannot be imported here")
    assert told in done.stdout


def test_the_check_runs_from_a_shell(tmp_path: Path) -> None:
    done = run("-m", "server_ext.trtllm", "--check", path=site(tmp_path, "main", "openai"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "--middleware server_ext.trtllm.TokenTap" in done.stdout


def test_the_module_directory_is_printed_and_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--module-dir"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert (folder / "__init__.py").is_file()
    assert [entry.name for entry in folder.parent.iterdir() if entry.name != "__pycache__"] == ["harmony_token_tap"]
