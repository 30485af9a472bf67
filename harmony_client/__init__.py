"""Trustworthy gpt-oss streams over the OpenAI Responses API.

::

    from harmony_client import HarmonyOpenAI, report_of

    client = HarmonyOpenAI(base_url="http://gpu:8000/v1", api_key="none")
    with client.responses.stream(model="gpt-oss-120b", input="Where is my parcel?") as stream:
        for event in stream:
            ...
    print(report_of(stream).verdict)

Importing this package costs little: the OpenAI SDK is imported at the first use of a name that
needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harmony_client.checker import Checker as Checker
    from harmony_client.checker import Violation as Violation
    from harmony_client.checker import check as check
    from harmony_client.client import AsyncHarmonyOpenAI as AsyncHarmonyOpenAI
    from harmony_client.client import HarmonyOpenAI as HarmonyOpenAI
    from harmony_client.client import Outcome as Outcome
    from harmony_client.client import outcome_of as outcome_of
    from harmony_client.client import report_of as report_of
    from harmony_client.client import wrap as wrap
    from harmony_client.errors import DisconnectedError as DisconnectedError
    from harmony_client.errors import FrameError as FrameError
    from harmony_client.errors import LimitError as LimitError
    from harmony_client.errors import ServerError as ServerError
    from harmony_client.errors import StreamError as StreamError
    from harmony_client.errors import VerificationError as VerificationError
    from harmony_client.repair import StreamRepairer as StreamRepairer
    from harmony_client.report import Difference as Difference
    from harmony_client.report import Dropped as Dropped
    from harmony_client.report import Repair as Repair
    from harmony_client.report import Report as Report

__version__ = "0.1.0"

_HOMES = {
    "checker": ("Checker", "Violation", "check"),
    "client": ("AsyncHarmonyOpenAI", "HarmonyOpenAI", "Outcome", "outcome_of", "report_of", "wrap"),
    "errors": ("DisconnectedError", "FrameError", "LimitError", "ServerError", "StreamError", "VerificationError"),
    "repair": ("StreamRepairer",),
    "report": ("Difference", "Dropped", "Repair", "Report"),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AsyncHarmonyOpenAI",
    "Checker",
    "Difference",
    "DisconnectedError",
    "Dropped",
    "FrameError",
    "HarmonyOpenAI",
    "LimitError",
    "Outcome",
    "Repair",
    "Report",
    "ServerError",
    "StreamError",
    "StreamRepairer",
    "VerificationError",
    "Violation",
    "check",
    "outcome_of",
    "report_of",
    "wrap",
]

if not TYPE_CHECKING:  # or type checkers would stop seeing misspelt names

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
