"""The options of a wrapped client, and the values each may have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, get_args

from harmony_client.reference import prepare
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
    """The options as keyword arguments, none of them required."""

    request_tokens: bool
    mode: Mode
    preambles: Preambles
    deltas: Deltas
    on_mismatch: OnMismatch
    on_disconnect: OnDisconnect
    on_report: Callable[[Report], object] | None
    reference: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """What a wrapped client does with the response streams it returns.

    :class:`harmony_client.client.HarmonyOpenAI` says what each option means.

    Raises:
        ImportError: ``reference`` is set, and openai-harmony is not installed.
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
    reference: bool = False

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in get_args(choices):
                allowed = ", ".join(map(repr, get_args(choices)))
                raise ValueError(f"{name} must be one of {allowed}, not {getattr(self, name)!r}")
        if inspect.iscoroutinefunction(self.on_report):
            raise TypeError("on_report must be a plain function: it is called between two events")
        if self.reference:
            prepare()


#: Key in the ``extensions`` of an HTTP response: a callable there gets the report of the stream that reads it, when
#: that begins. For mock servers: httpx and httpcore copy the extensions, so what a stream puts in does not come back.
WATCH_EXTENSION = "harmony_client.watch"

#: The names of all options.
OPTION_NAMES = frozenset(field.name for field in fields(RepairOptions))
