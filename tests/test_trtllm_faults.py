"""A TensorRT-LLM that is not as expected: the server serves as if the extension were not there, and one line says why."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

from server_ext.recording import Batch, Recording, script
from tests import trtllm_double
from tests.trtllm_double import CompletionOutput, GenerationResult, Processor
from tests.trtllm_servers import Modules, Running, Setup, ids_of, serving, split

MAIN = Setup("main", "middleware")
RELEASED = Setup("1.2", "launcher")
OLD = Setup("1.1", "launcher")
HELLO = [200005, 17196, 200008, 13225, 2375, 200002]  # <|channel|>final<|message|>Hello world<|return|>


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "server_ext"]


def assert_untouched(running: Running, model: str) -> None:
    """With the header the response is what it is without."""
    asked, other = running.post(model, ask=True), running.post(model, ask=False)
    assert asked.content == other.content == b"".join(running.server.generator.recordings[model].chunks(tokens=False))
    assert "x-harmony-tokens" not in asked.headers


def assert_cut(running: Running, recording: Recording, count: int) -> None:
    """The frames of the server are all there, and so many token frames, without an end."""
    batches, own = split(running.read(recording.name, ask=True)[0])
    assert own == b"".join(recording.chunks(tokens=False))
    assert len(batches) == count
    assert not any(batch.done for batch in batches)


# --- what is found when it is loaded ---------------------------------------------------------------------------------------------------


def processor(modules: Modules) -> Any:
    return modules["serve.responses_utils"].ResponsesStreamingProcessor


def without_processor(modules: Modules) -> None:
    del modules["serve.openai_server"].ResponsesStreamingProcessor


def another_processor(modules: Modules) -> None:
    class Other(processor(modules)):  # type: ignore[misc]
        pass

    class Another(Other):
        pass

    modules["serve.openai_server"].ResponsesStreamingProcessor = Another  # type: ignore[attr-defined]


def processor_elsewhere(modules: Modules) -> None:
    del modules["serve.responses_utils"].ResponsesStreamingProcessor


def without_final(modules: Modules) -> None:
    processor(modules).get_final_response_non_store = None


def asynchronous(modules: Modules) -> None:
    async def process_single_output(self: Any, res: Any) -> list[str]:
        return Processor.process_single_output(self, res)

    processor(modules).process_single_output = process_single_output


def without_result(modules: Modules) -> None:
    processor(modules).process_single_output = lambda self: []


def without_harmony(modules: Modules) -> None:
    processor(modules).__init__ = lambda self, request, model_name: None


def other_function(modules: Modules) -> None:
    async def process_streaming_events(request: Any, results: Any) -> Any:
        yield ""

    modules["serve.openai_server"].responses_api_process_streaming_events = process_streaming_events  # type: ignore[attr-defined]


INSTALLATION = [
    (MAIN, without_processor, "tensorrt_llm.serve.openai_server.ResponsesStreamingProcessor"),
    (MAIN, another_processor, "tensorrt_llm.serve.openai_server.ResponsesStreamingProcessor"),
    (MAIN, processor_elsewhere, "tensorrt_llm.serve.responses_utils.ResponsesStreamingProcessor"),
    (RELEASED, without_final, "ResponsesStreamingProcessor.get_final_response_non_store"),
    (RELEASED, asynchronous, "ResponsesStreamingProcessor.process_single_output"),
    (RELEASED, without_result, "ResponsesStreamingProcessor.process_single_output"),
    (MAIN, without_harmony, "ResponsesStreamingProcessor.__init__"),
    (OLD, other_function, "responses_api_process_streaming_events"),
]


@pytest.mark.parametrize(("setup", "change", "symbol"), INSTALLATION, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_not_as_expected_is_left_alone_and_named(
    setup: Setup, change: Callable[[Modules], None], symbol: str, caplog: pytest.LogCaptureFixture
) -> None:
    with trtllm_double.installed(setup.version) as modules:
        from server_ext.trtllm.hook import install_in_new_servers

        change(modules)
        before = dict(vars(modules["serve.openai_server"]))
        assert install_in_new_servers() is False
        assert vars(modules["serve.openai_server"]) == before
    [line] = lines(caplog)
    assert line.startswith(f"tensorrt-llm/{trtllm_double.VERSIONS[setup.version]}: {symbol}: ")


def renamed(modules: Modules) -> None:
    """As if the next version called the method otherwise."""
    own = processor(modules)
    own.process_output, own.process_single_output = own.process_single_output, None
    modules["serve.openai_server"].responses_api_streaming_post_processor = renamed_post_processor  # type: ignore[attr-defined]


def renamed_post_processor(rsp: Any, args: Any) -> list[str]:
    frames: list[str] = args.streaming_processor.process_output(rsp)
    return [*frames, args.streaming_processor.get_final_response_non_store(rsp)] if rsp._done else frames


def test_a_server_of_an_unknown_version_serves_as_before(caplog: pytest.LogCaptureFixture) -> None:
    with serving(MAIN, before=renamed) as running:
        assert_untouched(running, "reasoning_final@main:20")
    assert len(lines(caplog)) == 1


def test_without_an_application_there_is_no_middleware_and_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    def hidden(modules: Modules) -> None:
        server = modules["serve.openai_server"].OpenAIServer
        original = server.__init__

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            self.application = self.app
            del self.app

        server.__init__ = init
        modules["commands.serve"].RUN = lambda server, run=modules["commands.serve"].RUN: (  # type: ignore[attr-defined]
            setattr(server, "app", server.application),
            run(server),
        )

    with serving(RELEASED, before=hidden) as running:
        assert_untouched(running, "reasoning_final@v12:20")
    [line] = lines(caplog)
    assert line.startswith("tensorrt-llm/1.2.1: OpenAIServer.app.add_middleware: ")


# --- what is found when it serves ------------------------------------------------------------------------------------------------------

MODEL = {setup: f"reasoning_final@{setup.recordings}:1" for setup in (MAIN, RELEASED, OLD)}


@pytest.mark.parametrize("setup", [MAIN, RELEASED, OLD], ids=lambda setup: setup.version)
def test_an_engine_result_without_its_ids(setup: Setup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(GenerationResult, "_handle_response", handle_response_of_another_name)
    with serving(setup) as running:
        monkeypatch.setattr(trtllm_double.HarmonyAdapter, "parse", lambda *_: None)
        monkeypatch.setattr(trtllm_double, "CompletionOutput", CompletionOutput)
        monkeypatch.delattr(CompletionOutput, "token_ids_diff")
        monkeypatch.setattr(Processor, "process_single_output", frames_without_ids)
        monkeypatch.setattr(running.server, "openai_responses", running.server.openai_responses)
        recording = running.server.generator.recordings[MODEL[setup]]
        if setup is OLD:
            running.modules["serve.openai_server"].SOURCE = None  # type: ignore[attr-defined]
        assert_cut(running, recording, 0)
        assert_cut(running, recording, 0)
    [line] = lines(caplog)
    assert line.startswith(f"tensorrt-llm/{trtllm_double.VERSIONS[setup.version]}: CompletionOutput.token_ids_diff: ")
