"""A second reading of the tokens by openai-harmony, the option ``reference=True``.

Our own parser makes the stream (the README says why it is not openai-harmony's). With this option the
whole output is parsed once more, by openai-harmony, before the terminal event is handed out; where it
reads something else than what was streamed, ``report.reference`` says so.

What openai-harmony does to a process decides when it is called:

- Loading its vocabulary takes half a second in which no other thread runs, and downloads a file, also
  without letting other threads run, however long that takes. So :func:`prepare` loads it when the client
  is made, once per process, from the vocabulary that this package ships: nothing is downloaded.
- Parsing takes 2 µs per token and lets other threads run, if it is done token by token. So
  :func:`compare` may run in a thread beside an event loop.

Nothing here raises for what openai-harmony does: :func:`compare` then says ``unverifiable``.
"""

from __future__ import annotations

import os
import tempfile
import time
import zlib
from binascii import b2a_base64
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from importlib.util import find_spec
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

from harmony_client.harmony import Dropped, HarmonyParser, MessageStart
from harmony_client.headers import CHANNELS, Header
from harmony_client.report import Reference, ReferenceDifference
from harmony_client.tokens import Evidence, Reading
from harmony_client.vocabulary import START, STOP_TOKENS

__all__ = ["MAX_SECONDS", "compare", "prepare"]

#: A server chooses the tokens, and there are outputs on which openai-harmony takes long. The terminal
#: event waits for it, so there must be an end; an answer of 100,000 tokens takes a quarter of a second.
MAX_SECONDS: Final = 5.0

_MISSING: Final = "reference=True needs openai-harmony: pip install 'harmony-stream-client[harmony]'"
_VARIABLE: Final = "TIKTOKEN_ENCODINGS_BASE"  # where openai-harmony looks for the file, before it downloads it
_ORDINARY: Final = 199_998
_STRIDE: Final = 1_000  # tokens between two looks at the clock


class _UnavailableError(Exception):
    """openai-harmony cannot be asked; the message says why."""


def prepare() -> None:
    """Load openai-harmony: half a second, once per process, in which no other thread runs.

    If it cannot be loaded, :func:`compare` says why; that is no reason to do without the client.

    Raises:
        ImportError: openai-harmony is not installed.
    """
    if find_spec("openai_harmony") is None:
        raise ImportError(_MISSING)
    _load()


def compare(evidence: Evidence | None) -> Reference:
    """Have all tokens of a response read by openai-harmony; never raises, may run in any thread.

    Args:
        evidence: What :meth:`harmony_client.repair.StreamRepairer.evidence` returns at the end.

    Returns:
        What it reads otherwise, for ``report.reference``.
    """
    if evidence is None:
        return Reference("unverifiable", "the tokens of the response did not come, or not all of them")
    try:
        theirs, refused = _read_again(evidence)
    except _UnavailableError as error:
        return Reference("unverifiable", str(error))
    except BaseException as error:
        return Reference("unverifiable", f"openai-harmony raised {_described(error)}")
    differences = tuple(_differences(evidence, theirs, refused))
    unexpected = any(not difference.expected for difference in differences)
    return Reference("mismatch" if unexpected else "match", differences=differences)


# --- loading --------------------------------------------------------------------------------------


@cache
def _load() -> tuple[Any, str]:
    """openai-harmony's encoding, or ``None`` and why there is none."""
    before = os.environ.get(_VARIABLE)
    try:
        import openai_harmony

        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "o200k_base.tiktoken").write_bytes(_vocabulary_file())  # it checks the SHA-256
            os.environ[_VARIABLE] = folder
            try:
                return openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS), ""
            finally:
                _restore(before)
    except BaseException as error:
        return None, f"openai-harmony cannot be loaded: {_described(error)}"


def _restore(before: str | None) -> None:
    if before is None:
        del os.environ[_VARIABLE]
    else:
        os.environ[_VARIABLE] = before


def _vocabulary_file() -> bytes:
    """OpenAI's ``o200k_base.tiktoken``, from the package data: one line per token, in base64, with its id."""
    packed = resources.files("harmony_client") / "data" / "o200k_base.zlib"
    data = zlib.decompress(packed.read_bytes())  # the lengths of all tokens, one byte each; then the tokens
    ends = list(accumulate(data[:_ORDINARY], initial=_ORDINARY))
    tokens = (data[start:end] for start, end in pairwise(ends))
    return b"".join(b"%b %d\n" % (b2a_base64(token, newline=False), number) for number, token in enumerate(tokens))


# --- reading --------------------------------------------------------------------------------------


def _read_again(evidence: Evidence) -> tuple[list[tuple[Reading, Reading]], bool]:
    """What openai-harmony takes each message for, and whether it refused a part of the output.

    Each message is read literally, and by our rule for words that are no recipient.
    """
    encoding, reason = _load()
    if encoding is None:
        raise _UnavailableError(reason)
    deadline = time.monotonic() + MAX_SECONDS
    readings, refused = [], False
    for ids in evidence.turns:
        messages, errors = _messages(encoding, ids, deadline)
        refused = refused or errors
        for message in messages:
            text = "".join(getattr(content, "text", "") for content in message.content)
            literal = Header(message.author.role.value, message.channel, message.recipient, message.content_type, False, "")
            readings.append((_reading(evidence, literal, text), _reading(evidence, _amended(literal), text)))
    return readings, refused


def _messages(encoding: Any, ids: Sequence[int], deadline: float) -> tuple[list[Any], bool]:
    """The messages of one turn, and whether there were errors: it starts anew at the next ``<|start|>``."""
    from openai_harmony import HarmonyError, Role, StreamableParser

    parser, messages = StreamableParser(encoding, Role.ASSISTANT), []
    refused = skipping = False
    for number, token in enumerate(ids):
        if number % _STRIDE == 0:
            _check(deadline)
        if skipping and token != START:
            continue
        skipping = False
        try:
            parser.process(token)
        except HarmonyError:
            messages += parser.messages
            parser = StreamableParser(encoding, None)
            refused = skipping = True
            _check(deadline)
    try:
        parser.process_eos()
    except HarmonyError:  # the end is inside a header
        refused = True
    return messages + parser.messages, refused


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise _UnavailableError(f"openai-harmony took more than {MAX_SECONDS:.0f} seconds")


def _amended(header: Header) -> Header:
    """Without a recipient that is a content type or a channel's name (:mod:`harmony_client.headers` says why)."""
    recipient = header.recipient or ""
    wrong = recipient.startswith("<|constrain|>") or recipient in {"json", "code", header.role, *CHANNELS}
    return header._replace(recipient=None) if wrong else header


def _reading(evidence: Evidence, header: Header, text: str) -> Reading:
    plan = evidence.decide(header)
    return Reading(plan.kind, plan.name, text)


# --- comparing ------------------------------------------------------------------------------------


def _differences(evidence: Evidence, theirs: Sequence[tuple[Reading, Reading]], refused: bool) -> Iterator[ReferenceDifference]:
    """The messages that are not alike, once those at the beginning and at the end that are alike are left out."""
    ours = evidence.readings
    start = _alike(ours, theirs)
    end = _alike(ours[start:][::-1], theirs[start:][::-1])
    middle, other = ours[start : len(ours) - end], theirs[start : len(theirs) - end]
    expected = bool(middle or other) and (refused or _malformed(evidence))
    for number in range(max(len(middle), len(other))):
        streamed = middle[number] if number < len(middle) else None
        reference = other[number] if number < len(other) else None
        if streamed is None or reference is None:
            yield ReferenceDifference(start + number, "message", _shown(streamed), _shown(reference and reference[0]), expected)
        elif streamed not in reference:
            for field, ours_, theirs_ in zip(Reading._fields, streamed, reference[1], strict=True):
                if ours_ != theirs_:
                    yield ReferenceDifference(start + number, field, ours_, theirs_, expected)


def _alike(ours: Sequence[Reading], theirs: Sequence[tuple[Reading, Reading]]) -> int:
    count = 0
    for streamed, reference in zip(ours, theirs, strict=False):
        if streamed not in reference:
            break
        count += 1
    return count


def _malformed(evidence: Evidence) -> bool:
    """Whether the output breaks the format anywhere, by our own parser and the order of its special tokens."""
    return any(_turn_malformed(ids) for ids in evidence.turns)


def _turn_malformed(ids: Sequence[int]) -> bool:
    parser, in_header = HarmonyParser(), True
    for token in ids:
        if not parser.in_message and (token in STOP_TOKENS or token == START):
            if in_header or token != START:
                return True
            in_header = True
        for event in parser.receive([token]):
            if _is_recovery(event):
                return True
            in_header = in_header and not isinstance(event, MessageStart)
    return any(map(_is_recovery, parser.close()))


def _is_recovery(event: object) -> bool:
    return isinstance(event, Dropped) or (isinstance(event, MessageStart) and (event.recovered or event.header.repaired))


def _shown(reading: Reading | None) -> str:
    return "" if reading is None else f"{reading.kind or 'preamble'} {reading.name} {reading.text}".replace("  ", " ")


def _described(error: BaseException) -> str:
    """An error of openai-harmony's, in words; what is none is raised again."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # how a failure of Rust code arrives
        raise error
    return f"{type(error).__name__}: {error}"
