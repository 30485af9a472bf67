r"""A server that replays recorded or scripted `/v1/responses` streams, with or without token batches.

`ReplayApp` is a pure ASGI application; `ReplayServer` runs it in a thread, for tests and the demo; for curl, run it from a shell::

    python -m server_ext.replay --port 8000 --pace 0.1
    curl -N localhost:8000/v1/responses -H 'content-type: application/json' -H 'x-harmony-tokens: 1' \
        -d '{"model": "multibyte@main:20", "input": "", "stream": true}'

What it serves, with or without the `/v1`:

* `POST /v1/responses`: the stream, or without `"stream": true` the terminal response. `GET /v1/responses/{id}` (`?stream=true`) likewise,
  where the id is that of a response or the name of a recording.
* `GET /v1/models`: the names of the recordings.

Which one is played: `model` names it as `scenario`, `scenario@version` or `scenario@version:pattern`, where the pattern is the number of
tokens per batch; the first that fits is taken. A scripted output is played with any number. With a model that begins with `gpt-oss`, the
first word of the last user text that names a recording decides, or else the first recording is played.

Request headers:

* `x-harmony-tokens: 1` asks for token batches. The response carries it back if the extension is on. Without it the body is the recording,
  byte for byte.
* `x-replay-extension: on | off` and `x-replay-pace: <seconds per batch>` override the options of the app for this request.

The stream ends as the recording did. Where the server's code raised without a word to the client, the connection breaks after the last
frame: the app raises `BrokenEnding`, and an ASGI server then closes the connection without the end of the body.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import math
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs

from server_ext.recording import Batch, Recording, load, script
from server_ext.tap import ANSWER, asks_for_tokens

__all__ = ["Batch", "BrokenEnding", "Recording", "ReplayApp", "ReplayServer", "load", "main", "script"]

ANY_MODEL: Final = "gpt-oss"
"""Models with this prefix leave the choice of the recording to the input."""
EXTENSION_HEADER: Final = "x-replay-extension"
PACE_HEADER: Final = "x-replay-pace"
MAX_BODY_BYTES: Final = 16 << 20
"""A longer request body is refused, as what is played does not depend on it."""

_UVICORN_LOGGERS: Final = ("uvicorn.error", "uvicorn.access")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

_log = logging.getLogger("server_ext.replay")


class BrokenEnding(Exception):
    """Raised into the ASGI server after the last frame of a recording whose server broke the connection there."""


class _Refused(Exception):
    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kind = "server_error" if status >= 500 else "invalid_request_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class ReplayApp:
    """The ASGI application.

    Args:
        recordings: What to play; None for the shipped recordings.
        extension: Whether requests that ask for token batches get them.
        pace: Seconds before each batch.

    Raises:
        ValueError: If there are no recordings, or `pace` is not a number of seconds.
    """

    def __init__(self, recordings: Iterable[Recording] | None = None, *, extension: bool = True, pace: float = 0.0) -> None:
        self.recordings = tuple(load() if recordings is None else recordings)
        if not self.recordings:
            raise ValueError("nothing to replay: no recordings")
        self.extension = extension
        self.pace = _seconds(pace)

    def find(self, model: str) -> Recording | None:
        """The recording that a model name means, `scenario[@version][:pattern]`, or None."""
        head, _, pattern = model.partition(":")
        scenario, _, version = head.partition("@")
        fitting = [r for r in self.recordings if r.scenario == scenario and version in ("", r.version)]
        exact = next((r for r in fitting if pattern in ("", r.pattern)), None)
        return exact or _first_rebatched(fitting, pattern)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"cannot serve {scope['type']!r} connections")
        try:
            await self._serve(scope, receive, send)
        except _Refused as refused:
            await _send_json(send, refused.status, refused.body)

    async def _serve(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"].removeprefix("/v1").rstrip("/")
        endpoint, _, name = path.removeprefix("/").partition("/")
        if (method, path) == ("GET", "/models"):
            await _send_json(send, 200, self._models())
        elif (method, path) == ("POST", "/responses"):
            request = _json_object(await _read_body(receive))
            await self._reply(self._requested(request), _is_stream(request.get("stream")), scope, receive, send)
        elif (method, endpoint) == ("GET", "responses") and name:
            query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
            if "starting_after" in query:
                raise _Refused(400, "A replay cannot be resumed.", param="starting_after")
            await self._reply(self._stored(name), query.get("stream") == ["true"], scope, receive, send)
        elif endpoint in ("models", "responses"):
            raise _Refused(405, f"{method} is not allowed for {scope['path']}.")
        else:
            raise _Refused(404, f"There is no {scope['path']} here.")

    def _models(self) -> dict[str, object]:
        names = dict.fromkeys(recording.name for recording in self.recordings)
        return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "replay"} for name in names]}

    def _requested(self, request: Mapping[str, Any]) -> Recording:
        model = request.get("model")
        if not isinstance(model, str):
            raise _Refused(400, "`model` must be a string.", param="model")
        if recording := self.find(model):
            return recording
        if model.startswith(ANY_MODEL):
            named = (self.find(word) for word in _last_user_text(request.get("input")).split())
            return next(filter(None, named), self.recordings[0])
        raise _Refused(404, f"There is no model {model!r:.100}; GET /v1/models lists what there is.", code="model_not_found", param="model")

    def _stored(self, name: str) -> Recording:
        found = next((r for r in self.recordings if r.response_id == name), None) or self.find(name)
        if found is None:
            raise _Refused(404, f"There is no response {name!r:.100}.", param="response_id")
        return found

    async def _reply(self, recording: Recording, stream: bool, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1").strip() for name, value in scope["headers"]}
        extension, pace = self._options(headers)
        if stream:
            tokens = extension and asks_for_tokens(scope["headers"])
            await _Playback(recording, tokens, pace).run(receive, send)
        elif recording.raised or (response := recording.terminal_response()) is None:
            raise _Refused(500, recording.raised or "The recording has no terminal response.", code="internal_error")
        else:
            await _send_json(send, 200, response)

    def _options(self, headers: Mapping[str, str]) -> tuple[bool, float]:
        switch = headers.get(EXTENSION_HEADER, "on" if self.extension else "off")
        if switch not in ("on", "off"):
            raise _Refused(400, f"{EXTENSION_HEADER} must be on or off.", param=EXTENSION_HEADER)
        try:
            return switch == "on", _seconds(headers.get(PACE_HEADER, self.pace))
        except ValueError as error:
            raise _Refused(400, f"{PACE_HEADER}: {error}.", param=PACE_HEADER) from None


class _Playback:
    """One stream on its way to one client."""

    def __init__(self, recording: Recording, tokens: bool, pace: float) -> None:
        self.recording = recording
        self.tokens = tokens
        self.pace = pace

    async def run(self, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        if self.tokens:
            headers.append(ANSWER)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        client_left = asyncio.ensure_future(_client_left(receive))
        try:
            if not await self._send_chunks(client_left, send):
                _log.debug("client left in the middle of %s", self.recording.name)
                return
        finally:
            client_left.cancel()
        if self.recording.breaks:
            raise BrokenEnding(self.recording.raised)
        await send({"type": "http.response.body", "body": b""})

    async def _send_chunks(self, client_left: asyncio.Future[None], send: Send) -> bool:
        pace = 0.0  # the opening comes at once
        for chunk in self.recording.chunks(tokens=self.tokens):
            # At pace 0 this still lets the event loop look at the socket.
            await asyncio.wait((client_left,), timeout=pace)
            if client_left.done():
                return False
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            pace = self.pace
        return True


class ReplayServer:
    """Runs an ASGI application with uvicorn in a thread, on a free port of 127.0.0.1.

    Use it as a context manager::

        with ReplayServer() as server:
            client = OpenAI(base_url=server.base_url, api_key="none")

    Args:
        app: The application; None for a `ReplayApp` of the shipped recordings.

    Raises:
        ImportError: On entering, if uvicorn is not installed.
    """

    def __init__(self, app: Application | None = None) -> None:
        self.app = ReplayApp() if app is None else app
        self.base_url = ""
        """`http://127.0.0.1:<port>/v1`, known once entered."""

    def __enter__(self) -> Self:
        """Start the server."""
        self._server = _uvicorn_server(self.app)
        # It listens before the server runs: a client's connection waits for the server, so nobody has to.
        self._socket = _listener("127.0.0.1", 0)
        self.base_url = _base_url(self._socket)
        self._thread = threading.Thread(target=self._run, name="replay-server", daemon=True)
        for name in _UVICORN_LOGGERS:
            logging.getLogger(name).addFilter(self._is_news)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Stop the server; streams that still run are cut."""
        self._server.should_exit = True
        self._thread.join()
        for name in _UVICORN_LOGGERS:
            logging.getLogger(name).removeFilter(self._is_news)

    def _run(self) -> None:
        with self._socket:
            self._server.run(sockets=[self._socket])

    def _is_news(self, record: logging.LogRecord) -> bool:
        """Let only faults of the application into the log: not start, requests, intended breaks, cut streams, stop."""
        if record.thread != self._thread.ident:
            return True
        error = _exception(record)
        return error is not None and not isinstance(error, BrokenEnding | asyncio.CancelledError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the replay server in the foreground; see `--help`. Returns the exit status: 0, or 2 for what it cannot start with."""
    parser = argparse.ArgumentParser(prog="python -m server_ext.replay", description="Replay recorded /v1/responses streams over HTTP.")
    parser.add_argument("file", nargs="?", type=Path, help="recordings as JSON lines (.gz and .xz too); default: those shipped")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 for any free one; default: 8000")
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="seconds before each batch; default: 0")
    parser.add_argument("--no-extension", action="store_true", help="never send token batches")
    options = parser.parse_args(arguments)
    try:
        app = ReplayApp(load(options.file), extension=not options.no_extension, pace=options.pace)
        server = _uvicorn_server(app)
        listener = _listener(options.host, options.port)
    except (OSError, OverflowError, ValueError, ImportError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    logging.getLogger("uvicorn.error").addFilter(lambda record: not isinstance(_exception(record), BrokenEnding))
    print(f"{_base_url(listener)} plays {', '.join(recording.name for recording in app.recordings)}", file=sys.stderr, flush=True)
    with listener, contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    return 0


def _uvicorn_server(app: Application) -> Any:
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise ImportError("the replay server runs on uvicorn: pip install 'harmony-stream-client[demo]'") from error
    config = uvicorn.Config(app, http="h11", ws="none", loop="asyncio", lifespan="off", log_config=None, timeout_graceful_shutdown=0)
    return uvicorn.Server(config)


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.create_server((host, port))
    # Connections inherit it. Otherwise small frames wait for the client's acknowledgement, up to 40 ms each.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _base_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}/v1"


def _exception(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _first_rebatched(recordings: Iterable[Recording], pattern: str) -> Recording | None:
    if pattern.isdecimal():
        for recording in recordings:
            try:
                return recording.rebatched(int(pattern))
            except ValueError:
                continue
    return None


def _seconds(value: float | str) -> float:
    seconds = float(value)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{value!r:.40} is not a number of seconds")
    return seconds


def _is_stream(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _Refused(400, "`stream` must be true, false or null.", param="stream")


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise _Refused(400, "The request body is not JSON.") from None
    if not isinstance(request, dict):
        raise _Refused(400, "The request body is not a JSON object.")
    return request


def _last_user_text(value: object) -> str:
    """The text of a request's `input`: a string, or the last user message of a list."""
    if isinstance(value, str):
        return value
    for message in reversed(value if isinstance(value, list) else []):
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, str):
                return content
            parts = content if isinstance(content, list) else []
            return " ".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
    return ""


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(400, "The request ended early.")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise _Refused(413, f"The request body is over {MAX_BODY_BYTES} bytes.")
        if not message.get("more_body", False):
            return bytes(body)


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_json(send: Send, status: int, value: object) -> None:
    body = json.dumps(value, separators=(",", ":")).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


if __name__ == "__main__":
    sys.exit(main())
