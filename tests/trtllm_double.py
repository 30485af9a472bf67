"""Contract doubles of TensorRT-LLM 1.1, 1.2 and main: the names, signatures and order of calls that the extension meets.

All that this project believes of TensorRT-LLM stands here, and only here. `install` puts modules of its names into `sys.modules`. What is
exact: the module paths, the globals of `openai_server` and that they are looked up at each request, the processor's constructor and
methods, who calls them and when, what an engine result has, pickling to post-processing workers (real processes), what happens when the
terminal response cannot be built, the application and its middleware, the options of `trtllm-serve`. The engine plays recordings, and the
frames are the recordings' own.

What is inferred, as no GPU server was there to look at: that an aborted request brings one more engine response, empty and "cancelled",
and that nobody draws it once the client has gone; that a worker which is handed that response ends its request with it; that a trimmed
stop token is named by `stop_reason` in a last response that can be empty; that a worker hands the exception of a post-processor to the
request that caused it; that a cancelled last response brings no frames but the terminal one. What is simplified: the frames do not
depend on the engine's ids, a `ResponsesRequest` has only the fields that tests send, 1.1 refuses a model other than gpt-oss with a 400.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import multiprocessing
import pickle
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.recordings import Recording, load

VERSIONS = {"1.1": "1.1.0", "1.2": "1.2.1", "main": "1.3.0rc4"}
SERVE = "tensorrt_llm.serve"
TERMINAL = ("event: response.completed", "event: response.incomplete")


class HarmonyError(Exception):
    """What openai-harmony raises."""


ERRORS: dict[str, type[Exception]] = {"HarmonyError": HarmonyError, "ValueError": ValueError}


def current(module: str) -> Any:
    """A module of TensorRT-LLM; its globals are looked up when they are used, as in its own code."""
    return sys.modules[f"{SERVE}.{module}"]


# --- tensorrt_llm.executor: what the engine hands out --------------------------------------------------------------------------------


@dataclass
class CompletionOutput:
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    _last_token_ids_len: int = 0
    _postprocess_result: Any = None

    @property
    def token_ids_diff(self) -> list[int]:
        return new_ids(self)


def new_ids(output: CompletionOutput) -> list[int]:
    """The ids of the last engine response; the doubles' own way, so that tests can take the attribute away."""
    return output.token_ids[output._last_token_ids_len :]


@dataclass
class Response:
    """What the engine says of one request at one step; goes to a worker, if there are any."""

    client_id: int
    token_ids: list[int]
    is_final: bool
    finish_reason: str | None
    stop_reason: int | str | None


class GenerationResult:
    """A request's result as it grows: the same object at each step."""

    def __init__(self, request_id: int) -> None:
        self.request_id = request_id
        self.outputs = [CompletionOutput()]
        self._done = False

    def _handle_response(self, response: Response) -> None:
        output = self.outputs[0]
        output._last_token_ids_len = len(output.token_ids)
        output.token_ids += response.token_ids
        self._done = response.is_final
        if response.is_final:
            output.finish_reason, output.stop_reason = response.finish_reason, response.stop_reason


class RequestOutput(GenerationResult):
    """The promise that `generate_async` returns."""

    def __init__(self, request_id: int, recording: Recording, engine: Engine, postproc_params: PostprocParams | None) -> None:
        super().__init__(request_id)
        self._steps = list(recording.batches)
        self._recording = recording
        self._engine = engine
        self._params = postproc_params
        self.aborted = False

    @property
    def finished(self) -> bool:
        return self._done

    def abort(self) -> None:
        """The engine's last response is then empty and cancelled."""
        self.aborted = True
        self._engine.aborted.set()

    def __aiter__(self) -> RequestOutput:
        return self

    async def __anext__(self) -> RequestOutput:
        if self._done:
            raise StopAsyncIteration
        await asyncio.sleep(self._engine.pace)
        response = self._next_response()
        if self._params is None:
            self._handle_response(response)
            return self
        self.outputs[0]._postprocess_result = await self._engine.postprocess(response, self._params)
        self._done = response.is_final
        return self

    def _next_response(self) -> Response:
        if self.aborted:
            return Response(self.request_id, [], True, "cancelled", None)
        ids = self._steps.pop(0).token_ids
        end = (self._recording.finish_reason, self._recording.stop_reason) if not self._steps else (None, None)
        return Response(self.request_id, ids, not self._steps, *end)


# --- tensorrt_llm.executor.postproc_worker: post-processing in other processes ---------------------------------------------------------


@dataclass(kw_only=True)
class ResponsesAPIPostprocArgs:
    streaming_processor: Any
    num_prompt_tokens: int | None = None


@dataclass(kw_only=True)
class PostprocParams:
    post_processor: Callable[[Any, Any], Any]
    postproc_args: ResponsesAPIPostprocArgs


def worker_main(version: str, connection: Connection) -> None:
    """A worker: makes the frames of its requests. It gets the processor pickled, with a request's first response."""
    install(version)
    records: dict[int, tuple[GenerationResult, PostprocParams]] = {}
    while message := connection.recv_bytes():
        response, params = pickle.loads(message)
        if params is not None:
            records[response.client_id] = (GenerationResult(response.client_id), params)
        record, params = records[response.client_id]
        record._handle_response(response)
        try:
            result = params.post_processor(record, params.postproc_args)
        except Exception as error:  # TensorRT-LLM's worker ends with it
            result = error
        if response.is_final:
            del records[response.client_id]
        connection.send((response.client_id, result, len(current("harmony_adapter").get_harmony_adapter()._stream_states)))


class Workers:
    """Post-processing workers, spawned; a request stays with one of them."""

    def __init__(self, version: str, count: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        pipes = [spawn.Pipe() for _ in range(count)]
        self.connections = [own for own, _ in pipes]
        self.processes = [spawn.Process(target=worker_main, args=(version, theirs), daemon=True) for _, theirs in pipes]
        self.parsers = [0] * count
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        for number, process in enumerate(self.processes):
            process.start()
            threading.Thread(target=self._listen, args=(number,), daemon=True).start()

    async def run(self, response: Response, params: PostprocParams, *, first: bool) -> Any:
        self._waiting[response.client_id] = future = asyncio.get_running_loop().create_future()
        message = pickle.dumps((response, params if first else None))
        self.connections[response.client_id % len(self.connections)].send_bytes(message)
        result = await future
        if isinstance(result, Exception):
            raise result
        return result

    def _listen(self, number: int) -> None:
        while True:
            try:
                client_id, result, self.parsers[number] = self.connections[number].recv()
            except (EOFError, OSError):
                return
            future = self._waiting.pop(client_id)
            if not future.get_loop().is_closed():
                future.get_loop().call_soon_threadsafe(lambda future=future, result=result: future.done() or future.set_result(result))

    def close(self) -> None:
        for connection, process in zip(self.connections, self.processes, strict=True):
            connection.send_bytes(b"")
            process.join(10)
            connection.close()


class Engine:
    """The LLM object: plays the recording that a request's model names."""

    def __init__(self, recordings: Iterable[Recording], workers: Workers | None = None, *, model_type: str = "gpt_oss") -> None:
        self.recordings = {recording.name: recording for recording in recordings}
        self.args = SimpleNamespace(num_postprocess_workers=0 if workers is None else len(workers.processes), reasoning_parser=None)
        self.model_type = model_type
        self.workers = workers
        self.pace = 0.0
        self.aborted = threading.Event()
        self._ids = itertools.count(1)
        self._started: set[int] = set()

    def generate_async(
        self, inputs: Any, sampling_params: Any = None, streaming: bool = False, _postproc_params: PostprocParams | None = None
    ) -> RequestOutput:
        return RequestOutput(next(self._ids), inputs, self, _postproc_params)

    async def postprocess(self, response: Response, params: PostprocParams) -> Any:
        assert self.workers is not None
        first = response.client_id not in self._started
        self._started.add(response.client_id)
        return await self.workers.run(response, params, first=first)


# --- tensorrt_llm.serve ----------------------------------------------------------------------------------------------------------------


class HarmonyAdapter:
    def __init__(self) -> None:
        self._stream_states: dict[str, list[int]] = {}

    def parse(self, request_id: str, token_ids: list[int]) -> None:
        self._stream_states.setdefault(request_id, []).extend(token_ids)

    def cleanup_stream_state(self, request_id: str) -> None:
        self._stream_states.pop(request_id, None)


@dataclass
class ResponsesRequest:
    """1.1 and 1.2 refuse unknown fields of a request with a 400."""

    model: str
    input: Any = ""
    stream: bool = False
    store: bool = True
    tools: Any = None
    text: Any = None
    max_output_tokens: int | None = None
    request_id: str = ""
    recording: Any = None


def frames_of(recording: Recording, step: int) -> list[str]:
    return [frame for frame in recording.batches[step].frames if not frame.startswith(TERMINAL)]


def terminal_of(recording: Recording) -> str:
    """The terminal frame, or the exception of a response that cannot be built."""
    if recording.raised:
        name, _, message = recording.raised.partition(": ")
        raise ERRORS[name](message)
    return next(frame for frame in recording.batches[-1].frames if frame.startswith(TERMINAL))


class Processor:
    """`ResponsesStreamingProcessor` of 1.2 and later; `install` gives it its name."""

    def __init__(  # noqa: PLR0917
        self,
        request: ResponsesRequest,
        sampling_params: Any,
        model_name: str,
        create_time: int | None = None,
        conversation_store: Any = None,
        enable_store: bool = False,
        use_harmony: bool = True,
        reasoning_parser: str | None = None,
        tool_parser: str | None = None,
    ) -> None:
        self.request = request
        self.stream_request_id = f"responses-api-{request.request_id}"
        self.use_harmony = use_harmony
        self.steps = 0

    def get_initial_responses(self) -> list[str]:
        return list(self.request.recording.opening)

    def process_single_output(self, res: GenerationResult) -> list[str]:
        if self.use_harmony:
            current("harmony_adapter").get_harmony_adapter().parse(self.stream_request_id, new_ids(res.outputs[0]))
        self.steps += 1
        cancelled = res.outputs[0].finish_reason == "cancelled"
        return [] if cancelled else frames_of(self.request.recording, self.steps - 1)

    def get_final_response_non_store(self, final_res: GenerationResult) -> str:
        return terminal_of(self.request.recording)


class MainProcessor(Processor):
    """Main hands the number of prompt tokens on to the terminal response."""

    def get_final_response_non_store(self, final_res: GenerationResult, num_prompt_tokens: int | None = None) -> str:
        return terminal_of(self.request.recording)


def responses_api_streaming_post_processor(rsp: GenerationResult, args: ResponsesAPIPostprocArgs) -> list[str]:
    outputs: list[str] = args.streaming_processor.process_single_output(rsp)
    if rsp._done:
        outputs.append(args.streaming_processor.get_final_response_non_store(rsp))
    return outputs


def main_streaming_post_processor(rsp: GenerationResult, args: ResponsesAPIPostprocArgs) -> list[str]:
    outputs: list[str] = args.streaming_processor.process_single_output(rsp)
    if rsp._done:
        outputs.append(args.streaming_processor.get_final_response_non_store(rsp, args.num_prompt_tokens))
    return outputs


async def process_streaming_events(  # noqa: PLR0917
    request: ResponsesRequest,
    sampling_params: Any,
    generator: Any,
    harmony_adapter: HarmonyAdapter,
    model_name: str,
    conversation_store: Any,
    create_time: int | None = None,
    enable_store: bool = False,
) -> AsyncIterator[str]:
    """1.1 has this function instead of a processor."""
    for frame in request.recording.opening:
        yield frame
    steps = itertools.count()
    async for res in generator:
        harmony_adapter.parse(f"responses-api-{request.request_id}", new_ids(res.outputs[0]))
        if res.outputs[0].finish_reason != "cancelled":
            for frame in frames_of(request.recording, next(steps)):
                yield frame
    yield terminal_of(request.recording)


class ServerArrivalTimeMiddleware:
    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope["state"] = {}
        await self.app(scope, receive, send)


class OpenAIServer:
    def __init__(self, generator: Engine, model: str, tool_parser: str | None = None, **options: Any) -> None:
        from starlette.applications import Starlette

        self.generator = generator
        self.model = model
        self._ids = itertools.count()
        self.harmony_adapter: HarmonyAdapter | None = None
        self.use_harmony = generator.model_type == "gpt_oss"
        self.app = Starlette()
        self.app.add_route("/v1/responses", self._responses_route, methods=["POST"])
        self.app.add_route("/v1/chat/completions", self.openai_chat, methods=["POST"])
        self.app.add_middleware(ServerArrivalTimeMiddleware)

    async def await_disconnected(self, raw_request: Any, promise: RequestOutput) -> None:
        while not await raw_request.is_disconnected():
            await asyncio.sleep(0.02)
        if not promise.finished:
            promise.abort()

    async def openai_chat(self, raw_request: Any) -> Any:
        from starlette.responses import StreamingResponse

        async def chunks() -> AsyncIterator[str]:
            yield 'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'
            yield "data: [DONE]\n\n"

        return StreamingResponse(chunks(), media_type="text/event-stream")

    async def _responses_route(self, raw_request: Any) -> Any:
        from starlette.responses import JSONResponse

        try:
            request = ResponsesRequest(**await raw_request.json())
            request.recording = self.generator.recordings[request.model]
        except (TypeError, KeyError) as error:
            return JSONResponse(status_code=400, content={"error": str(error)})
        request.request_id = f"resp_{next(self._ids)}"
        return await self.openai_responses(request, raw_request)

    async def openai_responses(self, request: ResponsesRequest, raw_request: Any) -> Any:
        from starlette.responses import JSONResponse, StreamingResponse

        server, workers = current("openai_server"), self.generator.args.num_postprocess_workers > 0
        if not hasattr(server, "ResponsesStreamingProcessor"):
            return await self._responses_of_1_1(request, raw_request)
        if not request.stream:
            return JSONResponse(request.recording.terminal_response())
        processor = server.ResponsesStreamingProcessor(
            request=request,
            sampling_params=None,
            model_name=self.model,
            conversation_store=None,
            enable_store=False,
            use_harmony=self.use_harmony,
            reasoning_parser=None,
            tool_parser=None,
        )
        args = ResponsesAPIPostprocArgs(streaming_processor=processor)
        params = PostprocParams(post_processor=server.responses_api_streaming_post_processor, postproc_args=args)
        promise = self.generator.generate_async(request.recording, streaming=True, _postproc_params=params if workers else None)
        self._poll = asyncio.create_task(self.await_disconnected(raw_request, promise))

        async def create_streaming_generator() -> AsyncIterator[str]:
            for frame in processor.get_initial_responses():
                yield frame
            try:
                async for res in promise:
                    for frame in res.outputs[0]._postprocess_result if workers else params.post_processor(res, args):
                        yield frame
            except Exception:
                if not server.SENDS_FAILURES:
                    raise
                for frame in request.recording.after:
                    yield frame

        return StreamingResponse(create_streaming_generator(), media_type="text/event-stream")

    async def _responses_of_1_1(self, request: ResponsesRequest, raw_request: Any) -> Any:
        from starlette.responses import JSONResponse, StreamingResponse

        if not self.use_harmony:
            return JSONResponse(status_code=400, content={"error": "Responses API only supports harmony format for now"})
        if not request.stream:
            return JSONResponse(request.recording.terminal_response())
        self.harmony_adapter = self.harmony_adapter or current("harmony_adapter").get_harmony_adapter()
        promise = self.generator.generate_async(request.recording, streaming=True)
        self._poll = asyncio.create_task(self.await_disconnected(raw_request, promise))

        async def create_stream_response() -> AsyncIterator[str]:
            async for event_data in current("openai_server").responses_api_process_streaming_events(
                request=request,
                sampling_params=None,
                generator=promise,
                harmony_adapter=self.harmony_adapter,
                model_name=self.model,
                conversation_store=None,
                enable_store=False,
            ):
                yield event_data

        return StreamingResponse(create_stream_response(), media_type="text/event-stream")


# --- tensorrt_llm.commands.serve ---------------------------------------------------------------------------------------------------------


def serve(model: str, num_postprocess_workers: int = 0, custom_module_dirs: tuple[str, ...] = (), middleware: tuple[str, ...] = ()) -> None:
    """What `trtllm-serve MODEL` does; here the model is the name of a set of recordings, and `RUN` runs the server."""
    for directory in map(Path, custom_module_dirs):
        sys.path.insert(0, str(directory.parent))
        importlib.import_module(directory.name)
    version = sys.modules["tensorrt_llm"].SHORT  # type: ignore[attr-defined]
    workers = Workers(version, num_postprocess_workers) if num_postprocess_workers else None
    server = current("openai_server").OpenAIServer(generator=Engine(load(model), workers), model=model)
    for name in middleware:
        module, _, attribute = name.rpartition(".")
        server.app.add_middleware(getattr(importlib.import_module(module), attribute))
    sys.modules["tensorrt_llm.commands.serve"].RUN(server)  # type: ignore[attr-defined]


def run(server: OpenAIServer) -> None:
    """Run a server until it is stopped, and say where."""
    import socket

    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(server.app, log_level="warning")).run(sockets=[listener])


def _command(version: str, name: str) -> Any:
    """`main`, the click command of `trtllm-serve`, with the options that this version knows."""
    if name != "main":
        raise AttributeError(name)
    import click

    class DefaultGroup(click.Group):
        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            return super().resolve_command(ctx, args if args[0] in self.commands else ["serve", *args])

    options: list[click.Parameter] = [click.Argument(["model"]), click.Option(["--num_postprocess_workers"], type=int, default=0)]
    if version != "1.1":
        options.append(click.Option(["--custom_module_dirs"], multiple=True))
    if version == "main":
        options.append(click.Option(["--middleware"], multiple=True))
    return DefaultGroup(commands={"serve": click.Command("serve", params=options, callback=serve)})


# --- the modules -------------------------------------------------------------------------------------------------------------------------


def install(version: str) -> dict[str, ModuleType]:
    """Put the modules of a version, "1.1", "1.2" or "main", into `sys.modules`."""
    adapter = HarmonyAdapter()
    serve = ("serve", "serve.openai_server", "serve.responses_utils", "serve.harmony_adapter")
    names = ("", "version", "executor", "executor.result", *serve, "commands", "commands.serve")
    modules = {name: ModuleType(f"tensorrt_llm.{name}".rstrip(".")) for name in names}
    for module in modules.values():
        module.__path__ = []  # type: ignore[attr-defined]
        module.__file__ = f"/opt/{module.__name__.replace('.', '/')}.py"
    modules[""].__file__ = "/opt/tensorrt_llm/__init__.py"
    vars(modules["executor.result"]).update(CompletionOutput=CompletionOutput, GenerationResult=GenerationResult)
    server, utils = modules["serve.openai_server"], modules["serve.responses_utils"]
    vars(modules[""]).update(__version__=VERSIONS[version], SHORT=version)
    vars(modules["version"]).update(__version__=VERSIONS[version])
    vars(modules["serve.harmony_adapter"]).update(HarmonyAdapter=HarmonyAdapter, get_harmony_adapter=lambda: adapter)
    vars(modules["commands.serve"]).update(RUN=run, __getattr__=lambda name: _command(version, name))
    server_class = type("OpenAIServer", (OpenAIServer,), {})  # a new one, as the extension replaces its __init__
    vars(server).update(OpenAIServer=server_class, SENDS_FAILURES=version == "main")
    if version == "1.1":
        utils.process_streaming_events = process_streaming_events  # type: ignore[attr-defined]
        server.responses_api_process_streaming_events = process_streaming_events  # type: ignore[attr-defined]
    else:
        base = MainProcessor if version == "main" else Processor
        name, own = "ResponsesStreamingProcessor", {"__module__": utils.__name__}
        post_processor = main_streaming_post_processor if version == "main" else responses_api_streaming_post_processor
        setattr(utils, name, type(name, (base,), own))
        vars(server).update({name: getattr(utils, name), "responses_api_streaming_post_processor": post_processor})
    sys.modules.update({module.__name__: module for module in modules.values()})
    return modules


OURS = ("tensorrt_llm", "server_ext.trtllm", "harmony_token_tap")


@contextmanager
def installed(version: str) -> Iterator[dict[str, ModuleType]]:
    """A version installed, and the extension not yet imported; afterwards all is as before."""
    import server_ext

    path, before = list(sys.path), {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(OURS)}
    vars(server_ext).pop("trtllm", None)
    modules = install(version)
    try:
        yield modules
    finally:
        sys.path[:] = path
        for name in [name for name in sys.modules if name.startswith(OURS)]:
            del sys.modules[name]
        vars(server_ext).pop("trtllm", None)
        sys.modules.update(before)
        if "server_ext.trtllm" in before:
            vars(server_ext)["trtllm"] = before["server_ext.trtllm"]
