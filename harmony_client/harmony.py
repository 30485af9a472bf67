"""Harmony messages out of token ids: a state machine without IO.

    between ──<|start|>──▶ header ──<|message|>──▶ content ──stop──▶ between

A completion starts inside a header, as the prompt ends in `<|start|>assistant`. Inside a message every
token but the three stops is text, other special tokens included. That much is openai-harmony's parser,
and on well-formed output the two agree. Where openai-harmony raises, or takes a stop token for a part
of the header, this one resynchronises:

- A header that ends without `<|message|>` (at a stop, at `<|start|>`, at the end of the tokens, or after
  64 ids) may hold the body of its message; `headers.py` says where. After 64 ids that body streams: it
  is `loose`, and not only a stop ends it but also `<|start|>` and `<|channel|>`.
- Text between messages is held in the same way. `<|start|>` drops it, `<|channel|>` and `<|message|>`
  make it a header, anything else makes it a message.
- Stop tokens and `<|start|>` where nothing is open are passed over.

Nothing raises, and no text is lost: whatever the ids spell is in the text of a message, in the markup of
a header, or in a `Dropped`. (Passed over are stop tokens, `<|start|>`, role words and blanks.)
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from harmony_client.headers import Dropped, Header, Origin, Recovered, join_text, read_header, recover, shown
from harmony_client.vocabulary import CHANNEL, MESSAGE, START, STOP_TOKENS, decode_table

__all__ = ["Dropped", "HarmonyParser", "Header", "MessageEnd", "MessageStart", "ParserEvent"]

HELD_IDS: Final = 64
"""How many ids of a header, or of text between messages, are held; no real header is half as long."""


class MessageStart(NamedTuple):
    """A message begins.

    Attributes:
        header: Its header.
        recovered: Whether the header never reached `<|message|>`, or there was none.
    """

    header: Header
    recovered: bool


class MessageEnd(NamedTuple):
    """The message that is open ends.

    Attributes:
        stop: The id of its stop token; `None` if it ended without one.
    """

    stop: int | None


ParserEvent: TypeAlias = str | MessageStart | MessageEnd | Dropped
"""A plain string, never empty, is text of the open message."""

_Out: TypeAlias = list[ParserEvent]
_State = Literal["header", "between", "content", "loose"]
_Symbol = Literal["text", "channel", "message", "start", "stop", "end", "full"]

_UNLOADED: Final[dict[int, str | None]] = {}
_SYMBOLS: Final[dict[int | None, _Symbol]] = {
    CHANNEL: "channel",
    MESSAGE: "message",
    START: "start",
    None: "end",
    **dict.fromkeys(STOP_TOKENS, "stop"),
}


class HarmonyParser:
    """Parses one completion, in batches of any size.

    However the ids are split over calls of `receive`, the events are the same once adjacent strings
    are joined, and they join to `bytes.decode("utf-8", "replace")` of the whole body.
    """

    __slots__ = ("_held", "_origin", "_pending", "_repaired", "_state", "_table")

    def __init__(self, table: dict[int, str | None] | None = None) -> None:
        """Start in the header that the prompt began.

        Args:
            table: What the ids spell; `decode_table()` unless given, loaded at the first id.
        """
        self._table = _UNLOADED if table is None else table
        self._state: _State = "header"
        self._origin: Origin = "prompt"
        self._held: list[int] = []
        self._repaired = False  # a header was passed over: the next one had its <|start|> or its role twice
        self._pending = b""  # the beginning of a character whose end is still to come

    @property
    def in_message(self) -> bool:
        """Whether a message is open."""
        return self._state in {"content", "loose"}

    @property
    def open(self) -> bool:
        """Whether a message is open, or something that may become one is held."""
        return self.in_message or bool(self._held)

    def receive(self, ids: Sequence[int]) -> list[ParserEvent]:
        """Take the next ids of the completion; never raises.

        Args:
            ids: Token ids. One that is not in the vocabulary gives `Dropped("", "bad-id")`.
        """
        if self._state == "content":  # the fast path: nothing but text
            try:
                text = self._table[ids[0]] if len(ids) == 1 else "".join(itemgetter(*ids)(self._table))
            except (TypeError, KeyError):
                text = None  # a stop among other ids, no id of the vocabulary, or none at all
            if text is not None:
                if self._pending or not (text.isascii() or text.isprintable()):  # surrogates are not printable
                    text = self._decode(text, False)
                return [text] if text else []
        return self._receive(ids)

    def close(self) -> list[ParserEvent]:
        """Take the end of the tokens: what is held or open is resolved, a cut character becomes U+FFFD."""
        out: _Out = []
        self._step(None, out)
        return out

    def _receive(self, ids: Sequence[int]) -> list[ParserEvent]:
        if self._table is _UNLOADED:
            self._table = decode_table()
        out: _Out = []
        position = 0
        while position < len(ids):
            if self._state == "content":
                position = self._read_text(ids, position, out)
                if position == len(ids):
                    break
            token = ids[position]
            position += 1
            try:
                self._table[token]
            except (KeyError, TypeError):
                out.append(Dropped("", "bad-id"))
            else:
                self._step(token, out)
        return out

    def _read_text(self, ids: Sequence[int], position: int, out: _Out) -> int:
        """Read content up to the next id that is none; return its position."""
        table = self._table
        texts: list[str] = []
        try:
            while position < len(ids) and (text := table[ids[position]]) is not None:
                texts.append(text)
                position += 1
        except (KeyError, TypeError):
            pass  # not an id: the caller reports it
        self._emit("".join(texts), out)
        return position

    def _emit(self, text: str, out: _Out, *, final: bool = False) -> None:
        if text := self._decode(text, final):
            out.append(text)

    def _decode(self, text: str, final: bool) -> str:
        """Text of the open message with its bytes put together; a character cut short waits, unless `final`."""
        data = self._pending + text.encode("utf-8", "surrogateescape")
        text, used = utf_8_decode(data, "replace", final)
        self._pending = data[used:]
        return text

    def _step(self, token: int | None, out: _Out) -> None:
        """Take one id of the vocabulary, or `None` for the end, through the transitions."""
        symbol = _SYMBOLS.get(token, "text")
        if len(self._held) >= HELD_IDS and symbol in ("text", "channel"):
            self._advance("full", None, out)
        self._advance(symbol, token, out)

    def _advance(self, symbol: _Symbol, token: int | None, out: _Out) -> None:
        effect, self._state = _TRANSITIONS[self._state][symbol]
        effect(self, token, out)

    # What a transition does besides changing the state.

    def _hold(self, token: int, _out: _Out) -> None:
        self._held.append(token)

    def _start(self, _token: int, out: _Out) -> None:
        """A header is complete."""
        header, surplus = read_header(self._sections(), self._origin, self._repaired)
        if surplus:
            out.append(Dropped(surplus, "header-words"))
        out.append(MessageStart(header, recovered=False))
        self._begin(None)

    def _text(self, token: int, out: _Out) -> None:
        self._emit(self._table[token] or "", out)

    def _end(self, token: int | None, out: _Out) -> None:
        self._finish(token, out)
        self._begin(token)

    def _resolve(self, token: int | None, out: _Out) -> None:
        """What is held will see no `<|message|>`."""
        outcomes = recover(self._sections(), self._origin, "end" if token is None else "token")
        if self._replay(outcomes, out):
            self._finish(token, out)
        passed_over = not outcomes and (self._origin == "start" or bool(self._held))
        self._begin(token)
        self._repaired = passed_over and token == START

    def _stream(self, _token: int | None, out: _Out) -> None:
        """What is held is too long to be held: its body streams from here on."""
        self._replay(recover(self._sections(), self._origin, "full"), out)
        self._begin(None)

    def _discard(self, token: int, out: _Out) -> None:
        """What is held is text between messages."""
        if self._held:
            out.append(Dropped(shown(self._sections()[0]), "between-messages"))
        self._begin(token)

    # What these are made of.

    def _begin(self, token: int | None) -> None:
        """Hold nothing but what a new header begins with."""
        self._held = [CHANNEL] if token == CHANNEL else []
        self._origin = "start" if token == START else "none"
        self._repaired = False

    def _finish(self, token: int | None, out: _Out) -> None:
        """End the open message."""
        self._emit("", out, final=True)
        out.append(MessageEnd(token if token in STOP_TOKENS else None))

    def _replay(self, outcomes: Sequence[Recovered | Dropped], out: _Out) -> bool:
        """Report what was found in a header; if the last thing is a message, it stays open: true."""
        for outcome in outcomes:
            if isinstance(outcome, Dropped):
                out.append(outcome)
                continue
            out.append(MessageStart(outcome.header, recovered=True))
            self._emit(outcome.body, out)
            if outcome is outcomes[-1]:
                return True
            self._finish(None, out)
        return False

    def _sections(self) -> list[str]:
        """The text of what is held, split at `<|channel|>`."""
        sections: list[list[str]] = [[]]
        for token in self._held:
            if token == CHANNEL:
                sections.append([])
            else:
                sections[-1].append(self._table[token] or "")
        return [join_text(section) for section in sections]


_Effect: TypeAlias = Callable[[HarmonyParser, Any, _Out], None]
_TRANSITIONS: Final[dict[_State, dict[_Symbol, tuple[_Effect, _State]]]] = {
    "header": {
        "text": (HarmonyParser._hold, "header"),
        "channel": (HarmonyParser._hold, "header"),
        "message": (HarmonyParser._start, "content"),
        "start": (HarmonyParser._resolve, "header"),
        "stop": (HarmonyParser._resolve, "between"),
        "end": (HarmonyParser._resolve, "between"),
        "full": (HarmonyParser._stream, "loose"),
    },
    "content": {
        "text": (HarmonyParser._text, "content"),
        "channel": (HarmonyParser._text, "content"),
        "message": (HarmonyParser._text, "content"),
        "start": (HarmonyParser._text, "content"),
        "stop": (HarmonyParser._end, "between"),
        "end": (HarmonyParser._end, "between"),
    },
    "loose": {
        "text": (HarmonyParser._text, "loose"),
        "channel": (HarmonyParser._end, "header"),
        "message": (HarmonyParser._text, "loose"),
        "start": (HarmonyParser._end, "header"),
        "stop": (HarmonyParser._end, "between"),
        "end": (HarmonyParser._end, "between"),
    },
    "between": {
        "text": (HarmonyParser._hold, "between"),
        "channel": (HarmonyParser._hold, "header"),
        "message": (HarmonyParser._start, "content"),
        "start": (HarmonyParser._discard, "header"),
        "stop": (HarmonyParser._resolve, "between"),
        "end": (HarmonyParser._resolve, "between"),
        "full": (HarmonyParser._stream, "loose"),
    },
}
"""State → what comes → what to do, and the next state. Nothing is held in `content` and `loose`, so
nothing gets `full` there."""
