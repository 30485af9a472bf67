"""The grammar of a Responses stream as data: what `harmony_client.checker` walks.

A stream is read on three levels, each a table of `(state, kind of event)`, total over both:

* `RESPONSE`: created first, one terminal event, nothing after it.
* `ITEM`: announced once, done once, nothing after that.
* `PART` and `ARGUMENTS`: opened, deltas, the done event with the whole text, closed.

`EVENTS` says of each event type which kind it is and what it speaks of, `CODES` what each violation means. The rules are those of
the OpenAI SDK's accumulator (openai 3.57, `lib/streaming/responses`), of Open Responses (openresponses.org), and those that agent
frameworks rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from harmony_client.wire import EVENT_TYPE

__all__ = [
    "ARGUMENTS",
    "CODES",
    "EVENTS",
    "INDEX_FIELD",
    "ITEM",
    "PART",
    "PART_LISTS",
    "PART_TEXT",
    "PART_TYPES",
    "REQUIRED",
    "RESPONSE",
    "TERMINAL_STATUS",
    "TYPELESS_ERROR",
    "UNFINISHED",
    "UNFINISHED_ARGUMENTS",
    "VENDOR",
    "Kind",
    "Phase",
    "Rule",
    "State",
    "Step",
    "Violation",
]


class Violation(NamedTuple):
    """One breach of the grammar.

    Attributes:
        code: Which rule, a key of `CODES`; stable between releases.
        position: Number of the event in the stream, from 0; the number of events where the end of the stream shows the breach.
        sequence_number: That of the event, if it has one.
        output_index: Index of the item concerned, if there is one.
        message: A sentence: what, where, what was expected. It holds no text of the model.
    """

    code: str
    position: int
    sequence_number: int | None
    output_index: int | None
    message: str


CODES: Final[Mapping[str, str]] = {
    # the event
    "event-malformed": "An event is not a JSON object with a string `type`.",
    "error-key": "A top-level `error` key outside an `error` event makes the SDK raise instead of handing out the event.",
    "field-missing": "A field that the SDK's types require is missing or null.",
    "token-batch-leaked": "A token batch frame must never reach an application.",
    "sequence-missing": "Every event has a `sequence_number`.",
    "sequence-invalid": "`sequence_number` is an integer, 0 or more.",
    "sequence-not-increasing": "`sequence_number` rises from event to event.",
    # the response
    "created-missing": "A stream begins with `response.created`; this one has none.",
    "created-late": "`response.created` comes before every other event, unknown ones included.",
    "created-repeated": "`response.created` comes once.",
    "response-missing": "A lifecycle event carries the `response` object.",
    "opening-output-wrong": "A response opens with `output: []` (or null after `response.created`): its items have their own events.",
    "response-id-missing": "A response has a non-empty id.",
    "response-id-changed": "All lifecycle events of a stream carry one response id.",
    "terminal-missing": "A stream ends with `response.completed`, `.incomplete` or `.failed`, or with an `error` event.",
    "terminal-repeated": "A stream has one terminal event.",
    "terminal-type-mismatch": "The type of the terminal event agrees with the response's status.",
    "event-after-terminal": "Nothing follows the terminal event.",
    "event-after-error": "After an `error` event comes `response.failed` or the end.",
    # output items
    "item-malformed": "`item` is a JSON object with a string `type`.",
    "item-not-announced": "The first event of an item is `response.output_item.added`.",
    "item-added-repeated": "An item is announced once.",
    "item-done-missing": "Every announced item gets its `response.output_item.done` before the terminal event.",
    "item-done-repeated": "An item has one `response.output_item.done`.",
    "event-after-item-done": "Nothing about an item follows its `response.output_item.done`.",
    "event-wrong-kind": "An event speaks of an item of the kind it is made for (a text delta of a message).",
    "output-index-invalid": "`output_index` is an integer, 0 or more.",
    "output-index-gap": "Items are announced under the indexes 0, 1, 2 and so on.",
    "output-index-repeated": "Two items never share an `output_index`.",
    "output-index-wrong": "All events of an item carry the index it was announced under.",
    "item-id-missing": "Items, and the events about them, carry a non-empty item id.",
    "item-id-repeated": "Item ids are unique in a response.",
    "item-id-changed": "An item has one id: in added, deltas, done and the terminal response.",
    "item-kind-changed": "An item has one type: in added, done and the terminal response.",
    "item-name-changed": "A function call has one name: in added, done and the terminal response.",
    "call-id-missing": "A function call is announced with a non-empty call_id.",
    "call-id-repeated": "Two calls of one kind never share a call_id.",
    "call-id-changed": "A call has one call_id: in added, done and the terminal response.",
    "added-content-not-empty": "A message is announced with `content: []`, a reasoning item without parts.",
    "added-arguments-not-empty": 'A function call is announced with `arguments: ""`.',
    "item-status-invalid": "An item is announced as in_progress, done as completed or incomplete; a message has a status.",
    "item-done-mismatch": "The done item lists the parts that were streamed, with the text that was streamed.",
    # content parts, summary parts, arguments
    "part-not-announced": "The first event of a part is its added event.",
    "part-added-repeated": "A part is opened once.",
    "part-added-not-empty": "A part opens without text; all of it comes in deltas.",
    "part-done-missing": "Every opened part is closed before its item is.",
    "part-done-repeated": "A part is closed once.",
    "part-done-mismatch": "A part closes with the text that was streamed.",
    "part-kind-wrong": "A part has one type, one that fits its item (reasoning_text in reasoning).",
    "content-index-invalid": "`content_index` (`summary_index` for a summary) is an integer, 0 or more.",
    "content-index-gap": "The parts of an item are opened under the indexes 0, 1, 2 and so on.",
    "delta-not-string": "`delta` is a string. It may be empty.",
    "delta-after-done": "No delta follows the done event of its text, and no annotation the end of its part.",
    "text-done-missing": "Every part has a done event with its whole text.",
    "text-done-repeated": "A text has one done event.",
    "text-done-mismatch": "The deltas of a text add up to the text of its done event.",
    "arguments-done-missing": "Every function call has a `function_call_arguments.done`.",
    "arguments-done-repeated": "Arguments have one done event.",
    "arguments-done-mismatch": "The deltas of the arguments add up to those of their done event.",
    "arguments-name-wrong": "`function_call_arguments.done` carries the `name` of its call.",
    # the terminal response
    "terminal-output-missing": "`output` of the terminal response is a list of items.",
    "terminal-item-missing": "The terminal response lists every announced item.",
    "terminal-item-extra": "The terminal response lists no item that was not announced.",
    "terminal-order": "The terminal response lists the items in the order of announcement.",
    "terminal-text-mismatch": "The terminal response lists the parts and the text that were streamed.",
    "terminal-status-mismatch": "An item ends in one status. (The last one of an incomplete response may be done as completed.)",
    "incomplete-not-last": "Only the last items of a response can be incomplete.",
    "incomplete-in-completed": "An incomplete item makes the response incomplete.",
}


class Kind(Enum):
    """What an event does to the grammar."""

    CREATED = "created"
    LIFECYCLE = "in_progress, queued"
    TERMINAL = "completed, incomplete"
    FAILED = "failed"
    ERROR = "error"
    ITEM_ADDED = "item added"
    ITEM_DONE = "item done"
    PROGRESS = "progress of an item without a grammar"
    PART_ADDED = "part added"
    PART_DONE = "part done"
    DELTA = "delta"
    TEXT_DONE = "text done"
    ARGUMENTS_DONE = "arguments done"
    NOTE = "annotation"
    VENDOR = "unknown"
    TOKENS = "token batch"


class Rule(NamedTuple):
    """What an event type speaks of. `owner`: kind of item; `family`: list of parts; `field`: where its text is."""

    kind: Kind
    owner: str | None = None
    family: str = ""
    part: str | None = None
    field: str = ""
    has_item_id: bool = True


def _text(name: str, owner: str, family: str, part: str, field: str) -> dict[str, Rule]:
    return {
        f"response.{name}.delta": Rule(Kind.DELTA, owner, family, part, "delta"),
        f"response.{name}.done": Rule(Kind.TEXT_DONE, owner, family, part, field),
    }


def _part(name: str, owner: str | None, family: str) -> dict[str, Rule]:
    return {
        f"response.{name}.added": Rule(Kind.PART_ADDED, owner, family),
        f"response.{name}.done": Rule(Kind.PART_DONE, owner, family),
    }


_PROGRESS: Final = {  # kind of item: what follows it in the names of its own events
    "web_search_call": ".in_progress .searching .completed",
    "file_search_call": ".in_progress .searching .completed",
    "code_interpreter_call": ".in_progress .interpreting .completed _code.delta _code.done",
    "image_generation_call": ".in_progress .generating .partial_image .completed",
    "mcp_call": ".in_progress .completed .failed _arguments.delta _arguments.done",
    "mcp_list_tools": ".in_progress .completed .failed",
    "custom_tool_call": "_input.delta _input.done",
    "compaction": ".compacting",
    "shell_call": "_command.added _command.delta _command.done",
    "shell_call_output": "_content.delta _content.done",
}

EVENTS: Final[Mapping[str, Rule]] = {
    "response.created": Rule(Kind.CREATED),
    "response.in_progress": Rule(Kind.LIFECYCLE),
    "response.queued": Rule(Kind.LIFECYCLE),
    "response.completed": Rule(Kind.TERMINAL),
    "response.incomplete": Rule(Kind.TERMINAL),
    "response.failed": Rule(Kind.FAILED),
    "error": Rule(Kind.ERROR),
    EVENT_TYPE: Rule(Kind.TOKENS),
    "response.output_item.added": Rule(Kind.ITEM_ADDED),
    "response.output_item.done": Rule(Kind.ITEM_DONE),
    "response.output_text.annotation.added": Rule(Kind.NOTE, "message", "content", "output_text"),
    **_part("content_part", None, "content"),
    **_part("reasoning_summary_part", "reasoning", "summary"),
    **_text("output_text", "message", "content", "output_text", "text"),
    **_text("refusal", "message", "content", "refusal", "refusal"),
    **_text("reasoning_text", "reasoning", "content", "reasoning_text", "text"),
    **_text("reasoning_summary_text", "reasoning", "summary", "summary_text", "text"),
    "response.function_call_arguments.delta": Rule(Kind.DELTA, "function_call", "arguments", None, "delta"),
    "response.function_call_arguments.done": Rule(Kind.ARGUMENTS_DONE, "function_call", "arguments", None, "arguments"),
    **{
        f"response.{owner}{suffix}": Rule(Kind.PROGRESS, owner, has_item_id=owner != "shell_call")
        for owner, suffixes in _PROGRESS.items()
        for suffix in suffixes.split()
    },
}
VENDOR: Final = Rule(Kind.VENDOR)
TYPELESS_ERROR: Final = Rule(Kind.ERROR)

PART_TYPES: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("message", "content"): frozenset({"output_text", "refusal"}),
    ("reasoning", "content"): frozenset({"reasoning_text"}),
    ("reasoning", "summary"): frozenset({"summary_text"}),
}
"""Part types of (kind of item, family). A kind that is neither here nor a function_call is opaque."""
PART_LISTS: Final[Mapping[str, tuple[str, ...]]] = {"message": ("content",), "reasoning": ("content", "summary")}
PART_TEXT: Final[Mapping[str, str]] = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_text": "text",
    "summary_text": "text",
}
INDEX_FIELD: Final[Mapping[str, str]] = {"content": "content_index", "summary": "summary_index"}
TERMINAL_STATUS: Final[Mapping[str, str]] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "response": ("created_at", "model", "object", "parallel_tool_calls", "tool_choice", "tools"),
    "response.output_text.delta": ("logprobs",),
    "response.output_text.done": ("logprobs",),
    "message": ("role",),
    "reasoning": ("summary",),
    "function_call": ("name",),
    "output_text": ("annotations",),
}
"""What the types of openai 2.45 to 3.57 require and no other rule covers, by event, kind of item and type of part."""


class Phase(Enum):
    """Where a response stands."""

    BEFORE = "nothing has come"
    EARLY = "events have come, but not created"
    OPEN = "created has come"
    ERRORED = "an error event has come"
    ENDED = "the terminal event has come"
    AFTER = "something came after the end and was reported"


class Step(NamedTuple):
    """One cell of `RESPONSE`: the breach, whether the event is looked at further, and the next phase."""

    code: str | None
    read: bool
    to: Phase


def _row(phase: Phase, default: Step, **cells: Step) -> dict[tuple[Phase, Kind], Step]:
    tokens = Step("token-batch-leaked", False, phase)
    row = dict.fromkeys(Kind, default) | {Kind.VENDOR: Step(None, False, phase), Kind.TOKENS: tokens}
    row |= {Kind[name]: step for name, step in cells.items()}
    return {(phase, kind): step for kind, step in row.items()}


def _before_created(phase: Phase, created: str | None) -> dict[tuple[Phase, Kind], Step]:
    """The SDK: "Expected to have received `response.created`". Whatever else comes is read as if it had."""
    return _row(
        phase,
        Step(None, True, Phase.EARLY),
        CREATED=Step(created, True, Phase.OPEN),
        VENDOR=Step(None, False, Phase.EARLY),
        TERMINAL=Step("created-missing", True, Phase.ENDED),
        FAILED=Step("created-missing", True, Phase.ENDED),
        ERROR=Step("created-missing", False, Phase.ERRORED),
    )


RESPONSE: Final[Mapping[tuple[Phase, Kind], Step]] = {
    **_before_created(Phase.BEFORE, None),
    **_before_created(Phase.EARLY, "created-late"),
    **_row(
        Phase.OPEN,
        Step(None, True, Phase.OPEN),
        CREATED=Step("created-repeated", True, Phase.OPEN),
        TERMINAL=Step(None, True, Phase.ENDED),
        FAILED=Step(None, True, Phase.ENDED),
        ERROR=Step(None, False, Phase.ERRORED),
    ),
    # Open Responses: an error in the stream is followed by response.failed. OpenAI ends there.
    **_row(Phase.ERRORED, Step("event-after-error", False, Phase.AFTER), FAILED=Step(None, True, Phase.ENDED)),
    **_row(
        Phase.ENDED,
        Step("event-after-terminal", False, Phase.AFTER),
        TERMINAL=Step("terminal-repeated", False, Phase.AFTER),
        FAILED=Step("terminal-repeated", False, Phase.AFTER),
    ),
    **_row(Phase.AFTER, Step(None, False, Phase.AFTER)),
}
"""(phase, kind of event) of a response: the breach, whether to read on, the next phase."""


class State(Enum):
    """Where an item, a part or the arguments of a call stand."""

    ABSENT = "not announced"
    PRESUMED = "not announced, but spoken of"
    OPEN = "announced"
    SETTLED = "its text is done"
    CLOSED = "done"
    UNSETTLED = "done before its text was"


_OF_PART: Final = (Kind.PART_ADDED, Kind.DELTA, Kind.TEXT_DONE, Kind.PART_DONE, Kind.NOTE)
_OF_ITEM: Final = (Kind.ITEM_ADDED, Kind.ITEM_DONE, Kind.PROGRESS, Kind.ARGUMENTS_DONE, *_OF_PART)

ITEM: Final[Mapping[tuple[State, Kind], str | None]] = {
    **{(State.ABSENT, kind): "item-not-announced" for kind in _OF_ITEM},
    **{(State.PRESUMED, kind): None for kind in _OF_ITEM},
    **{(State.OPEN, kind): None for kind in _OF_ITEM},
    **{(State.CLOSED, kind): "event-after-item-done" for kind in _OF_ITEM},
    (State.ABSENT, Kind.ITEM_ADDED): None,
    (State.OPEN, Kind.ITEM_ADDED): "item-added-repeated",
    (State.CLOSED, Kind.ITEM_ADDED): "item-added-repeated",
    (State.CLOSED, Kind.ITEM_DONE): "item-done-repeated",
}
"""(state, kind of event) of an item: the breach."""


_S = State
PART: Final[Mapping[tuple[State, Kind], tuple[str | None, State]]] = {
    **{(_S.ABSENT, kind): ("part-not-announced", _S.ABSENT) for kind in _OF_PART},
    (_S.ABSENT, Kind.PART_ADDED): (None, _S.OPEN),
    **{(state, Kind.PART_ADDED): ("part-added-repeated", state) for state in (_S.OPEN, _S.SETTLED, _S.CLOSED, _S.UNSETTLED)},
    (_S.OPEN, Kind.DELTA): (None, _S.OPEN),
    (_S.OPEN, Kind.NOTE): (None, _S.OPEN),
    (_S.OPEN, Kind.TEXT_DONE): (None, _S.SETTLED),
    (_S.OPEN, Kind.PART_DONE): ("text-done-missing", _S.UNSETTLED),
    (_S.SETTLED, Kind.DELTA): ("delta-after-done", _S.SETTLED),
    (_S.SETTLED, Kind.NOTE): (None, _S.SETTLED),
    (_S.SETTLED, Kind.TEXT_DONE): ("text-done-repeated", _S.SETTLED),
    (_S.SETTLED, Kind.PART_DONE): (None, _S.CLOSED),
    **{(state, Kind.DELTA): ("delta-after-done", state) for state in (_S.CLOSED, _S.UNSETTLED)},
    **{(state, Kind.NOTE): ("delta-after-done", state) for state in (_S.CLOSED, _S.UNSETTLED)},
    **{(state, Kind.PART_DONE): ("part-done-repeated", state) for state in (_S.CLOSED, _S.UNSETTLED)},
    (_S.CLOSED, Kind.TEXT_DONE): ("text-done-repeated", _S.CLOSED),
    (_S.UNSETTLED, Kind.TEXT_DONE): (None, _S.CLOSED),  # its absence was reported when the part was closed
}
"""(state, kind of event) of a content or summary part: the breach and the next state."""

ARGUMENTS: Final[Mapping[tuple[State, Kind], tuple[str | None, State]]] = {
    (_S.OPEN, Kind.DELTA): (None, _S.OPEN),
    (_S.OPEN, Kind.ARGUMENTS_DONE): (None, _S.SETTLED),
    (_S.SETTLED, Kind.DELTA): ("delta-after-done", _S.SETTLED),
    (_S.SETTLED, Kind.ARGUMENTS_DONE): ("arguments-done-repeated", _S.SETTLED),
}
"""The same for the arguments of a function call, which its item opens and closes."""

UNFINISHED: Final[Mapping[State, tuple[str, ...]]] = {
    _S.ABSENT: (),
    _S.OPEN: ("text-done-missing", "part-done-missing"),
    _S.SETTLED: ("part-done-missing",),
    _S.CLOSED: (),
    _S.UNSETTLED: (),
}
"""State of a part when its item is done: the breaches."""
UNFINISHED_ARGUMENTS: Final[Mapping[State, tuple[str, ...]]] = {_S.OPEN: ("arguments-done-missing",), _S.SETTLED: ()}
