"""The stream errors as the SDK's users catch them.

Every class here is the plain class of :mod:`harmony_client.errors` and one of the SDK's, so
``except openai.APIError`` and ``except harmony_client.StreamError`` both catch it, and frameworks
that map the SDK's errors by class treat it as they treat the SDK's own::

    ServerError, LimitError, VerificationError   openai.APIError
    DisconnectedError                            openai.APIConnectionError
    └── DisconnectedError after a timeout        openai.APITimeoutError

``code`` is always ours (``server-error``, ``disconnected``, …); what the server said is in ``body``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import openai

from harmony_client import errors

__all__ = ["to_sdk_error", "transport_errors"]


class StreamError(errors.StreamError, openai.APIError):
    """A stream that did not end well."""

    code: str
    partial: Any  # here a Response of the SDK


class ServerError(errors.ServerError, StreamError):
    """The server reported an error inside the stream."""


class DisconnectedError(errors.DisconnectedError, StreamError, openai.APIConnectionError):
    """The stream ended or broke before its terminal event."""


class DisconnectedTimeoutError(DisconnectedError, openai.APITimeoutError):
    """Nothing came for longer than the client's read timeout."""


class LimitError(errors.LimitError, StreamError):
    """The server sent more than a named bound allows."""


class VerificationError(errors.VerificationError, StreamError):
    """The terminal response contradicts what was streamed."""


_CLASSES: tuple[type[StreamError], ...] = (ServerError, DisconnectedError, LimitError, VerificationError)


def to_sdk_error(failure: errors.StreamError, *, request: Any, response: Callable[[dict[str, Any]], object]) -> StreamError:
    """The SDK's counterpart of a failure.

    Args:
        failure: The failure, as the repairer set it.
        request: The HTTP request, which every ``openai.APIError`` carries.
        response: Turns the plain ``partial`` into an SDK ``Response``.

    Returns:
        An error with every attribute of ``failure`` (``partial`` as a ``Response``), to be raised.
    """
    cls = _class_of(failure)
    # Neither parent's __init__ knows the other's arguments, so the attributes are set in their place.
    error = cls.__new__(cls)
    error.args = failure.args
    body = getattr(failure, "body", None)
    described = body if isinstance(body, dict) else {}
    sdk_fields = {name: described.get(name) for name in ("param", "type")}
    vars(error).update(sdk_fields, message=str(failure), request=request, body=body)
    vars(error).update(vars(failure))
    if failure.partial is not None:
        vars(error)["partial"] = response(failure.partial)
    error.__cause__ = failure.__cause__
    return error


def _class_of(failure: errors.StreamError) -> type[StreamError]:
    if isinstance(failure, errors.DisconnectedError) and _is_timeout(failure.__cause__):
        return DisconnectedTimeoutError
    plain = type(failure)
    return next((cls for cls in _CLASSES if issubclass(cls, plain)), StreamError)


def _is_timeout(error: BaseException | None) -> bool:
    return isinstance(error, (TimeoutError, *_http_errors("TimeoutException")))


def transport_errors() -> tuple[type[BaseException], ...]:
    """What reading a body may raise when the connection breaks.

    The SDK's 2.x runs on httpx and its 3.x on httpx2, but takes a client of either; some transports
    let errors of the socket, of TLS or of anyio through.
    """
    return (OSError, *_http_errors("RequestError"), *_named("anyio", "EndOfStream"))


def _http_errors(name: str) -> tuple[type[BaseException], ...]:
    return (*_named("httpx", name), *_named("httpx2", name))


def _named(module: str, name: str) -> tuple[type[BaseException], ...]:
    """The class of a module if that was imported; if not, nothing can have raised it."""
    loaded = sys.modules.get(module)
    return () if loaded is None else (getattr(loaded, name),)
