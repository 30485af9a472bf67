"""The OpenAI SDK as an outside judge: what `client.responses.stream()` makes of a list of events. Runs on openai 2 and 3."""

from __future__ import annotations

import importlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import openai

__all__ = ["HTTPX", "Seen", "accepts", "see"]

HTTPX: Any = importlib.import_module(openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0])
"""The package that this SDK's http client comes from: httpx2 for openai 3, httpx for openai 2."""


@dataclass
class Seen:
    """What came out of the SDK.

    Attributes:
        error: The exception that ended iteration, if one did.
        types: The types of the events that came out, in order.
        deltas: The joined deltas of each item, by output_index; `summaries` those of its summary.
        announced: The items of the added events, `done` those of the done events, by output_index.
        final: The response of the terminal event, None without one.
        accumulated: The text that the SDK's accumulator gathered for each item: the last snapshot of its last part, by output_index.
    """

    error: Exception | None = None
    types: list[str] = field(default_factory=list)
    deltas: dict[Any, str] = field(default_factory=lambda: defaultdict(str))
    summaries: dict[Any, str] = field(default_factory=lambda: defaultdict(str))
    announced: dict[Any, dict[str, Any]] = field(default_factory=dict)
    done: dict[Any, dict[str, Any]] = field(default_factory=dict)
    final: dict[str, Any] | None = None
    accumulated: dict[Any, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text deltas of all messages."""
        return "".join(self.deltas[index] for index, item in sorted(self.announced.items()) if item["type"] == "message")


def see(events: Iterable[Mapping[str, Any]], **options: Any) -> Seen:
    """Run a stream through the SDK's accumulator.

    Args:
        events: The payloads, in order.
        options: More arguments for `responses.stream()`: tools, text_format.
    """
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    headers = {"content-type": "text/event-stream"}
    transport = HTTPX.MockTransport(lambda request: HTTPX.Response(200, headers=headers, content=body))
    seen = Seen()
    http_client = openai.DefaultHttpxClient(transport=transport)
    with openai.OpenAI(api_key="none", base_url="http://test", http_client=http_client, max_retries=0) as client:
        try:
            with client.responses.stream(model="gpt-oss-120b", input="", **options) as stream:
                for event in stream:
                    _note(seen, event)
        except Exception as error:  # the SDK's accumulator raises RuntimeError, AssertionError, IndexError, TypeError, AttributeError
            seen.error = error
    return seen


def accepts(events: Iterable[Mapping[str, Any]]) -> bool:
    """Whether iteration raises nothing and comes to a terminal event."""
    seen = see(events)
    return seen.error is None and seen.final is not None


def _note(seen: Seen, event: Any) -> None:
    """Never raises: what the SDK hands out for a malformed event may lack any field."""
    name, index, delta, item = str(event.type), *(getattr(event, field, None) for field in ("output_index", "delta", "item"))
    seen.types.append(name)
    if name.endswith(".delta") and isinstance(delta, str):
        (seen.summaries if name == "response.reasoning_summary_text.delta" else seen.deltas)[index] += delta
        if hasattr(event, "snapshot"):
            seen.accumulated[index] = event.snapshot
    elif name in ("response.output_item.added", "response.output_item.done") and isinstance(item, openai.BaseModel):
        (seen.announced if name.endswith("added") else seen.done)[index] = item.to_dict(warnings=False)
    elif name in ("response.completed", "response.incomplete", "response.failed"):
        seen.final = event.response.to_dict(warnings=False)
