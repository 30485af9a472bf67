"""What servers do wrong, by name.

Each fault edits a healthy draft in the way that some server was seen to do it (TensorRT-LLM up to 1.3, vLLM 0.24 and 0.33), or is
reported to. Several are applied in the order of the table.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from harmony_client.testing import _edits as edit
from harmony_client.testing._draft import Draft
from harmony_client.vocabulary import CALL, STOP_TOKENS

__all__ = ["FAULTS", "PRESETS", "Fault", "apply", "names_of"]


class Fault(NamedTuple):
    """One fault.

    Attributes:
        what: What the server does.
        codes: The violations that ``harmony_client.check`` finds in a stream without token batches that has this fault alone.
        apply: Edits a draft.
        needs: What the reply must have for the fault to show.
    """

    what: str
    codes: tuple[str, ...]
    apply: edit.Edit
    needs: str = "an output item"


_TEXT: Final = "reasoning or an answer"
_ANSWER: Final = "an answer"
_REASONING: Final = "reasoning"
_CALL: Final = "a tool call"
_CUT: Final = 'finish_reason="length"'
_TWO: Final = "two items"

FAULTS: Final[Mapping[str, Fault]] = {
    # which events are sent at all
    "tool-in-terminal-only": Fault(
        "Tool calls are not streamed; the terminal response lists them.", ("terminal-item-extra",), edit.hide_tools, _CALL
    ),
    "lose-deltas": Fault(
        "Of each batch only the last token is looked at: deltas, announcements, whole items are lost. Which, depends on the batches.",
        ("text-done-mismatch",),
        edit.lose_deltas,
        "two or more tokens_per_batch",
    ),
    "trimmed-stop": Fault(
        "The engine trims the last stop token, and the last item is left open.",
        ("item-done-missing",),
        edit.trim(STOP_TOKENS),
        "a last message that is not cut",
    ),
    "trimmed-call": Fault(
        "The engine trims the stop token of a tool call, not that of an answer.",
        ("item-done-missing",),
        edit.trim(frozenset({CALL})),
        "a tool call at its end",
    ),
    "open-when-cut": Fault(
        "The item that the token limit cuts is left open.", ("item-done-missing",), edit.leave_cut_open, f"{_CUT} and a text to cut"
    ),
    "broken-ending": Fault(
        "The terminal response cannot be made: the last batch's events are lost, and the connection breaks.",
        ("item-done-missing", "terminal-missing"),
        edit.cut_off,
        "a terminal event",
    ),
    "error-ending": Fault(
        "The terminal response cannot be made: the last batch's events are lost; `error` and `response.failed` follow.",
        ("item-done-missing",),
        edit.fail,
        "a terminal event",
    ),
    "no-terminal": Fault("The stream ends without a terminal event.", ("terminal-missing",), edit.drop("terminal"), "a terminal event"),
    "lose-token-batch": Fault("A token batch in the middle is lost.", (), edit.lose_token_batch, "two or more token batches"),
    "no-created": Fault("The stream begins with its items.", ("created-missing",), edit.skip_opening, "an opening"),
    "null-event": Fault("The data of an event is `null`.", ("event-malformed",), edit.null_event, "an opening"),
    "unannounced-item": Fault("The last item is not announced.", ("item-not-announced",), edit.drop("added")),
    "unannounced-part": Fault("The last part is not announced.", ("part-not-announced",), edit.drop("part-added"), _TEXT),
    "announced-twice": Fault("The last item is announced twice.", ("item-added-repeated",), edit.repeat("added")),
    "doubled-delta": Fault("A delta is sent twice.", ("text-done-mismatch",), edit.repeat("delta", "message"), _ANSWER),
    "late-delta": Fault(
        "The last delta is sent again when its item is done.", ("event-after-item-done",), edit.repeat("delta", behind="done"), "some text"
    ),
    "null-delta": Fault("A delta is null.", ("delta-not-string",), edit.put("delta", "message", delta=None), _ANSWER),
    "short-arguments": Fault(
        "A delta of a tool call's arguments is lost.", ("arguments-done-mismatch",), edit.drop("delta", "function_call"), _CALL
    ),
    "text-left-open": Fault("A text has no done event.", ("text-done-missing",), edit.drop("text-done", "message"), _ANSWER),
    "arguments-left-open": Fault(
        "A tool call's arguments have no done event.", ("arguments-done-missing",), edit.drop("text-done", "function_call"), _CALL
    ),
    "reasoning-part-left-open": Fault(
        "The part of a reasoning item is never closed.",
        ("part-done-missing",),
        edit.drop("part-done", "reasoning", every=True),
        _REASONING,
    ),
    "item-left-open": Fault("The last item is never closed.", ("item-done-missing",), edit.drop("done")),
    "done-twice": Fault("The last item is closed twice.", ("item-done-repeated",), edit.repeat("done")),
    "second-response": Fault(
        "Another response begins when this one has ended.", ("event-after-terminal",), edit.second_response, "an opening"
    ),
    # indexes
    "done-index-plus-one": Fault(
        "The events that close an item have the next item's `output_index`.", ("output-index-wrong",), edit.raise_done_index
    ),
    "skipped-index": Fault("An `output_index` is left out before the last item.", ("output-index-gap",), edit.move_last_index(1), _TWO),
    "shared-index": Fault("The last two items share an `output_index`.", ("output-index-repeated",), edit.move_last_index(-1), _TWO),
    "no-index": Fault("A delta has no `output_index`.", ("output-index-invalid",), edit.take("output_index", "delta"), "some text"),
    "no-content-index": Fault(
        "A delta has no `content_index`.", ("content-index-invalid",), edit.take("content_index", "delta", "message"), _ANSWER
    ),
    # ids and kinds
    "empty-ids": Fault("Every item id is empty, but in the terminal response.", ("item-id-missing",), edit.empty_ids),
    "fresh-terminal-ids": Fault(
        "The terminal response lists the items under other ids.", ("item-id-changed",), edit.listing(edit.fresh_ids)
    ),
    "changed-call-id": Fault(
        "A tool call is done under another `call_id` than it was announced with.",
        ("call-id-changed",),
        edit.change("done", "function_call", how=lambda event: event["item"].update(call_id="call_0")),
        _CALL,
    ),
    "changed-response-id": Fault(
        "The terminal response has another id.",
        ("response-id-changed",),
        edit.change("terminal", how=lambda event: event["response"].update(id="resp_0")),
        "a terminal event",
    ),
    "changed-kind": Fault(
        "The terminal response lists reasoning as another kind of item.",
        ("item-kind-changed",),
        edit.listing(edit.rename_reasoning),
        "reasoning at its beginning",
    ),
    "wrong-part-type": Fault(
        "The part of a reasoning item is announced as output_text.",
        ("part-kind-wrong",),
        edit.change("part-added", "reasoning", how=lambda event: event["part"].update(type="output_text", annotations=[])),
        _REASONING,
    ),
    "reasoning-as-answer": Fault(
        "A delta of reasoning is sent as one of an answer.",
        ("event-wrong-kind", "text-done-mismatch"),
        edit.put("delta", "reasoning", type="response.output_text.delta", logprobs=[]),
        _REASONING,
    ),
    # texts and fields
    "changed-part-text": Fault(
        "A part closes with more text than was streamed.",
        ("part-done-mismatch",),
        edit.change("part-done", "message", how=edit.lengthen_part),
        _ANSWER,
    ),
    "changed-item-text": Fault(
        "An item closes with more text than was streamed.",
        ("item-done-mismatch",),
        edit.change("done", "message", how=edit.lengthen_item),
        _ANSWER,
    ),
    "no-logprobs": Fault(
        "A delta lacks `logprobs`, which the SDK's type requires.", ("field-missing",), edit.take("logprobs", "delta", "message"), _ANSWER
    ),
    "error-key": Fault(
        "An event has an `error` key, on which the SDK raises.", ("error-key",), edit.put("added", error={"message": "none"})
    ),
    # the terminal response
    "completed-when-cut": Fault(
        "An output that the token limit cuts ends in response.completed, with the status incomplete in it.",
        ("terminal-type-mismatch",),
        edit.complete,
        _CUT,
    ),
    "short-terminal": Fault("The terminal response lacks the last item.", ("terminal-item-missing",), edit.listing(edit.drop_last)),
    "reversed-terminal": Fault(
        "The terminal response lists the items in the opposite order.",
        ("terminal-order",),
        edit.listing(lambda output: output.reverse()),
        _TWO,
    ),
    "empty-terminal-text": Fault(
        "The terminal response lists the last item without its text.",
        ("terminal-text-mismatch",),
        edit.listing(edit.clear_text),
        "some text",
    ),
    # numbers
    "repeated-numbers": Fault(
        "The numbers begin anew behind the opening.", ("sequence-not-increasing",), edit.repeat_numbers, "an opening"
    ),
    "negative-numbers": Fault("An item is done with the sequence_number -1.", ("sequence-invalid",), edit.put("done", sequence_number=-1)),
}
"""All faults, in the order in which they are applied."""

PRESETS: Final[Mapping[str, tuple[str, ...]]] = {
    "tensorrt-llm": (
        "tool-in-terminal-only",
        "lose-deltas",
        "trimmed-call",
        "open-when-cut",
        "reasoning-part-left-open",
        "done-index-plus-one",
        "empty-ids",
        "fresh-terminal-ids",
        "completed-when-cut",
    ),
}
"""What one server does all at once: those of the faults that show in a reply."""


def names_of(faults: str | Sequence[str]) -> list[str]:
    """The faults as a list of names."""
    return [faults] if isinstance(faults, str) else list(faults)


def apply(draft: Draft, faults: str | Sequence[str]) -> None:
    """Put faults into a draft.

    Args:
        draft: The draft.
        faults: Names of faults, which must show, and of presets.

    Raises:
        ValueError: There is no such fault, or it does not show.
    """
    names = names_of(faults)
    for name in names:
        _check(name)
    preset = {fault for name in names for fault in PRESETS.get(name, ())}
    for name, fault in FAULTS.items():
        if name in names:
            before = draft.seen()
            fault.apply(draft)
            if draft.seen() == before:
                raise ValueError(f"the fault {name!r} changes nothing in this reply: it needs {fault.needs}")
        elif name in preset:
            fault.apply(draft)


def _check(name: str) -> None:
    known = [*PRESETS, *FAULTS]
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"no fault is called {name!r}.{meant} There are: {', '.join(known)}")
