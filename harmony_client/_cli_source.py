"""Where the command line gets a stream from: a file, standard input, or a live server."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, Final, Protocol

__all__ = ["FORMS", "Source", "UnusableError", "add_arguments", "opened", "usage"]

DEFAULT_PROMPT: Final = "What is 17 times 23? Answer in one sentence."
FORMS: Final = "server-sent events, JSON lines, or what curl -i prints"

_READ_SIZE: Final = 1 << 16
_DEPENDENT: Final = {"model": "--model", "no_tokens": "--no-tokens", "api_key_env": "--api-key-env"}


class UnusableError(Exception):
    """The input cannot be worked with; the message is for the user."""


class Source(Protocol):
    """Where the bytes of a stream come from."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def broken(self) -> BaseException | None:
        """What broke the connection; known once the chunks have ended."""

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they come."""


class _Saved:
    """A file, or standard input."""

    broken = None

    def __init__(self, path: str, say: Callable[[str], None]) -> None:
        self.name = "standard input" if path == "-" else path
        self._path = path
        self._say = say

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they come, so that a stream which still runs can be piped in."""
        with nullcontext(sys.stdin.buffer) if self._path == "-" else Path(self._path).open("rb") as file:
            if file.isatty():
                self._say("reading from the terminal; end with Ctrl-D")
            yield from iter(lambda: _read(file), b"")


def _read(file: BinaryIO) -> bytes:
    # Not read(), which waits until the buffer is full.
    return file.read1(_READ_SIZE)  # type: ignore[attr-defined,no-any-return]


def usage(name: str) -> str:
    """The usage of a command that reads a stream."""
    command = f"harmony-client {name} [--json | --timeline]"
    return f"{command} FILE\n       {command} --url URL [OPTIONS] [PROMPT]"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments that say where a stream comes from."""
    command.add_argument("file", metavar="FILE", nargs="?", help=f"a recorded stream: {FORMS}; - for standard input")
    live = command.add_argument_group("asking a live server")
    live.add_argument("--url", help="its base URL, such as http://gpu:8000/v1; in the place of FILE a prompt")
    live.add_argument("--model", metavar="NAME", help="the model to ask; default: the first that the server lists")
    live.add_argument("--no-tokens", action="store_true", help="do not ask for token batches")
    live.add_argument("--api-key-env", metavar="NAME", help="the environment variable that holds the API key; default: no key is sent")


@contextmanager
def opened(options: argparse.Namespace, say: Callable[[str], None]) -> Iterator[Source]:
    """The source that the arguments name.

    Args:
        options: The parsed arguments.
        say: Prints a line for the user.

    Raises:
        UnusableError: The arguments do not fit together, or the server cannot be asked.
    """
    if options.url is None:
        _refuse_without_url(options)
        yield _Saved(options.file, say)
        return
    from harmony_client import live

    key, prompt = _api_key(options.api_key_env), options.file or DEFAULT_PROMPT
    try:
        with live.ask(options.url, prompt, model=options.model, tokens=not options.no_tokens, api_key=key) as answer:
            say(f"{answer.model} at {options.url}: {_offer(answer.offered, asked=not options.no_tokens)}")
            yield answer
    except live.LiveError as error:
        raise UnusableError(str(error)) from None


def _refuse_without_url(options: argparse.Namespace) -> None:
    if options.file is None:
        options.error("name a FILE, - for standard input, or a server with --url")
    for name, flag in _DEPENDENT.items():
        if getattr(options, name):
            options.error(f"{flag} needs --url")


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        raise UnusableError(f"--api-key-env: there is no environment variable {variable}, or it is empty")
    return key


def _offer(offered: bool, *, asked: bool) -> str:
    if not asked:
        return "token batches not asked for"
    return "it sends token batches" if offered else "asked for token batches, but it does not offer them"
