"""The options of a wrapped client, and the values each may have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, get_args

from harmony_client.report import Report

__all__ = ["OPTION_NAMES", "Deltas", "Mode", "OnDisconnect", "OnMismatch", "OptionDict", "Preambles", "RepairOptions"]

Mode = Literal["repair", "observe", "off"]
Preambles = Literal["auto", "message", "drop"]
Deltas = Literal["auto", "live", "hold"]
OnMismatch = Literal["warn", "raise", "ignore"]
OnDisconnect = Literal["error", "incomplete"]

_CHOICES: dict[str, Any] = {
    "mode": Mode,
    "preambles": Preambles,
    "deltas": Deltas,
    "on_mismatch": OnMismatch,
    "on_disconnect": OnDisconnect,
}


class OptionDict(TypedDict, total=False):
    """The options as keyword arguments; :class:`RepairOptions` says what they mean."""

    request_tokens: bool
    mode: Mode
    preambles: Preambles
    deltas: Deltas
    on_mismatch: OnMismatch
    on_disconnect: OnDisconnect
    on_report: Callable[[Report], object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """What a wrapped client does with the response streams it returns.

    Attributes:
        request_tokens: Ask the server for token batches (request header ``x-harmony-tokens: 1``).
            A header of that name that the caller sets, on the request or the client, stays as it is.
        mode: ``repair`` the events; only ``observe`` them (they pass untouched, the report is made);
            or ``off``: the plain SDK, no header and no report.
        preambles: Commentary messages to the user: ``auto`` shows those that the server would list,
            ``message`` shows all, ``drop`` none (the text stays in the report).
        deltas: Without token batches: hand deltas out at once (``live``), ``hold`` them until the done
            event proves them, or ``auto``: hold while the server shows TensorRT-LLM's fault.
        on_mismatch: When the terminal response contradicts what was streamed: ``warn`` in the log,
            ``raise`` a ``VerificationError``, or ``ignore`` it; the report says so in each case.
        on_disconnect: A connection that breaks raises an ``error``, or ends the stream with a
            ``response.incomplete`` event.
        on_report: Called with the report of every stream once it is final, before the terminal event
            is handed out, or when the stream is closed. A plain function; what it raises is logged.

    Raises:
        TypeError: ``on_report`` is a coroutine function.
        ValueError: An option has a value that does not exist.
    """

    request_tokens: bool = True
    mode: Mode = "repair"
    preambles: Preambles = "auto"
    deltas: Deltas = "auto"
    on_mismatch: OnMismatch = "warn"
    on_disconnect: OnDisconnect = "error"
    on_report: Callable[[Report], object] | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in get_args(choices):
                allowed = ", ".join(map(repr, get_args(choices)))
                raise ValueError(f"{name} must be one of {allowed}, not {getattr(self, name)!r}")
        if inspect.iscoroutinefunction(self.on_report):
            raise TypeError("on_report must be a plain function: it is called between two events")


#: The names of all options.
OPTION_NAMES = frozenset(field.name for field in fields(RepairOptions))
