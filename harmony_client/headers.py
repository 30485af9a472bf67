"""What a message's header says: role, channel, recipient, content type.

    [<|start|>] role [to=recipient] <|channel|> channel [to=recipient] [<|constrain|>]type <|message|>

A header that reaches `<|message|>` is read as openai-harmony 0.0.8 reads it, down to its white space
(`read_header`). The exceptions, which it reads too, but to no good end:

- Without `to=`, a content type (`json`, `code`, `<|constrain|>…`), a channel's name or the role said
  again is no recipient. Without `<|channel|>`, a channel's name is the channel.
- The role is looked for before `<|channel|>` only, and is neither a `to=`, nor a content type, nor a
  channel's name. Where it is missing it is `assistant`, not a tool of that name.

What openai-harmony refuses is read as far as it goes, and the header is marked `repaired`. A header that
never reaches `<|message|>` is searched for the body that its message would have had (`recover`).

Headers come here as sections: their text, split at the `<|channel|>` tokens, with bytes that are not
UTF-8 as surrogate escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

__all__ = ["CHANNELS", "Dropped", "Ending", "Header", "Origin", "Recovered", "join_text", "read_header", "recover", "shown"]

CHANNELS: Final = frozenset({"analysis", "commentary", "final"})
ROLES: Final = frozenset({"assistant", "user", "system", "developer", "tool"})

Origin = Literal["prompt", "start", "none"]
"""What began a header: the prompt's own `<|start|>assistant`, a `<|start|>` token, or nothing."""

Ending = Literal["token", "end", "full"]
"""What ended a header without `<|message|>`: a stop or `<|start|>`, the end of the tokens, its length."""

_MARKER: Final = "<|channel|>"
_CONTENT_TYPES: Final = frozenset({"json", "code"})
_CONSTRAIN: Final = "<|constrain|>"

# White space as Rust's char::is_whitespace and split_ascii_whitespace have it; Python's differ slightly.
_BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_WORD: Final = re.compile(r"[^\t\n\f\r ]+")
_VALUE: Final = re.compile(rf"[^{_BLANKS}<]+|[{_BLANKS}]+(?!to=)[^{_BLANKS}<]+|")

# For headers without `<|message|>`, read from the front: there a field ends where a body may begin.
_ROLE: Final = re.compile(r"\s*(?:(?P<other>user|system|developer|tool)(?![\w.-])|(?:assistant\s*)+(?![a-z]))")
_NAME: Final = re.compile(r"\s*(?!to=|analysis\b|commentary\b|final\b)[^\s<]+")
_KNOWN: Final = re.compile(r"\s*(?:analysis|commentary|final)(?=[\s<{\[]|$)")
_FIELD: Final = re.compile(
    r"\s*(?:to=(?P<recipient>[^\s<{\[\"]+)|(?P<constrained><\|constrain\|>[\w./+-]*)|(?P<plain>json|code)(?=[\s<{\[\"]|$))"
)


class Header(NamedTuple):
    """The header of a message.

    Attributes:
        role: Its role, `assistant` unless it says otherwise; `tool` for a tool's name; as written if
            it is no role at all.
        channel: Its channel as written, `""` if the marker has no name after it, `None` without marker.
        recipient: Whom it addresses, without `to=`.
        content_type: Its content type as written (`<|constrain|>json`, `code`).
        repaired: Whether it was malformed.
        markup: Its own text, verbatim, without `<|message|>`.
    """

    role: str
    channel: str | None
    recipient: str | None
    content_type: str | None
    repaired: bool
    markup: str


class Dropped(NamedTuple):
    """Text that belongs to no message.

    Attributes:
        text: The text, verbatim (words of a header: joined by blanks).
        reason: `between-messages`, `garbage-header`, `cut-header`, `header-words` or `bad-id`.
    """

    text: str
    reason: str


class Recovered(NamedTuple):
    """A message whose header never reached `<|message|>`; the body's bytes are still escaped."""

    header: Header
    body: str


def read_header(sections: list[str], origin: Origin, repaired: bool) -> tuple[Header, str]:
    """Read a header that reached `<|message|>`.

    Args:
        sections: Its text, split at `<|channel|>`.
        origin: What began it.
        repaired: Whether it is known to be malformed (a doubled `<|start|>`).

    Returns:
        The header, and its words that are in none of the fields.
    """
    before, *after = map(shown, sections)
    markup = ("<|start|>" if origin == "start" else "") + _MARKER.join([before, *after])
    found = [_VALUE.match(section)[0] for section in after]  # type: ignore[index]  # it matches ""
    values = [value.strip(_BLANKS) for value in found]
    words = _words(before + "".join(section[len(value) :] for section, value in zip(after, found, strict=True)))
    role, words, sound = _take_role(words, origin, bool(before.strip(_BLANKS)))
    channel = _choose(values)
    if not channel and (named := [word for word in words if word in CHANNELS]):
        channel, sound = named[-1], False
        words.remove(channel)
    recipient, content_type, surplus = _take_fields(words, role, bare=origin != "none")
    surplus += [value for value in values if value and value != channel]
    sound = sound and found == values and len(values) < 2 and channel != "" and not surplus
    sound = sound and not any(word.startswith("to=") for word in words[1:])
    return Header(role, channel, recipient, content_type, repaired or not sound, markup), " ".join(surplus)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.strip(_BLANKS).replace(_CONSTRAIN, " " + _CONSTRAIN).strip(_BLANKS))


def _is_content_type(word: str) -> bool:
    return word in _CONTENT_TYPES or word.startswith(_CONSTRAIN)


def _choose(values: list[str]) -> str | None:
    """The channel: the last known name, else the first name, else `""` (no marker: `None`)."""
    known = [value for value in values if value in CHANNELS]
    return known[-1] if known else next(filter(None, values), "" if values else None)


def _take_role(words: list[str], origin: Origin, stated: bool) -> tuple[str, list[str], bool]:
    """The role, the other words, and whether all was well.

    After `<|start|>` the first word is the role, or a tool's name if more words follow.
    """
    role, sound = "assistant", origin != "none"
    if origin == "start":
        word = words[0] if stated else ""
        if not word or word in CHANNELS or word.startswith("to=") or _is_content_type(word):
            sound = False
        elif word in ROLES:
            role = word
        elif word.replace("assistant", "") == "":
            words, sound = words[1:], False
        elif len(words) > 1:
            role, words = "tool", words[1:]
        else:
            return word, [], False
    said = 0
    while words[said : said + 1] == [role]:
        said += 1
    return role, words[said:], sound and said < 2


def _take_fields(words: list[str], role: str, *, bare: bool) -> tuple[str | None, str | None, list[str]]:
    """Recipient, content type and the words that are neither.

    The first `to=` names the recipient; one word, or the first of two, may do so without it.
    """
    named = next((word for word in words if word.startswith("to=")), None)
    if named is None and bare and 0 < len(words) < 3 and not (words[0] in CHANNELS or words[0] == role or _is_content_type(words[0])):
        named = words[0]
    content_type = next((word for word in reversed(words) if _is_content_type(word)), None)
    if content_type is None and len(words) == 2 and words[0] is named and not words[1].startswith("to="):
        content_type = words[1]
    surplus = list(words)
    for word in (named, content_type):
        if word is not None:
            surplus.remove(word)
    return named.removeprefix("to=") if named is not None else None, content_type, surplus


def recover(sections: list[str], origin: Origin, ending: Ending) -> list[Recovered | Dropped]:
    """Find the messages in a header that never reached `<|message|>`.

    After a known channel, or a `to=`, the words that are no field are the body. A further
    `<|channel|>` ends it and begins another header.

    Args:
        sections: Its text, split at `<|channel|>`.
        origin: What began it; `none` and a single section: text between messages.
        ending: What ended it. After `full` the last result is a message, and its body goes on.
    """
    if len(sections) == 1:
        return _recover_without_channel(sections[0], origin, ending)
    outcomes: list[Recovered | Dropped] = []
    draft = _Draft(origin)
    draft.pass_over(draft.take_fields(draft.take_role(sections[0], names=True)))
    for number, section in enumerate(sections[1:], start=2):
        last = ending if number == len(sections) else "token"
        opening = draft.markup + _MARKER
        rest = draft.take_fields(draft.take_channel(section))
        if last == "full" and not draft.settled:
            draft.markup, rest = opening, section
        if last == "full" or (draft.settled and not _is_blank(rest, last)):
            outcomes += draft.message(rest.lstrip())
            draft = _Draft("none")
        else:
            draft.pass_over(rest)
    return outcomes + draft.nothing(ending)


def _recover_without_channel(text: str, origin: Origin, ending: Ending) -> list[Recovered | Dropped]:
    draft = _Draft(origin)
    body = text if origin == "none" else draft.take_fields(draft.take_role(text))
    if draft.recipient is not None or draft.content_type is not None:
        if ending != "full" and _is_blank(body, ending):
            draft.pass_over(body)
            return draft.nothing(ending)
        return draft.message(body.lstrip())
    if ending != "full" and not body.strip():
        return []
    if ending == "end" and _is_cut_opening(body if origin == "start" else text, origin):
        draft.pass_over(body)
        return draft.nothing(ending)
    if origin == "start":
        return draft.message(body.lstrip())
    return _Draft(origin).message(text)  # not even the blanks before it are ours to take


def _is_blank(rest: str, ending: Ending) -> bool:
    """Whether no body follows on the fields; the end of the tokens may have cut another field."""
    rest = rest.strip()
    return not rest or (ending == "end" and any(word.startswith(rest) for word in ("to=", *_CONTENT_TYPES)))


def _is_cut_opening(text: str, origin: Origin) -> bool:
    """Whether text without any field is the beginning of a role or of ` to=`."""
    word = text.strip()
    if origin == "start":
        return any(whole.startswith(word) for whole in ("to=", *ROLES))
    return origin == "prompt" and text[:1].isspace() and "to=".startswith(word)


class _Draft:
    """A header read from the front, field by field.

    Each `take_…` method returns the rest of the text and keeps what it took in `markup`.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.role = "assistant"
        self.channels: list[str] = []
        self.recipient: str | None = None
        self.content_type: str | None = None
        self.surplus: list[str] = []
        self.markup = "<|start|>" if origin == "start" else ""

    @property
    def settled(self) -> bool:
        """Whether it says enough for what follows to be a body."""
        return self.recipient is not None or _choose(self.channels) in CHANNELS

    def take_role(self, text: str, *, names: bool = False) -> str:
        """Take a role word; with `names`, also one that is no role, as `read_header` does."""
        match = _ROLE.match(text)
        if match and (self.origin == "start" or not match["other"]):
            self.role = match["other"] or self.role
        elif names and self.origin == "start" and (match := _NAME.match(text)):
            self.role = "tool" if text[match.end() :].strip() else shown(match[0].strip())
        else:
            return text
        return self._take(text, match)

    def take_channel(self, section: str) -> str:
        """Take `<|channel|>` and the name after it."""
        self.markup += _MARKER
        match = _KNOWN.match(section) or _VALUE.match(section)
        assert match is not None  # _VALUE matches ""
        self.channels.append(match[0].strip(_BLANKS))
        return self._take(section, match)

    def take_fields(self, text: str) -> str:
        """Take `to=…`, `<|constrain|>…` and, after a recipient, `json` or `code`; the first of a kind wins."""
        while match := _FIELD.match(text):
            if match["plain"] and (self.recipient is None or self.content_type is not None):
                break
            if match["recipient"] and self.recipient is None:
                self.recipient = match["recipient"]
            elif not match["recipient"] and self.content_type is None:
                self.content_type = match["plain"] or match["constrained"]
            else:
                self.surplus.append(match[0].strip())
            text = self._take(text, match)
        return text

    def pass_over(self, text: str) -> None:
        """Take text that is neither a field nor a body."""
        self.markup += text
        self.surplus += text.split()

    def _take(self, text: str, match: re.Match[str]) -> str:
        self.markup += match[0]
        return text[match.end() :]

    def message(self, body: str) -> list[Recovered | Dropped]:
        """What came of it, with a body."""
        channel = _choose(self.channels)
        surplus = self.surplus + [name for name in self.channels if name and name != channel]
        channel, recipient = (field and shown(field) for field in (channel, self.recipient))
        header = Header(self.role, channel, recipient, self.content_type, repaired=True, markup=shown(self.markup))
        dropped = [Dropped(shown(" ".join(surplus)), "header-words")] if surplus else []
        return [*dropped, Recovered(header, body)]

    def nothing(self, ending: Ending) -> list[Recovered | Dropped]:
        """What came of it, without a body."""
        reason = "cut-header" if ending == "end" else "garbage-header"
        return [Dropped(shown(self.markup), reason)] if self.markup else []


def join_text(texts: Iterable[str]) -> str:
    """Texts joined, with the characters that were split over them put together."""
    text = "".join(texts)
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def shown(text: str) -> str:
    """Text as it is shown: bytes that are not UTF-8 become U+FFFD."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
