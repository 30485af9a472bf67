"""respx on both generations of the OpenAI SDK.

respx 0.23 replaces methods of httpcore, on which httpx sits. openai 3 runs on httpx2, which sits on httpcore2: its requests pass respx by
and go to the network. Requests and responses of the two are alike in all that respx and httpx2 use of them, so it is enough to replace
httpcore2's methods too; and to raise exceptions that both libraries' users can catch.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harmony_client.testing._http import of_both

__all__ = ["patch_respx", "respx_patched"]


def patch_respx() -> None:
    """Let respx answer the requests of openai 3 as it answers those of openai 2, for as long as the process runs.

    Call it once, in `conftest.py`. Tests need no change, and respx does all else as before. Without httpx2, as with openai 2, there is
    nothing to do and nothing is done; calling it again does no harm.

    Raises:
        ModuleNotFoundError: respx is not installed.
    """
    _patch()


@contextmanager
def respx_patched() -> Iterator[None]:
    """The same for the time of a `with` block, unless it is so already."""
    undo = _patch()
    try:
        yield
    finally:
        undo()


def _patch() -> Callable[[], None]:
    """Patch, unless that was done or is not needed; returns what undoes it."""
    mocker = importlib.import_module("respx.mocks").HTTPCoreMocker
    if "handler" in vars(mocker) or importlib.util.find_spec("httpcore2") is None:
        return lambda: None
    targets = [target.replace("httpcore.", "httpcore2.", 1) for target in mocker.targets if target.startswith("httpcore.")]
    missing = [target for target in targets if target not in mocker.targets]
    mocker.add_targets(*missing)
    mocker.handler = classmethod(_raising_for_both(mocker.handler.__func__))
    mocker.async_handler = classmethod(_raising_for_both_async(mocker.async_handler.__func__))

    def undo() -> None:
        mocker.remove_targets(*missing)
        del mocker.handler, mocker.async_handler  # those that it inherits come forth again

    return undo


def _raising_for_both(handler: Callable[..., Any]) -> Callable[..., Any]:
    def handle(cls: Any, request: Any) -> Any:
        with _errors_for_both():
            return handler(cls, request)

    return handle


def _raising_for_both_async(handler: Callable[..., Any]) -> Callable[..., Any]:
    async def handle(cls: Any, request: Any) -> Any:
        with _errors_for_both():
            return await handler(cls, request)

    return handle


@contextmanager
def _errors_for_both() -> Iterator[None]:
    """Errors for those who catch httpx2's too, as openai 3 does: a timeout is to become its APITimeoutError."""
    import httpx

    try:
        yield
    except httpx.TransportError as error:
        cls = type(error)
        if getattr(httpx, cls.__name__, None) is not cls:  # a class of the user's
            raise
        raised: Any = of_both(cls.__name__)(str(error))
        raised._request = error._request
        raise raised from error
