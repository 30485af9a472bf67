"""OpenAI clients whose response streams are complete, well-formed and verified.

The clients are the SDK's own with one seam: ``request()``, through which every streamed response
goes, swaps the stream class. ``create(stream=True)``, ``stream()``, ``retrieve(stream=True)``,
``with_raw_response``, ``with_streaming_response`` + ``parse()`` and ``post(…, stream_cls=…)`` all see
the repaired stream. Calls without streaming and all other endpoints are untouched.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, get_args, get_origin

import openai
from openai import AsyncStream, Stream
from openai.types.responses import ResponseStreamEvent

from harmony_client import wire
from harmony_client._options import (
    OPTION_NAMES,
    Deltas,
    Mode,
    OnDisconnect,
    OnMismatch,
    OptionDict,
    Preambles,
    RepairOptions,
)
from harmony_client._stream import DELIVERY_EXTENSION, AsyncRepairedStream, Delivery, Outcome, RepairedStream
from harmony_client.errors import StreamError
from harmony_client.report import Report

__all__ = ["AsyncHarmonyOpenAI", "HarmonyOpenAI", "Outcome", "outcome_of", "report_of", "wrap"]

ClientT = TypeVar("ClientT", bound="openai.OpenAI | openai.AsyncOpenAI")

#: The stream classes to swap. Subscripted, since the SDK reads the type of the events from there; the
#: user's own subclasses of the SDK's streams are left alone.
_SWAPS: dict[Any, Any] = {
    Stream: RepairedStream[ResponseStreamEvent],
    AsyncStream: AsyncRepairedStream[ResponseStreamEvent],
}


class _Repairing:
    """The seam, for any client class of the SDK, synchronous or not: to be its first base."""

    _harmony = RepairOptions()

    if not TYPE_CHECKING:  # a type checker sees the SDK's own signatures

        def request(self, cast_to, options, *, stream=False, stream_cls=None):
            """Send a request; the one place through which every response stream comes."""
            swapped = _swapped(self._harmony, options, stream_cls) if stream else None
            if swapped is not None:
                stream_cls = swapped
                if self._harmony.request_tokens:
                    options = _asking_for_tokens(self, options)
            # The asynchronous clients' request() returns a coroutine, which passes through as it is.
            return super().request(cast_to, options, stream=stream, stream_cls=stream_cls)

        def copy(self, **options):
            """Copy the client; takes the SDK's options and this package's, and keeps both."""
            return _keeping(self, super().copy, options)

        def with_options(self, **options):
            """Copy the client; takes the SDK's options and this package's, and keeps both."""
            return _keeping(self, super().with_options, options)

    else:

        def copy(self, **options: Any) -> Self:
            """Copy the client."""
            raise NotImplementedError

        with_options = copy


def _swapped(harmony: RepairOptions, options: Any, stream_cls: Any) -> Any:
    """The repaired stream class for a request, or ``None`` where the SDK's own is right."""
    if harmony.mode == "off" or get_args(stream_cls) != (ResponseStreamEvent,):
        return None
    if isinstance(options.params, Mapping) and "starting_after" in options.params:
        return None  # starts in the middle of an item: nothing to announce it with
    return _SWAPS.get(get_origin(stream_cls))


def _asking_for_tokens(client: Any, options: Any) -> Any:
    """The request with the header that asks for token batches, unless the caller has set one."""
    given = options.headers if isinstance(options.headers, Mapping) else {}
    http_headers = getattr(client._client, "headers", ())
    if any(name.lower() == wire.HEADER for name in (*given, *client.default_headers, *http_headers)):
        return options
    asking = options.model_copy()
    asking.headers = {**given, wire.HEADER: wire.HEADER_VALUE}
    return asking


def _keeping(client: Any, copy: Callable[..., Any], options: dict[str, Any]) -> Any:
    changed = {name: options.pop(name) for name in OPTION_NAMES & options.keys()}
    copied = copy(**options)
    if not isinstance(copied, _Repairing):  # a subclass of the user's that names its class itself
        copied = wrap(copied)
    copied._harmony = replace(client._harmony, **changed)
    return copied


class _Constructed(_Repairing):
    """The constructor of the two clients below."""

    def __init__(
        self,
        *,
        request_tokens: bool = True,
        mode: Mode = "repair",
        preambles: Preambles = "auto",
        deltas: Deltas = "auto",
        on_mismatch: OnMismatch = "warn",
        on_disconnect: OnDisconnect = "error",
        on_report: Callable[[Report], object] | None = None,
        reference: bool = False,
        **sdk_options: Any,
    ) -> None:
        self._harmony = RepairOptions(
            request_tokens=request_tokens,
            mode=mode,
            preambles=preambles,
            deltas=deltas,
            on_mismatch=on_mismatch,
            on_disconnect=on_disconnect,
            on_report=on_report,
            reference=reference,
        )
        super().__init__(**sdk_options)


class HarmonyOpenAI(_Constructed, openai.OpenAI):
    """``openai.OpenAI`` with repaired and verified response streams.

    Args:
        request_tokens: Ask the server for token batches, by the request header ``x-harmony-tokens: 1``
            (a header of that name that you set, on the request or the client, stays as it is).
        mode: ``"repair"`` the events; only ``"observe"`` them (they pass untouched, the report is
            made); or ``"off"``: the plain SDK, no header and no report.
        preambles: Commentary messages to the user: ``"auto"`` shows those that the server would list,
            ``"message"`` all, ``"drop"`` none (their text stays in the report).
        deltas: Where no token batches come: hand deltas out ``"live"``, ``"hold"`` them until the done
            event proves them, or ``"auto"``: hold while the server shows TensorRT-LLM's fault.
        on_mismatch: When the terminal response contradicts what was streamed: ``"warn"`` in the log,
            ``"raise"`` a ``VerificationError``, or ``"ignore"`` it. The report tells in each case.
        on_disconnect: A connection that breaks raises an ``"error"``, or ends the stream with a
            ``response.incomplete`` event (``"incomplete"``).
        on_report: Called once per stream with its report when that is final: before the terminal event
            is handed out, or when the stream is closed. A plain function; what it raises is logged.
        reference: Have openai-harmony read all tokens once more before the terminal event is handed out (of
            an asynchronous client: in a thread); ``report.reference`` says what it reads otherwise. Needs
            the extra ``harmony``. The first client that is made with it loads openai-harmony, which stops
            the whole process for half a second, so make it before an event loop runs.
        sdk_options: Every argument of ``openai.OpenAI``.

    Raises:
        ImportError: ``reference`` is set, and openai-harmony is not installed.
        TypeError: ``on_report`` is a coroutine function.
        ValueError: An option has a value that does not exist.
    """


class AsyncHarmonyOpenAI(_Constructed, openai.AsyncOpenAI):
    """``openai.AsyncOpenAI`` with repaired and verified response streams.

    Takes every argument of ``openai.AsyncOpenAI`` and the options of :class:`HarmonyOpenAI`.
    """


def wrap(client: ClientT, **options: Unpack[OptionDict]) -> ClientT:
    """A client like the given one, with repaired and verified response streams.

    The given client is not changed. Both share the HTTP client and the credentials, so closing one
    closes the other's connections. Instrumentation that replaced methods of ``client.responses`` is
    not carried over: wrap first, instrument then.

    Args:
        client: Any client of the SDK, synchronous or not, Azure's and your own subclasses included.
        options: The options of :class:`HarmonyOpenAI`. Of a client that is wrapped already, options
            that are not named stay as they are.

    Returns:
        An instance of a subclass of the client's own class.

    Raises:
        TypeError: ``client`` is no client of the SDK, or an option does not exist.
        ValueError: An option has a value that does not exist.
    """
    if not isinstance(client, openai.OpenAI | openai.AsyncOpenAI):
        raise TypeError(f"wrap() takes an OpenAI or AsyncOpenAI client, not {type(client).__name__}")
    # A new object: the class of an existing one cannot be swapped, the layouts differ.
    cls: Any = type(client)
    wrapped: Any = object.__new__(_repairing(cls))
    state: Any = object.__getstate__(client)
    for names in state if isinstance(state, tuple) else (state,):  # (attributes, slots) or attributes
        for name, value in names.items():
            # The SDK keeps its resources (client.responses, …) as cached properties bound to the old client.
            if not isinstance(getattr(cls, name, None), cached_property):
                setattr(wrapped, name, value)
    unknown = sorted(options.keys() - OPTION_NAMES)
    if unknown:
        raise TypeError(f"wrap() has no option {', '.join(unknown)}; it has {', '.join(sorted(OPTION_NAMES))}")
    wrapped._harmony = replace(getattr(client, "_harmony", RepairOptions()), **options)
    return wrapped  # type: ignore[no-any-return]


@cache
def _repairing(cls: type) -> type:
    if issubclass(cls, _Repairing):
        return cls
    if cls in (openai.OpenAI, openai.AsyncOpenAI):
        return HarmonyOpenAI if cls is openai.OpenAI else AsyncHarmonyOpenAI
    names = {"__module__": __name__, "__doc__": cls.__doc__}
    return types.new_class(f"Harmony{cls.__name__}", (_Repairing, cls), exec_body=lambda body: body.update(names))


def report_of(source: object) -> Report:
    """The report of a response stream.

    Args:
        source: What a wrapped client returned for a streamed response (the raw stream, the stream of
            the ``responses.stream()`` helper, the raw response once it is parsed), the HTTP response,
            or an error that the stream raised.

    Returns:
        The report; it is final once the terminal event was handed out, the stream raised, or it was closed.

    Raises:
        TypeError: ``source`` belongs to no repaired stream.
    """
    if isinstance(source, StreamError) and source.report is not None:
        return source.report
    return _delivery(source, "report_of").report


def outcome_of(source: object) -> Outcome:
    """How a response stream ended, with the response as far as it came.

    Unlike ``get_final_response()``, which raises the same RuntimeError for a response that is correctly
    incomplete or failed and for a stream that was cut, this tells them apart and never raises for them.

    Args:
        source: As for :func:`report_of`.

    Returns:
        The ending, the response and the error; of a stream that is still being read, what has come so far.

    Raises:
        TypeError: ``source`` belongs to no repaired stream.
    """
    if isinstance(source, StreamError) and isinstance(source, openai.APIError):
        return Outcome("error", source.partial, source)
    return _delivery(source, "outcome_of").outcome()


def _delivery(source: object, function: str) -> Delivery:
    # Of the stream, of a raw response, of the helper's stream (private to the SDK), and itself.
    responses = (getattr(source, name, None) for name in ("response", "http_response", "_response"))
    for response in (*responses, source):
        extensions = getattr(response, "extensions", None)
        found = extensions.get(DELIVERY_EXTENSION) if isinstance(extensions, Mapping) else None
        if isinstance(found, Delivery):
            return found
    raise TypeError(
        f"{type(source).__name__} belongs to no repaired response stream. {function}() takes the stream of a wrapped "
        "client (HarmonyOpenAI, AsyncHarmonyOpenAI, wrap()), the stream that the responses.stream() manager gives "
        "when it is entered, a raw response after parse(), or the error of such a stream. Requests with "
        'starting_after and clients with mode="off" are not repaired and have no report.'
    )
