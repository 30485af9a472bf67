"""A TensorRT-LLM that is not as expected: the server serves as if the extension were not there, and one line says why."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from server_ext import tap
from server_ext.recording import Recording, script
from tests import trtllm_double
from tests.recordings import load
from tests.trtllm_double import CompletionOutput, Processor
from tests.trtllm_servers import Modules, Running, Setup, ids_of, serving, split

MAIN = Setup("main", "middleware")
RELEASED = Setup("1.2", "launcher")
OLD = Setup("1.1", "launcher")
HELLO = [200005, 17196, 200008, 13225, 2375, 200002]  # <|channel|>final<|message|>Hello world<|return|>


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "_reported", set())


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

    modules["serve.openai_server"].ResponsesStreamingProcessor = Other  # type: ignore[attr-defined]


def no_class(modules: Modules) -> None:
    for name in ("serve.openai_server", "serve.responses_utils"):
        modules[name].ResponsesStreamingProcessor = Processor.__init__  # type: ignore[attr-defined]


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
    (MAIN, no_class, "tensorrt_llm.serve.openai_server.ResponsesStreamingProcessor"),
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
    assert line.startswith("tensorrt-llm/1.2.1: OpenAIServer.app: AttributeError. ")


# --- what is found when it serves ------------------------------------------------------------------------------------------------------


def unseen(modules: Modules) -> None:
    del modules["executor.result"].CompletionOutput


@pytest.mark.parametrize(("change", "problem"), [(None, "there is none"), (unseen, "AttributeError")], ids=["seen", "not seen"])
@pytest.mark.parametrize("setup", [MAIN, RELEASED, OLD], ids=lambda setup: setup.version)
def test_an_engine_result_without_its_ids(
    setup: Setup, change: Any, problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(CompletionOutput, "token_ids_diff")
    with serving(setup, before=change) as running:
        for recording in running.recordings[:3]:
            batches, own = split(running.read(recording.name, ask=True)[0])
            assert (batches, own) == ([], split(running.read(recording.name, ask=False)[0])[1])
    [line] = lines(caplog)
    assert line.startswith(f"tensorrt-llm/{trtllm_double.VERSIONS[setup.version]}: CompletionOutput.token_ids_diff: {problem}. ")


STRANGE = script("strange", [*HELLO[:3], 300_000, *HELLO[3:]], tokens_per_batch=1)
ENDLESS = replace(script("unending", HELLO, tokens_per_batch=1), finish_reason=object())  # type: ignore[arg-type]


@pytest.mark.parametrize("setup", [MAIN, RELEASED, OLD], ids=lambda setup: setup.version)
def test_ids_and_endings_that_are_none(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    with serving(setup, STRANGE, ENDLESS) as running:
        assert_cut(running, STRANGE, 3)
        assert_cut(running, ENDLESS, len(HELLO))
    name = f"tensorrt-llm/{trtllm_double.VERSIONS[setup.version]}"
    assert [line.split(": ")[:2] for line in lines(caplog)] == [[name, "engine response"], [name, "last engine response"]]


def as_tuple(modules: Modules) -> None:
    def post_processor(rsp: Any, args: Any) -> list[str]:
        frames = [*args.streaming_processor.process_single_output(rsp)]
        return [*frames, args.streaming_processor.get_final_response_non_store(rsp)] if rsp._done else frames

    own = processor(modules)
    original = own.process_single_output
    own.process_single_output = lambda self, res: tuple(original(self, res))
    modules["serve.openai_server"].responses_api_streaming_post_processor = post_processor  # type: ignore[attr-defined]


def as_bytes(modules: Modules) -> None:
    own = processor(modules)
    original = own.get_final_response_non_store
    own.get_final_response_non_store = lambda self, res, count=None: original(self, res).encode()


@pytest.mark.parametrize(("change", "count"), [(as_tuple, 0), (as_bytes, None)], ids=lambda value: getattr(value, "__name__", ""))
def test_frames_of_another_type(change: Callable[[Modules], None], count: int | None, caplog: pytest.LogCaptureFixture) -> None:
    with serving(MAIN, before=change) as running:
        recording = running.server.generator.recordings["reasoning_final@main:1"]
        assert_cut(running, recording, len(recording.batches) if count is None else count)
    assert [line.partition(", ")[0].rpartition(": ")[2] for line in lines(caplog)] == ["returned tuple" if count == 0 else "returned bytes"]


def without_cleanup(modules: Modules) -> None:
    class Adapter(trtllm_double.HarmonyAdapter):
        cleanup_stream_state = None  # type: ignore[assignment]

    adapter = Adapter()
    vars(modules["serve.harmony_adapter"]).update(HarmonyAdapter=Adapter, get_harmony_adapter=lambda: adapter)


@pytest.mark.parametrize("setup", [MAIN, OLD], ids=lambda setup: setup.version)
def test_a_parser_that_cannot_be_freed_costs_no_token(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    with serving(setup, before=without_cleanup) as running:
        recording = running.server.generator.recordings[f"reasoning_final@{setup.recordings}:1"]
        for _ in range(2):
            batches, _ = split(running.read(recording.name, ask=True)[0])
            assert ids_of(batches) == [token_id for batch in recording.batches for token_id in batch.token_ids]
            assert batches[-1].done
    [line] = lines(caplog)
    assert line.split(": ")[1] == "HarmonyAdapter.cleanup_stream_state"
    assert line.endswith("The parser of a response stays in memory, as it does without the extension.")


# --- what the server itself may do -----------------------------------------------------------------------------------------------------


def all_in_one(modules: Modules) -> None:
    """`process_single_output` ends the last list with the terminal frame itself."""
    own = processor(modules)
    original = own.process_single_output

    def process_single_output(self: Any, res: Any) -> list[str]:
        frames: list[str] = original(self, res)
        return [*frames, self.get_final_response_non_store(res)] if res._done else frames

    own.process_single_output = process_single_output
    server: Any = modules["serve.openai_server"]
    server.responses_api_streaming_post_processor = lambda rsp, args: args.streaming_processor.process_single_output(rsp)


@pytest.mark.parametrize("scenario", ["reasoning_final", "bad_header", "trimmed_return"])
def test_the_terminal_frame_may_come_from_either_method(scenario: str) -> None:
    def body(**options: Any) -> bytes:
        with serving(MAIN, **options) as running:
            return running.read(f"{scenario}@main:1", ask=True)[0]

    assert body(before=all_in_one) == body()


def failing_from(count: int) -> Callable[[Modules], None]:
    """The server's own parser raises once it has so many ids of a response."""

    class Adapter(trtllm_double.HarmonyAdapter):
        def parse(self, request_id: str, token_ids: list[int]) -> None:
            super().parse(request_id, token_ids)
            if len(self._stream_states[request_id]) >= count:
                raise trtllm_double.HarmonyError("stray token")

    adapter = Adapter()
    return lambda modules: vars(modules["serve.harmony_adapter"]).update(get_harmony_adapter=lambda: adapter)


@pytest.mark.parametrize("scenario", ["reasoning_final", "bad_header"])
@pytest.mark.parametrize("setup", [RELEASED, OLD], ids=lambda setup: setup.version)
def test_tokens_survive_an_exception_over_the_last_engine_response(setup: Setup, scenario: str) -> None:
    [recording] = [recording for recording in load("v12") if recording.name == f"{scenario}@v12:20"]
    with serving(setup, before=failing_from(len(recording.token_ids))) as running:
        body, clean = running.read(recording.name, ask=True)
        assert not running.read(recording.name, ask=False)[1]
    batches, own = split(body)
    assert ids_of(batches) == recording.token_ids
    # 1.2 asks for the terminal response all the same, 1.1 cannot.
    is_built = setup is RELEASED and recording.raised is None
    assert (clean, batches[-1].done, batches[-1].snapshot_error) == (True, True, None if is_built else "HarmonyError")
    assert (b"event: response.completed" in own) == is_built


@pytest.mark.parametrize("setup", [RELEASED, OLD], ids=lambda setup: setup.version)
def test_an_exception_in_the_middle_ends_the_stream_as_it_did(setup: Setup) -> None:
    [recording] = [recording for recording in load("v12") if recording.name == "reasoning_final@v12:1"]
    with serving(setup, before=failing_from(6)) as running:
        asked, other = (running.read(recording.name, ask=ask) for ask in (True, False))
    batches, own = split(asked[0])
    assert (own, asked[1]) == (other[0], False)
    assert not other[1]
    assert ids_of(batches) in (recording.token_ids[:5], recording.token_ids[:6])


# --- how it is installed ---------------------------------------------------------------------------------------------------------------


def test_installing_twice_is_installing_once() -> None:
    for version in ("1.1", "1.2", "main"):
        with trtllm_double.installed(version) as modules:
            from server_ext.trtllm import TokenTap, install
            from server_ext.trtllm.hook import install_in_new_servers

            server: Any = modules["serve.openai_server"]
            names = ("ResponsesStreamingProcessor", "responses_api_process_streaming_events")
            assert install_in_new_servers()
            first = [getattr(server, name, None) for name in names], server.OpenAIServer.__init__
            assert install()
            assert install_in_new_servers()
            TokenTap(None)
            assert ([getattr(server, name, None) for name in names], server.OpenAIServer.__init__) == first


def test_a_processor_goes_to_a_worker_by_reference_and_only_if_it_was_asked_for() -> None:
    with trtllm_double.installed("1.2") as modules:
        from server_ext import asgi
        from server_ext.trtllm import install

        assert install()
        own, made = processor(modules), modules["serve.openai_server"].ResponsesStreamingProcessor
        request = trtllm_double.ResponsesRequest("m")
        other = made(request=request, sampling_params=None, model_name="m")
        assert type(other) is own
        assert b"server_ext" not in pickle.dumps(other)
        token = asgi._current.set(asgi.Exchange())
        asked = made(request=request, sampling_params=None, model_name="m")
        stranger = made(request=request, sampling_params=None, model_name="m", use_harmony=False)
        asgi._current.reset(token)
        assert (type(asked), type(stranger)) == (made, own)
        assert b"server_ext.trtllm.processor" in pickle.dumps(asked)
        assert type(pickle.loads(pickle.dumps(asked))) is made
