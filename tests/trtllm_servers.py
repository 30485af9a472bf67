"""Servers of the TensorRT-LLM doubles with the extension loaded, over a real socket, and how the tests read them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

import httpx
import pytest

from harmony_client import wire
from harmony_client.wire import TokenBatch, decode_batch
from server_ext import tap
from server_ext.replay import Recording, ReplayServer
from tests import trtllm_double
from tests.trtllm_double import OpenAIServer

ASKING = {wire.HEADER: wire.HEADER_VALUE}
Modules = dict[str, ModuleType]


class Setup(NamedTuple):
    """A version, a way to load the extension, a number of workers."""

    version: str
    loader: str
    workers: int = 0

    @property
    def recordings(self) -> str:
        """1.1 sends what 1.2 sends."""
        return "main" if self.version == "main" else "v12"

    @property
    def label(self) -> str:
        return f"{self.version} by {self.loader}" + (f", {self.workers} workers" if self.workers else "")


SETUPS = [
    Setup("1.1", "launcher"),
    Setup("1.2", "module-dir"),
    Setup("1.2", "launcher", 2),
    Setup("main", "middleware"),
    Setup("main", "middleware", 2),
    Setup("main", "launcher and middleware"),
]
PLAIN = [Setup(version, "nothing") for version in ("1.1", "1.2", "main")]


@dataclass
class Running:
    """A server that runs."""

    setup: Setup
    base_url: str
    server: OpenAIServer
    modules: Modules
    client: httpx.Client
    _bodies: dict[tuple[str, bool], tuple[bytes, bool]] = field(default_factory=dict)

    @property
    def recordings(self) -> list[Recording]:
        return list(self.server.generator.recordings.values())

    def post(self, model: str, *, ask: bool, path: str = "/responses", **fields: Any) -> httpx.Response:
        """A request whose response is whole."""
        request = {"model": model, "input": "x", "stream": True, **fields}
        return self.client.post(self.base_url + path, json=request, headers=ASKING if ask else {})

    def stream(self, model: str, *, ask: bool = True) -> AbstractContextManager[httpx.Response]:
        """A response to read as it comes."""
        request = {"model": model, "stream": True}
        return self.client.stream("POST", f"{self.base_url}/responses", json=request, headers=ASKING if ask else {})

    def read(self, model: str, *, ask: bool) -> tuple[bytes, bool]:
        """The body of a stream as far as it comes, and whether it ended as HTTP wants it."""
        body = bytearray()
        with self.stream(model, ask=ask) as response:
            try:
                for chunk in response.iter_raw():
                    body += chunk
            except httpx.RemoteProtocolError:
                return bytes(body), False
        return bytes(body), True

    def body(self, recording: Recording, *, ask: bool) -> tuple[bytes, bool]:
        """What `read` gives, of one request for all tests."""
        key = (recording.name, ask)
        if key not in self._bodies:
            self._bodies[key] = self.read(recording.name, ask=ask)
        return self._bodies[key]

    def parsers(self) -> int:
        """Number of parsers that Harmony adapters hold, in this process and in the workers."""
        adapter: Any = self.modules["serve.harmony_adapter"]
        workers = self.server.generator.workers
        return len(adapter.get_harmony_adapter()._stream_states) + (sum(workers.parsers) if workers else 0)


@contextmanager
def serving(setup: Setup, *recordings: Recording, before: Callable[[Modules], None] | None = None) -> Iterator[Running]:
    """Start `trtllm-serve` as an operator would, and run the server it makes.

    Args:
        setup: Version, loader, workers.
        recordings: Recordings besides those of the version.
        before: What to do to TensorRT-LLM before the extension is loaded.
    """
    made: list[OpenAIServer] = []
    with trtllm_double.installed(setup.version) as modules, pytest.MonkeyPatch.context() as patch:
        patch.setattr(modules["commands.serve"], "RUN", made.append)
        patch.setattr(tap, "_reported", set())
        if before is not None:
            before(modules)
        launch(setup, patch)
        server = made[0]
        server.generator.recordings |= {recording.name: recording for recording in recordings}
        try:
            with ReplayServer(server.app) as running, httpx.Client(timeout=60) as client:
                yield Running(setup, running.base_url, server, modules, client)
        finally:
            if server.generator.workers is not None:
                server.generator.workers.close()


def launch(setup: Setup, patch: pytest.MonkeyPatch) -> None:
    """Run the command line of a setup."""
    line = [setup.recordings, "--num_postprocess_workers", str(setup.workers)]
    if setup.loader == "module-dir":
        from server_ext.trtllm.check import MODULE_DIR

        line += ["--custom_module_dirs", str(MODULE_DIR)]
    if "middleware" in setup.loader:
        line += ["--middleware", "server_ext.trtllm.TokenTap"]
    patch.setattr(sys, "argv", ["trtllm-serve", *line])
    command: Any = sys.modules["tensorrt_llm.commands.serve"]
    if "launcher" in setup.loader:
        from server_ext.trtllm.launcher import main
    else:
        main = command.main
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 0


def split(body: bytes) -> tuple[list[TokenBatch], bytes]:
    """The token batches of a body, and the body without them."""
    batches, own = [], []
    for frame in frames_of(body):
        if frame.startswith(b"event: harmony:"):
            batches.append(decode_batch(json.loads(frame.partition(b"\ndata: ")[2])))
        else:
            own.append(frame)
    return batches, b"".join(own)


def frames_of(body: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in body.split(b"\n\n")[:-1]]


def ids_of(batches: Iterable[TokenBatch]) -> list[int]:
    return [token_id for batch in batches for token_id in batch.token_ids]
