"""``harmony-client demo``: the stock SDK and :class:`HarmonyOpenAI` on the same recorded streams, side by side.

A replay server on a real socket plays streams that TensorRT-LLM's own code produced. Each is asked
for by both clients at once, with ``create(stream=True)``: that shows all that arrives. Then each
client's ``responses.stream()`` reads it, whose accumulator is the SDK's own judge of a stream.

Whether a client's text is whole is decided against what the model wrote, which stands in the
recording as text. :func:`model_items` splits it with one regular expression, and not with this
package's token parser, or the product would be judged by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import re
import sys
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import openai

    from harmony_client._demo_screen import Screen
    from harmony_client.report import Report

__all__ = ["MissingExtraError", "model_items", "run"]

INTRODUCTION: Final = (
    "Servers of gpt-oss such as TensorRT-LLM lose text, tool calls, indexes and ids while they stream over the OpenAI Responses API, so "
    "the OpenAI SDK shows half an answer, or raises. HarmonyOpenAI is the same SDK client, but it also reads the raw tokens that the "
    "server sends along, rebuilds the complete stream from them in the SDK's own events, and checks it against the server's final response."
)
SETTING: Final = (
    "A server inside this command now replays streams that TensorRT-LLM's own code produced (near release 1.2), with 1 and with 20 tokens "
    "per engine step (batch). Left: what the stock SDK shows. Right: what HarmonyOpenAI shows. Both get the server's own events; the "
    "right one asks for the tokens as well."
)
CLOSING: Final = (
    "In your code, write HarmonyOpenAI(…) for OpenAI(…), or wrap(client) around the client you have. Where a server does not send its "
    "tokens, HarmonyOpenAI repairs what the events and the final response allow, and says so. To see what your own server sends: "
    "curl -N … | harmony-client check -"
)

#: What is played, in this order, and what to call it.
SCENARIOS: Final = {
    "reasoning_final": "reasoning and an answer",
    "tool_commentary": "a tool call",
    "multibyte": "characters of several bytes",
    "duplicate_end": "a broken ending (the server fails on a stray token)",
}
VERSION: Final = "v12"
TOKENS_PER_BATCH: Final = (1, 20)
STOCK: Final = "openai"
OURS: Final = "harmony_client"

_EXTRA: Final = ("rich", "uvicorn")
_MESSAGE: Final = re.compile(
    r"<\|channel\|>(\w+)(?: to=functions\.(\w+) <\|constrain\|>json)?<\|message\|>(.*?)<\|(?:end|call|return)\|>", re.DOTALL
)
_KINDS: Final = {"analysis": "reasoning", "final": "message", "commentary": "function_call"}
_DELTAS: Final = {
    "response.reasoning_text.delta": "reasoning",
    "response.output_text.delta": "message",
    "response.function_call_arguments.delta": "function_call",
}
_TERMINAL: Final = ("response.completed", "response.incomplete", "response.failed")


class MissingExtraError(ImportError):
    """A package of the extra ``demo`` is not installed."""


class Item(NamedTuple):
    """An output item: its type, its text or arguments, the name of the tool."""

    kind: str
    text: str
    name: str = ""


class Line(NamedTuple):
    """What one or more events look like on the screen."""

    role: str  #: event, text, good, bad
    parts: list[str]


@dataclass
class Row:
    """One recording as one client shows it.

    Attributes:
        recording: Its name.
        tokens_per_batch: Tokens per engine response.
        client: Name of the package whose client it is.
        written: What the model wrote.
        lines: What arrived, for the screen.
        announced: Output index and type of the items that were announced.
        closed: Output indexes of the items that were done under the index and type they were announced with.
        error: What iterating raised.
        helper_error: What ``responses.stream()`` raised on the same stream.
        ended: Whether a ``response.completed`` or ``.incomplete`` came.
        report: The stream's report, of HarmonyOpenAI.
    """

    recording: str
    tokens_per_batch: int
    client: str
    written: list[Item]
    lines: list[Line] = field(default_factory=list)
    announced: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    texts: dict[tuple[int, str], list[str]] = field(default_factory=dict)
    error: str | None = None
    helper_error: str | None = None
    ended: bool = False
    report: Report | None = None

    def receive(self, event: Any) -> None:
        """Take an event of the SDK."""
        if kind := _DELTAS.get(event.type):
            self._delta(event.output_index, kind, event.delta)
        elif event.type == "response.output_item.added":
            self.announced.setdefault(event.output_index, event.item.type)
            self.names[event.output_index] = getattr(event.item, "name", "")
            self._show("event", f"item {event.output_index} added: {_describe(event.item)}")
        elif event.type == "response.output_item.done":
            if self.announced.get(event.output_index) == event.item.type:
                self.closed.add(event.output_index)
            self._show("event", f"item {event.output_index} done")
        elif event.type in _TERMINAL:
            self.ended = event.type != "response.failed"
            self._show("event", f"{event.type} with {len(event.response.output)} items")

    def _delta(self, index: int, kind: str, delta: str) -> None:
        parts = self.texts.setdefault((index, kind), [])
        if not parts or not self.lines or self.lines[-1].parts is not parts:
            self.lines.append(Line("text", parts))
        parts.append(delta)

    def _show(self, role: str, text: str) -> None:
        self.lines.append(Line(role, [text]))

    def receive_end(self, error: Exception | None, report: Report | None) -> None:
        """Take the end of the stream."""
        self.report = report
        if error is not None:
            self.error = _sentence(error)
            self._show("bad", f"raises {self.error}")

    def receive_judgement(self, error: Exception | None) -> None:
        """Take what ``responses.stream()`` made of the same stream."""
        self.helper_error = None if error is None else _sentence(error)
        if self.helper_error != self.error:
            said = f"responses.stream() raises {self.helper_error}" if self.helper_error else "responses.stream() accepts it"
            self._show("bad" if self.helper_error else "event", said)
        if self.report is not None:
            self._show("good" if self.whole else "bad", f"verdict: {self.report.verdict}")

    @property
    def items(self) -> list[Item]:
        """The items whose text was streamed."""
        return [Item(kind, "".join(parts), self.names.get(index) or "") for (index, kind), parts in self.texts.items()]

    @property
    def text_whole(self) -> bool:
        """Whether every text and tool call that the model wrote was streamed, in order, and nothing else."""
        return self.items == self.written

    @property
    def calls(self) -> int:
        """Number of tool calls that were streamed whole."""
        return sum(item.kind == "function_call" and item in self.items for item in self.written)

    @property
    def whole(self) -> bool:
        """Whether nothing at all is missing."""
        every = set(range(len(self.written)))
        return self.text_whole and set(self.announced) == self.closed == every and self.ended and not (self.error or self.helper_error)

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON data."""
        report = self.report
        return {
            "recording": self.recording,
            "tokens_per_batch": self.tokens_per_batch,
            "client": self.client,
            "whole": self.whole,
            "text_whole": self.text_whole,
            "items_written": [item._asdict() for item in self.written],
            "items_streamed": [item._asdict() for item in self.items],
            "items_added": len(self.announced),
            "items_done": len(self.closed),
            "tool_calls_written": sum(item.kind == "function_call" for item in self.written),
            "tool_calls_streamed": self.calls,
            "raised": self.error,
            "responses_stream_raised": self.helper_error,
            "verdict": report and report.verdict,
            "basis": report and report.basis,
            "repairs": report and [repair.code for repair in report.repairs],
        }


def model_items(harmony_text: str) -> list[Item]:
    """What a well-formed stream of a model's output has to show, by a rule of one line: one item per message."""
    return [Item(_KINDS[channel], text, name) for channel, name, text in _MESSAGE.findall(harmony_text)]


def run(options: argparse.Namespace) -> int:
    """Run the demo.

    Args:
        options: ``json``: rows as JSON lines on stdout, talk on stderr. ``pace``: seconds before each batch.

    Returns:
        0 if every row of HarmonyOpenAI is whole, else 1.

    Raises:
        MissingExtraError: rich or uvicorn is not installed.
    """
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"the demo needs {' and '.join(missing)}: pip install 'harmony-stream-client[demo]'")
    from harmony_client._demo_screen import Screen
    from server_ext.replay import ReplayApp, ReplayServer

    screen = Screen(sys.stderr if options.json else sys.stdout, live=not options.json)
    screen.say(INTRODUCTION)
    screen.say(SETTING)
    with ReplayServer(ReplayApp(pace=options.pace)) as server:
        pairs = asyncio.run(_play_all(server.base_url, screen))
    rows = [row for _, pair in pairs for row in pair]
    if options.json:
        for row in rows:
            print(json.dumps(row.as_dict(), ensure_ascii=False))
    else:
        screen.table(pairs)
    ours, stock = ([row.whole for row in rows if (row.client == OURS) is own] for own in (True, False))
    screen.say(f"{sum(ours)} of {len(ours)} streams are whole with HarmonyOpenAI, {sum(stock)} with the stock SDK.")
    screen.say(CLOSING)
    return 0 if all(ours) else 1


async def _play_all(base_url: str, screen: Screen) -> list[tuple[str, list[Row]]]:
    import openai

    from harmony_client.client import AsyncHarmonyOpenAI

    pairs = []
    texts = _model_outputs()
    sides: list[tuple[str, openai.AsyncOpenAI]] = [
        (STOCK, openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)),
        (OURS, AsyncHarmonyOpenAI(base_url=base_url, api_key="none", max_retries=0)),
    ]
    for scenario, title in SCENARIOS.items():
        for count in TOKENS_PER_BATCH:
            name = f"{scenario}@{VERSION}:{count}"
            pair = [Row(name, count, package, model_items(texts[name])) for package, _ in sides]
            with screen.side_by_side(title, pair):
                await asyncio.gather(*(_read(client, row) for row, (_, client) in zip(pair, sides, strict=True)))
                await asyncio.gather(*(_judge(client, row) for row, (_, client) in zip(pair, sides, strict=True)))
            pairs.append((title, pair))
    for _, client in sides:
        await client.close()
    return pairs


async def _read(client: openai.AsyncOpenAI, row: Row) -> None:
    from harmony_client.client import report_of

    error, report = None, None
    try:
        stream = await client.responses.create(model=row.recording, input="", stream=True)
        report = report_of(stream) if row.client == OURS else None
        async for event in stream:
            row.receive(event)
    except Exception as raised:  # whatever a client raises is what the demo is there to show
        error = raised
    row.receive_end(error, report)


async def _judge(client: openai.AsyncOpenAI, row: Row) -> None:
    error = None
    try:
        async with client.responses.stream(model=row.recording, input="", extra_headers={"x-replay-pace": "0"}) as stream:
            async for _ in stream:
                pass
    except Exception as raised:  # as above
        error = raised
    row.receive_judgement(error)


def _model_outputs() -> dict[str, str]:
    """The model's output of each shipped recording, by its name, as text with the special tokens spelled out."""
    lines = (resources.files("server_ext") / "recordings" / "trtllm.jsonl").read_text("utf-8").splitlines()
    return {f"{fields['scenario']}@{fields['version']}:{fields['pattern']}": fields["harmony_text"] for fields in map(json.loads, lines)}


def _describe(item: Any) -> str:
    return f"{item.type} {item.name}" if item.type == "function_call" else str(item.type)


def _sentence(error: Exception) -> str:
    message = str(error).strip()
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
