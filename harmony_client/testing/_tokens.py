"""Token ids without a tokenizer: the decode table, read backwards.

The text is cut into the longest tokens that fit, from left to right. A model would often choose others: byte-pair encoding merges by
rank. Whoever decodes the ids gets the same text, which is all that a scripted stream needs; counts of tokens are a little off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from copy import copy
from functools import cache
from typing import Any, Final

from harmony_client.vocabulary import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START, STOP_TOKENS, decode_table

__all__ = ["Call", "encode", "message_ids", "without_last_stop"]

Call = tuple[str, "Mapping[str, Any] | str"]
"""Name and arguments of a tool call; arguments that are a string are sent as they are."""

_MARKERS: Final = {
    "<|start|>": START,
    "<|end|>": END,
    "<|message|>": MESSAGE,
    "<|channel|>": CHANNEL,
    "<|constrain|>": CONSTRAIN,
    "<|return|>": RETURN,
    "<|call|>": CALL,
}
_MARKER: Final = re.compile("(" + "|".join(map(re.escape, _MARKERS)) + ")")
_ORDINARY: Final = 199_998
"""Ids below this one are ordinary tokens."""
_LONGEST: Final = 24
"""Bytes of the longest token that is tried. The few longer ones are runs of blanks and the like."""


def encode(harmony: str) -> list[int]:
    """The token ids of a Harmony text, in which special tokens are spelled out (`<|channel|>final<|message|>Hi<|return|>`)."""
    return [token for piece in _MARKER.split(harmony) for token in ([_MARKERS[piece]] if piece in _MARKERS else _ordinary(piece))]


def message_ids(*, reasoning: str | None, preamble: str | None, calls: Iterable[Call], answer: str | None) -> list[int]:
    """The token ids of a model that thinks, says what it is about to do, calls tools and answers, as far as it does."""
    messages: list[tuple[str, str, int]] = []
    if reasoning is not None:
        messages.append(("<|channel|>analysis<|message|>", reasoning, END))
    if preamble is not None:
        messages.append(("<|channel|>commentary<|message|>", preamble, END))
    for name, arguments in calls:
        header = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
        messages.append((header, arguments if isinstance(arguments, str) else _json(arguments), CALL))
    if answer is not None:
        messages.append(("<|channel|>final<|message|>", answer, RETURN))
    ids: list[int] = []
    for header, text, stop in messages:
        # Only the header has special tokens: in the text, <|end|> is what somebody wrote about them.
        ids += [*encode("<|start|>assistant" + header if ids else header), *_ordinary(text), stop]
    return ids


def without_last_stop(ids: list[int]) -> list[int]:
    """The ids as far as the last message goes, without the stop token that ends it."""
    return ids[:-1] if ids and ids[-1] in STOP_TOKENS else ids


def _json(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def _ordinary(text: str) -> list[int]:
    data, known = text.encode("utf-8"), _ids_by_bytes()
    ids = []
    at = 0
    while at < len(data):
        end = min(at + _LONGEST, len(data))
        while data[at:end] not in known:  # every single byte is a token
            end -= 1
        ids.append(known[data[at:end]])
        at = end
    return ids


@cache
def _ids_by_bytes() -> dict[bytes, int]:
    """The bytes of every ordinary token; made in about 0.2 s when a text is first encoded."""
    table = copy(decode_table())  # looked up as a whole it is filled as a whole, which the one of the process should not be
    return {(table[token] or "").encode("utf-8", "surrogateescape"): token for token in range(_ORDINARY)}
