"""The processor of TensorRT-LLM 1.2 and later, without a socket: classes that are not as expected, and exceptions of the server's own."""

from __future__ import annotations

import asyncio
import logging
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from harmony_client.wire import TokenBatch
from server_ext import asgi, tap
from server_ext.recording import Recording, script
from tests import trtllm_double
from tests.test_trtllm_faults import HELLO, RELEASED, assert_untouched, lines, processor
from tests.trtllm_double import GenerationResult, Processor, Response, ResponsesAPIPostprocArgs, ResponsesRequest, new_ids
from tests.trtllm_servers import Modules, Setup, ids_of, serving, split

WHOLE = script("whole", HELLO, tokens_per_batch=2)
Change = Callable[[Modules], None]


class PanicException(BaseException):
    """What a panic in Rust code is in Python: no `Exception`."""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "_reported", set())


@pytest.fixture(params=["1.2", "main"])
def modules(request: pytest.FixtureRequest) -> Iterator[Modules]:
    with trtllm_double.installed(request.param) as modules:
        yield modules


def install() -> bool:
    from server_ext.trtllm import install

    return install()


def made(modules: Modules, recording: Recording = WHOLE, *, ask: bool = True) -> tuple[Any, asgi.Exchange]:
    """A processor as the server makes it for a request, and what its middleware knows of that."""
    exchange = asgi.Exchange()
    token = asgi._current.set(exchange if ask else None)
    try:
        request = ResponsesRequest("m", recording=recording, request_id="resp_1")
        server: Any = modules["serve.openai_server"]
        return server.ResponsesStreamingProcessor(request=request, sampling_params=None, model_name="m"), exchange
    finally:
        asgi._current.reset(token)


def played(modules: Modules, processor: Any) -> list[str]:
    """The frames of a whole response, made as the server makes them."""
    server: Any = modules["serve.openai_server"]
    recording, result, frames = processor.request.recording, GenerationResult(1), processor.get_initial_responses()
    args = ResponsesAPIPostprocArgs(streaming_processor=processor)
    for number, batch in enumerate(recording.batches, 1):
        is_last = number == len(recording.batches)
        end = (recording.finish_reason, recording.stop_reason) if is_last else (None, None)
        result._handle_response(Response(1, batch.token_ids, is_last, *end))
        frames += server.responses_api_streaming_post_processor(result, args)
    return list(frames)


def parts(frames: list[str]) -> tuple[list[TokenBatch], str]:
    batches, own = split("".join(frames).encode())
    return batches, own.decode()


def body(recording: Recording = WHOLE) -> str:
    return b"".join(recording.chunks(tokens=False)).decode()


# --- classes of somebody else -----------------------------------------------------------------------------------------------------------


def subclass(base: Any) -> Any:
    class Theirs(base):  # type: ignore[misc]
        def get_initial_responses(self) -> list[str]:
            return ["theirs\n\n"]

    return Theirs


def test_a_subclass_that_was_there_before_is_not_replaced(modules: Modules, caplog: pytest.LogCaptureFixture) -> None:
    theirs = subclass(processor(modules))
    modules["serve.openai_server"].ResponsesStreamingProcessor = theirs  # type: ignore[attr-defined]
    assert install() is False
    assert modules["serve.openai_server"].ResponsesStreamingProcessor is theirs
    [line] = lines(caplog)
    assert "ResponsesStreamingProcessor: is not the server's own class" in line


def test_a_subclass_of_ours_is_what_it_was_made(modules: Modules, caplog: pytest.LogCaptureFixture) -> None:
    assert install()
    server: Any = modules["serve.openai_server"]
    server.ResponsesStreamingProcessor = subclass(server.ResponsesStreamingProcessor)
    for ask in (False, True):
        own, exchange = made(modules, ask=ask)
        assert "".join(played(modules, own)) == body().replace("".join(WHOLE.opening), "theirs\n\n")
        assert not exchange.active
    [line] = lines(caplog)
    assert "ResponsesStreamingProcessor: was subclassed" in line
    assert install() is False


# --- classes of another make ------------------------------------------------------------------------------------------------------------


def of_another_make(modules: Modules, base: type) -> None:
    base.__name__ = base.__qualname__ = "ResponsesStreamingProcessor"
    for name in ("serve.openai_server", "serve.responses_utils"):
        modules[name].ResponsesStreamingProcessor = base  # type: ignore[attr-defined]
    base.__module__ = "tensorrt_llm.serve.responses_utils"


def with_slots(modules: Modules) -> None:
    class Slotted:
        __slots__ = ("request", "steps", "stream_request_id", "use_harmony")
        __init__ = Processor.__init__
        get_initial_responses = Processor.get_initial_responses
        process_single_output = Processor.process_single_output
        get_final_response_non_store = trtllm_double.MainProcessor.get_final_response_non_store

    of_another_make(modules, Slotted)


def slotted_dataclass(modules: Modules) -> None:
    @dataclass(slots=True)
    class Slotted(trtllm_double.MainProcessor):
        request: Any
        sampling_params: Any
        model_name: str
        use_harmony: bool = True
        steps: int = 0
        stream_request_id: str = field(default="responses-api-resp_1", init=False)

    of_another_make(modules, Slotted)


def with_a_constructor_of_its_own(modules: Modules) -> None:
    class Constructed(processor(modules)):  # type: ignore[misc]
        def __new__(cls, *, request: Any = None, sampling_params: Any = None, model_name: str = "") -> Any:
            return super().__new__(cls)

    of_another_make(modules, Constructed)


def with_a_metaclass(modules: Modules) -> None:
    of_another_make(modules, type("Meta", (type,), {})("Own", (processor(modules),), {}))


@pytest.mark.parametrize("change", [with_slots, slotted_dataclass, with_a_constructor_of_its_own, with_a_metaclass])
def test_a_class_of_another_make_serves_both_kinds_of_requests(modules: Modules, change: Change, caplog: pytest.LogCaptureFixture) -> None:
    change(modules)
    assert install()
    own, _ = made(modules, ask=False)
    assert type(own) is processor(modules)
    assert "".join(played(modules, own)) == body()
    asked, exchange = made(modules)
    assert exchange.active
    for each in (asked, pickle.loads(pickle.dumps(made(modules)[0]))):
        batches, rest = parts(played(modules, each))
        assert (ids_of(batches), batches[-1].done, rest) == (HELLO, True, body())
    assert lines(caplog) == []


def frozen(modules: Modules) -> None:
    class Frozen(processor(modules)):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            if name.startswith("_token"):
                raise TypeError("no attributes of yours")
            super().__setattr__(name, value)

    of_another_make(modules, Frozen)


def without_use_harmony(modules: Modules) -> None:
    class Hidden(processor(modules)):  # type: ignore[misc]
        def __init__(self, use_harmony: bool = True, **fields: Any) -> None:
            super().__init__(**fields)
            del self.use_harmony

        def process_single_output(self, res: Any) -> list[str]:
            self.use_harmony = False
            return super().process_single_output(res)  # type: ignore[no-any-return]

    of_another_make(modules, Hidden)


@pytest.mark.parametrize(
    ("change", "symbol"),
    [
        (frozen, "ResponsesStreamingProcessor: TypeError."),
        (without_use_harmony, "ResponsesStreamingProcessor.use_harmony: AttributeError."),
    ],
)
def test_a_processor_that_cannot_be_ours_is_the_servers_own(
    modules: Modules, change: Change, symbol: str, caplog: pytest.LogCaptureFixture
) -> None:
    change(modules)
    assert install()
    for _ in range(2):
        asked, exchange = made(modules)
        assert type(asked) is processor(modules)
        assert "".join(played(modules, asked)) == body()
        assert not exchange.active
    [line] = lines(caplog)
    assert symbol in line


def test_a_class_that_nobody_may_subclass_is_left_alone(modules: Modules, caplog: pytest.LogCaptureFixture) -> None:
    class Final(processor(modules)):  # type: ignore[misc]
        def __init_subclass__(cls) -> None:
            raise TypeError("final")

    of_another_make(modules, Final)
    assert install() is False
    assert modules["serve.openai_server"].ResponsesStreamingProcessor is Final
    assert [line.split(": ")[1:] for line in lines(caplog)] == [
        ["tensorrt_llm.serve.openai_server", "TypeError. Served without token frames; nothing else changes."]
    ]


def test_a_constructor_that_refuses_a_request_says_so_itself(modules: Modules, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(self: Any, use_harmony: bool = True, **fields: Any) -> None:
        raise ValueError("not this request")

    processor(modules).__init__ = refuse
    assert install()
    for ask in (False, True):
        with pytest.raises(ValueError, match="not this request"):
            made(modules, ask=ask)
    assert lines(caplog) == []


# --- other parameters, other pickling ---------------------------------------------------------------------------------------------------


def otherwise_named(modules: Modules) -> None:
    own: Any = processor(modules)
    process, final = own.process_single_output, own.get_final_response_non_store
    own.process_single_output = lambda self, *, engine_result: process(self, engine_result)
    own.get_final_response_non_store = lambda self, *, engine_result: final(self, engine_result)

    def post_processor(rsp: Any, args: Any) -> list[str]:
        frames: list[str] = args.streaming_processor.process_single_output(engine_result=rsp)
        return [*frames, args.streaming_processor.get_final_response_non_store(engine_result=rsp)] if rsp._done else frames

    modules["serve.openai_server"].responses_api_streaming_post_processor = post_processor  # type: ignore[attr-defined]


def otherwise_placed(modules: Modules) -> None:
    own: Any = processor(modules)
    process = own.process_single_output
    own.process_single_output = lambda self, step, res: process(self, res)

    def post_processor(rsp: Any, args: Any) -> list[str]:
        frames: list[str] = args.streaming_processor.process_single_output(7, rsp)
        return [*frames, args.streaming_processor.get_final_response_non_store(rsp)] if rsp._done else frames

    modules["serve.openai_server"].responses_api_streaming_post_processor = post_processor  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", [otherwise_named, otherwise_placed])
def test_the_engine_result_is_found_whatever_its_name_and_place(modules: Modules, change: Change) -> None:
    change(modules)
    assert install()
    batches, rest = parts(played(modules, made(modules)[0]))
    assert (ids_of(batches), batches[-1].done, rest) == (HELLO, True, body())


def test_a_call_without_an_engine_result_goes_on_as_it_came(modules: Modules, caplog: pytest.LogCaptureFixture) -> None:
    own: Any = processor(modules)
    own.process_single_output = lambda self, *args, **kwargs: [repr((args, kwargs))]
    assert install()
    asked, _ = made(modules)
    assert asked.process_single_output() == ["((), {})"]
    assert asked.process_single_output(1, two=2) == ["((1,), {'two': 2})"]
    assert [line.split(": ")[1:] for line in lines(caplog)] == [
        ["engine response", "LookupError. Served without token frames; nothing else changes."]
    ]


def test_pickling_that_drops_our_attribute_costs_the_token_frames_alone(modules: Modules, caplog: pytest.LogCaptureFixture) -> None:
    own: Any = processor(modules)
    own.__getstate__ = lambda self: {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
    assert install()
    for _ in range(2):
        sent = pickle.loads(pickle.dumps(made(modules)[0]))
        assert "".join(played(modules, sent)) == body()
    [line] = lines(caplog)
    assert "ResponsesStreamingProcessor: was subclassed, or pickled without its attributes. Served without token frames" in line


def test_a_finish_reason_of_an_enumeration_is_sent_as_its_text(modules: Modules) -> None:
    class Reason(str, Enum):  # noqa: UP042
        LENGTH = "length"

    assert install()
    recording = script("enumerated", HELLO, finish_reason=Reason.LENGTH)
    batches, _ = parts(played(modules, made(modules, recording)[0]))
    assert (batches[-1].done, batches[-1].finish_reason) == (True, "length")


def test_frames_that_are_no_text_are_the_servers_own(modules: Modules, caplog: pytest.LogCaptureFixture) -> None:
    given: list[Any] = [[b"bytes"], []]
    processor(modules).process_single_output = lambda self, res: given[0]
    assert install()
    asked, _ = made(modules)
    result = GenerationResult(1)
    for _ in range(2):
        result._handle_response(Response(1, [200005], False, None, None))
        assert asked.process_single_output(result) is given.pop(0), "also when there is no token frame any more"
    [line] = lines(caplog)
    assert "ResponsesStreamingProcessor.process_single_output: returned list, not list[str]." in line


# --- exceptions of the server -----------------------------------------------------------------------------------------------------------


def failing(method: str, error: BaseException, *, only_last: bool = True) -> Change:
    """The server's own method raises, over the last engine response or over each."""

    def change(modules: Modules) -> None:
        own: Any = processor(modules)
        original = getattr(own, method)

        def raising(self: Any, res: Any, *args: Any) -> Any:
            if res._done or not only_last:
                raise error
            return original(self, res, *args)

        setattr(own, method, raising)

    return change


LAST = WHOLE.batches[-1]
ENDING = LAST.frames[-1]
LOST = "".join(LAST.frames[:-1])


@pytest.mark.parametrize("error", [trtllm_double.HarmonyError("secret"), PanicException("secret")], ids=lambda error: type(error).__name__)
def test_a_terminal_response_that_is_built_after_all_ends_the_stream_as_ever(
    modules: Modules, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    failing("process_single_output", error)(modules)
    assert install()
    frames = played(modules, made(modules)[0])
    batches, rest = parts(frames)
    assert (ids_of(batches), batches[-1].done, batches[-1].snapshot_error) == (HELLO, True, None)
    assert rest == body().replace(LOST, "")
    assert frames[-1].endswith(ENDING), "the terminal event is last"
    [line] = lines(caplog)
    name = f"tensorrt-llm/{sys.modules['tensorrt_llm'].__version__}"
    assert line == f"{name}: {type(error).__name__} over the last engine response of a stream; its tokens were sent"


@pytest.mark.parametrize("error", [trtllm_double.HarmonyError("secret"), PanicException("secret")], ids=lambda error: type(error).__name__)
def test_two_exceptions_over_the_last_engine_response_are_one_line(
    modules: Modules, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    failing("process_single_output", ValueError("first"))(modules)
    failing("get_final_response_non_store", error)(modules)
    assert install()
    batches, rest = parts(played(modules, made(modules)[0]))
    assert (ids_of(batches), batches[-1].done, batches[-1].snapshot_error) == (HELLO, True, type(error).__name__)
    assert rest == body().replace(LOST, "").replace(ENDING, "")
    assert len(lines(caplog)) == 1


@pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit(), KeyboardInterrupt(), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("method", ["process_single_output", "get_final_response_non_store"])
def test_what_says_that_the_work_is_to_end_is_no_failure(modules: Modules, method: str, error: BaseException) -> None:
    failing(method, error)(modules)
    assert install()
    with pytest.raises(type(error)):
        played(modules, made(modules)[0])


@pytest.mark.parametrize("method", ["process_single_output", "get_final_response_non_store"])
def test_after_our_own_trouble_the_servers_exception_is_its_own(modules: Modules, method: str) -> None:
    failing(method, trtllm_double.HarmonyError("no"))(modules)
    assert install()
    with pytest.raises(trtllm_double.HarmonyError):
        played(modules, made(modules, script("strange", [300_000, *HELLO], tokens_per_batch=3))[0])


@pytest.mark.parametrize("error", [trtllm_double.HarmonyError("no"), PanicException("no")], ids=lambda error: type(error).__name__)
def test_an_exception_before_the_last_engine_response_is_the_servers_own(modules: Modules, error: BaseException) -> None:
    failing("process_single_output", error, only_last=False)(modules)
    assert install()
    with pytest.raises(type(error)):
        played(modules, made(modules)[0])


def test_the_log_never_quotes_the_model_above_level_debug(modules: Modules, caplog: pytest.LogCaptureFixture) -> None:
    def leave(self: Any, request_id: str) -> None:
        raise RuntimeError("secret 31337")

    adapter = type("HarmonyAdapter", (trtllm_double.HarmonyAdapter,), {"cleanup_stream_state": leave})()
    vars(modules["serve.harmony_adapter"]).update(get_harmony_adapter=lambda: adapter)
    failing("get_final_response_non_store", trtllm_double.HarmonyError("secret 31337"))(modules)
    assert install()
    with caplog.at_level(logging.DEBUG, "server_ext"):
        played(modules, made(modules)[0])
        with pytest.raises(trtllm_double.HarmonyError):
            played(modules, made(modules, script("strange", [*HELLO, 31337 * 100], tokens_per_batch=1))[0])
    quoting = [record for record in caplog.records if record.exc_info is not None]
    assert {record.levelname for record in quoting} == {"DEBUG"}
    told = [record.getMessage() for record in caplog.records]
    assert {line.split(" ", 1)[1] for line in told if line.startswith("tensorrt")} == {
        "HarmonyAdapter.cleanup_stream_state: RuntimeError. The parser of a response stays in memory, as it does without the extension.",
        "HarmonyError over the last engine response of a stream; its tokens were sent",
        "engine response: FrameError bad-ids. Served without token frames; nothing else changes.",
    }
    assert not any("secret" in line or "31337" in line for line in told)


# --- parsers ----------------------------------------------------------------------------------------------------------------------------


def test_the_end_of_a_request_frees_its_parser_wherever_it_comes(modules: Modules, caplog: pytest.LogCaptureFixture) -> None:
    assert install()
    states = trtllm_double.current("harmony_adapter").get_harmony_adapter()._stream_states
    asked, exchange = made(modules)
    result = GenerationResult(1)
    result._handle_response(Response(1, HELLO[:2], False, None, None))
    asked.process_single_output(result)
    assert list(states) == ["responses-api-resp_1"]
    assert new_ids(result.outputs[0]) == HELLO[:2]
    assert exchange.at_end is not None
    for _ in range(2):
        exchange.at_end()
        assert states == {}
    assert lines(caplog) == []
    assert made(modules, ask=False)[1].at_end is None


@pytest.mark.parametrize("setup", [RELEASED, Setup("main", "middleware")], ids=lambda setup: setup.version)
def test_the_parser_of_a_client_that_left_is_freed(setup: Setup) -> None:
    freed = threading.Event()

    class Adapter(trtllm_double.HarmonyAdapter):
        def cleanup_stream_state(self, request_id: str) -> None:
            super().cleanup_stream_state(request_id)
            freed.set()

    adapter = Adapter()
    change: Change = lambda modules: vars(modules["serve.harmony_adapter"]).update(get_harmony_adapter=lambda: adapter)  # noqa: E731
    long = script("long", [*HELLO[:3], *[13225] * 20_000], finish_reason="length", tokens_per_batch=1)
    with serving(setup, long, before=change) as running:
        with running.stream(long.name) as response:
            chunks = response.iter_raw()
            while b"harmony:token_batch" not in next(chunks):
                pass
            assert len(adapter._stream_states) == 1
            assert not freed.is_set()
        assert freed.wait(20)
        assert running.parsers() == 0


def test_a_subclass_made_after_loading_serves_over_a_socket_too() -> None:
    def change(modules: Modules) -> None:
        run = modules["commands.serve"].RUN
        server: Any = modules["serve.openai_server"]

        def serve(made: Any) -> None:
            server.ResponsesStreamingProcessor = type("Theirs", (server.ResponsesStreamingProcessor,), {})
            run(made)

        modules["commands.serve"].RUN = serve  # type: ignore[attr-defined]

    with serving(RELEASED, before=change) as running:
        assert_untouched(running, "reasoning_final@v12:20")
