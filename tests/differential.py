"""Differential test of `HarmonyParser` against openai-harmony 0.0.8.

    python -m tests.differential --count 20000 --seed 1

Random outputs (well-formed, truncated, mutated, noise), and three laws for each:

1. Messages. An output falls into regions: what is before a `<|message|>` that opens a body, and that
   body up to its stop. Where a body opens and ends follows from the ids alone (`regions`). There the
   parser must begin one message and end it, and nowhere else one that is not `recovered`; the text must
   be that of the ids. The region's class says what else is compared:

   - `exact`: openai-harmony reads the header, and no stop, `<|start|>` or second `<|channel|>` is in it.
     All fields and the text equal openai-harmony's, and nothing is reported as dropped.
   - `typed`: the same, but a content type that stands alone is no recipient, as openai-harmony has it.
   - `amended`: the same, but for the other exceptions of `headers.py` (`amend` and `state_role`).
   - `lost`: it refuses the header and loses the message. The reference starts anew after the stop: in
     between it would refuse every id, save a `<|start|>` in our body, which is text to us.
   - `tangled`: a stop, a `<|start|>` or a second `<|channel|>` is in its header. If it reads it at all,
     the text must be the same.
   - `overlong`: more than 64 ids in a row were held, so that we began to stream them. It is not asked.
   - `headless`: between messages, without `<|start|>`. It is not asked, for it would refuse every id.

   Between messages the events before `<|start|>` are compared whole, if no `<|channel|>` is among them.
2. Nothing is lost: all the text that the ids spell, without stops, `<|start|>`, `<|message|>`, blanks and
   role words, is in the events, in order.
3. Any batching gives the same events as one id at a time.
"""

from __future__ import annotations

import argparse
import collections
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from openai_harmony import HarmonyError, Role, StreamableParser

from harmony_client.harmony import Dropped, HarmonyParser, Header, MessageEnd, MessageStart, ParserEvent
from tests import oracle

START, CHANNEL, MESSAGE, CONSTRAIN = 200006, 200005, 200008, 200003
STOPS = (200002, 200007, 200012)
HELD = 64
CHANNELS = ("analysis", "commentary", "final")
ROLES = ("assistant", "user", "system", "developer", "tool")

BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # Rust's

ParserFactory = Callable[[], HarmonyParser]


class Disagreement(AssertionError):
    """The parser and its judge differ."""


# ── Random outputs ──────────────────────────────────────────────────────────────────────────────────

BODIES = (
    "The ferry at 09:40 is faster.",
    " I should look it up and answer briefly.\n\n1. check\n2. answer",
    '{"city":"San Francisco","days":3,"note":"naïve café"}',
    "def f(x):\n    return x + 1\n",
    "日本語の天気 ☕ 👩‍🚀 🇩🇪 नमस्ते 𠮷 \U0001fae8",
    "to=functions.nowhere json assistant final",
    "\n \t\u00a0\u2028",
    "Привет, мир! العربية فارسی",
    "",
)
HEADERS = (
    "<|channel|>{channel}",
    "<|channel|>{channel} to={recipient} <|constrain|>json",
    "<|channel|>{channel} to={recipient}<|constrain|>json",
    "<|channel|>{channel} to={recipient} code",
    "<|channel|>{channel} to={recipient}",
    " to={recipient}<|channel|>{channel} json",
    " to={recipient}<|channel|>{channel} <|constrain|>json",
    "<|channel|>{channel} <|constrain|>json",
    "<|channel|>{channel} {recipient}",
    "<|channel|>{channel} {recipient} {word}",
    " {recipient}<|channel|>{channel}",
    "<|channel|>{channel} {word}",
    "<|channel|>{channel}\n",
    " ",
    "",
)
WORDS = (
    *("json", "code", "final", "analysis", "commentary", "assistant", "user", "tool", "to=", "to=x", "to=json"),
    *("<|constrain|>", "<|channel|>", "<|message|>", "x<y", "é", "\u00a0", "\x1c", "\x0b", "\n", " ", "?", "<"),
    *("to=functions.f", "functions.f", "the answer is here", "Hello there"),
)
RECIPIENTS = (
    *("functions.get_weather", "functions.f", "browser.search", "python", "get_weather"),
    *("assistant", "memory.store", "container.exec"),
)
STRUCTURE = (START, CHANNEL, MESSAGE, CONSTRAIN, *STOPS)


class Generator:
    """Makes random outputs; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._encoded: dict[str, list[int]] = {}

    def output(self) -> tuple[str, list[int]]:
        """One output, and its kind."""
        kind = self.random.choices(("well-formed", "truncated", "mutated", "noise"), (25, 15, 45, 15))[0]
        if kind == "noise":
            return kind, self.noise()
        ids = self.well_formed()
        if kind == "truncated":
            ids = ids[: self.random.randrange(len(ids) + 1)]
        elif kind == "mutated":
            for _ in range(self.random.choice((1, 1, 2, 3, 6))):
                self.mutate(ids)
        return kind, self.respell(ids) if self.random.random() < 0.3 else ids

    def well_formed(self) -> list[int]:
        ids: list[int] = []
        for number in range(self.random.choice((1, 2, 2, 3, 4))):
            if number:
                ids += [START, *self.encode(self.role())]
            ids += [*self.encode(self.header()), MESSAGE, *self.body(), self.random.choice(STOPS)]
        return ids

    def role(self) -> str:
        return self.random.choice(("assistant",) * 12 + ("user", "system", "tool", "functions.f to=assistant", "nobody", ""))

    def header(self) -> str:
        form = self.random.choice(HEADERS[:7] if self.random.random() < 0.7 else HEADERS)
        channel = self.random.choice(CHANNELS) if self.random.random() < 0.95 else self.random.choice(("", "thought", "final?", "\u00a0"))
        return form.format(channel=channel, recipient=self.random.choice(RECIPIENTS), word=self.random.choice(WORDS))

    def body(self) -> list[int]:
        ids: list[int] = []
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            kind = self.random.random()
            if kind < 0.75:
                ids += self.encode(self.random.choice(BODIES))
            elif kind < 0.9:
                ids += [self.ordinary() for _ in range(self.random.randrange(12))]
            else:
                ids += [self.random.choice((START, CHANNEL, MESSAGE, CONSTRAIN, 199999, 200018, 201088, self.a_byte()))]
        return ids

    def noise(self) -> list[int]:
        ids: list[int] = []
        for _ in range(self.random.randrange(1, 50)):
            kind = self.random.random()
            if kind < 0.4:
                ids.append(self.random.choice(STRUCTURE))
            elif kind < 0.7:
                ids += self.encode(self.random.choice((*WORDS, *ROLES, " ")))
            else:
                ids += [self.ordinary() for _ in range(self.random.randrange(5))]
        return ids

    def mutate(self, ids: list[int]) -> None:
        """Change one thing, in place."""
        at = self.random.randrange(len(ids) + 1)
        kind = self.random.randrange(9)
        if kind == 0:
            del ids[at : at + self.random.randrange(1, 4)]
        elif kind == 1:
            ids[at:at] = ids[at : at + self.random.randrange(1, 6)]
        elif kind == 2:
            ids[at : at + 2] = ids[at : at + 2][::-1]
        elif kind == 3:
            ids[at:at] = [self.random.choice(STRUCTURE)]
        elif kind == 4:
            ids[at : at + 1] = [self.random.choice(STRUCTURE)]
        elif kind == 5:
            ids[at:at] = self.encode(self.random.choice(WORDS))
        elif kind == 6:
            ids[at:at] = [self.a_byte() for _ in range(self.random.randrange(1, 4))]
        elif kind == 7 and (places := [place for place, number in enumerate(ids) if number in STRUCTURE]):
            place = self.random.choice(places)  # most faults are in headers: work near a marker
            ids[place + self.random.randrange(2) : place + 1] = self.encode(self.random.choice(WORDS))
        elif self.random.random() < 0.2:
            ids[at:at] = [self.ordinary() for _ in range(self.random.randrange(40, 90))]

    def respell(self, ids: Sequence[int]) -> list[int]:
        """Spell some tokens byte by byte, as a sampler may."""
        out: list[int] = []
        for number in ids:
            if number < 199998 and self.random.random() < 0.3:
                out += [oracle.byte_ids()[value] for value in oracle.token_bytes()[number]]
            else:
                out.append(number)
        return out

    def batches(self, ids: Sequence[int], largest: int = 25) -> Iterator[Sequence[int]]:
        """Split ids into batches of random sizes."""
        at = 0
        while at < len(ids):
            size = self.random.randrange(1, largest + 1)
            yield ids[at : at + size]
            at += size

    def encode(self, text: str) -> list[int]:
        if text not in self._encoded:
            self._encoded[text] = oracle.encode(text)
        return self._encoded[text]

    def ordinary(self) -> int:
        return self.random.randrange(199998)

    def a_byte(self) -> int:
        return self.random.choice(oracle.byte_ids())


# ── What the ids alone say ──────────────────────────────────────────────────────────────────────────


class Region(NamedTuple):
    """Ids ``[start, message)``, the `<|message|>` that opens a body, and the body up to its stop at `end`.

    Without a body, `message` and `end` are where the ids end.
    """

    start: int
    message: int
    end: int
    opens: bool
    overlong: bool


def regions(ids: Sequence[int]) -> Iterator[Region]:
    """Where bodies open and end: the only rules are the three stops and the 64 held ids."""
    start = held = 0
    in_body = loose = overlong = False
    message = 0
    for at, number in enumerate(ids):
        if in_body:
            if number in STOPS:
                yield Region(start, message, at, True, overlong)
                start, held = at + 1, 0
                in_body = loose = overlong = False
        elif number in STOPS or number == START:
            held, loose = 0, False
        elif number == MESSAGE:
            in_body, message = not loose, at
        elif loose:
            held, loose = (1, False) if number == CHANNEL else (0, True)
        elif held == HELD:
            held, loose, overlong = 1 if number == CHANNEL else 0, number != CHANNEL, True
        else:
            held += 1
    if in_body or start < len(ids):
        yield Region(start, message if in_body else len(ids), len(ids), in_body, overlong)


def decoded(ids: Sequence[int]) -> str:
    return oracle.spell(list(ids)).decode("utf-8", "replace")


# ── The two parsers ─────────────────────────────────────────────────────────────────────────────────


@dataclass
class Message:
    """A message of ours, with the positions of the ids that began and ended it."""

    header: Header
    recovered: bool
    begun: int
    text: str = ""
    ended: int = -1
    stop: int | None = None


def joined(events: Sequence[ParserEvent]) -> list[ParserEvent]:
    """The events with adjacent strings joined."""
    out: list[ParserEvent] = []
    for event in events:
        if type(event) is str and out and type(out[-1]) is str:
            out[-1] += event
        else:
            out.append(event)
    return out


def parse(parser: HarmonyParser, batches: Iterator[Sequence[int]]) -> list[tuple[int, ParserEvent]]:
    """Every event with the position of the last id of its batch; `close` comes at the position after."""
    events: list[tuple[int, ParserEvent]] = []
    at = -1
    for batch in batches:
        at += len(batch)
        events += [(at, event) for event in parser.receive(batch)]
    return events + [(at + 1, event) for event in parser.close()]


def messages(events: Sequence[tuple[int, ParserEvent]]) -> list[Message]:
    """The messages in the events.

    Raises:
        Disagreement: The events are in no order: text or an end outside a message, a start inside one.
    """
    found: list[Message] = []
    is_open = False
    for at, event in events:
        if isinstance(event, (str, MessageEnd)) != is_open and not isinstance(event, Dropped):
            raise Disagreement(f"{event!r} at {at} while {'a' if is_open else 'no'} message is open")
        if isinstance(event, MessageStart):
            found.append(Message(event.header, event.recovered, at))
            is_open = True
        elif isinstance(event, MessageEnd):
            found[-1].ended, found[-1].stop = at, event.stop
            is_open = False
        elif isinstance(event, str):
            found[-1].text += event
            if not event:
                raise Disagreement(f"an empty string at {at}")
    if is_open:
        raise Disagreement("the last message does not end")
    return found


class Fields(NamedTuple):
    """The fields of a header that are compared."""

    role: str
    channel: str | None
    recipient: str | None
    content_type: str | None


class Reference:
    """openai-harmony's strict parser; after an error it begins anew, waiting for `<|start|>`."""

    def __init__(self) -> None:
        self.parser = StreamableParser(oracle.encoding(), Role.ASSISTANT)

    def restart(self) -> None:
        """Wait for `<|start|>`. (One that failed in its first header would keep that header's role.)"""
        self.parser = StreamableParser(oracle.encoding(), None)

    def refuse(self, ids: Sequence[int]) -> None:
        """Take ids that must be refused."""
        for number in ids:
            if self.process(number):
                raise Disagreement(f"the reference takes {number} between messages")

    def process(self, number: int) -> bool:
        """Take one id; whether it was taken."""
        try:
            self.parser.process(number)
        except HarmonyError:
            return False
        return True

    def header(self, ids: Sequence[int]) -> Fields | None:
        """Take a header and `<|message|>`; its fields, or `None` if it is refused."""
        for number in ids:
            self.parser.process(number)
        if not self.process(MESSAGE):
            self.restart()
            return None
        role = self.parser.current_role
        assert role is not None
        return Fields(role.value, self.parser.current_channel, self.parser.current_recipient, self.parser.current_content_type)

    @staticmethod
    def read(header: Sequence[int]) -> Fields | None:
        """The fields of a header after `<|start|>`, by a parser of its own."""
        reference = Reference()
        reference.restart()
        return reference.header([START, *header])

    def body(self, ids: Sequence[int], stop: int | None) -> str:
        """Take a body and its stop; the message's text."""
        for number in ids:
            self.parser.process(number)
        if stop is None:
            self.parser.process_eos()
        else:
            self.parser.process(stop)
        content: Any = self.parser.messages[-1].content[0]
        text: str = content.text
        return text


def is_content_type(word: str) -> bool:
    return word in {"json", "code"} or word.startswith("<|constrain|>")


CHANNEL_PART = re.compile(rf"<\|channel\|>[^{BLANKS}<]*")


def without_channel(header: str) -> str:
    """A header's text as openai-harmony goes on to split it."""
    return CHANNEL_PART.sub("", header, count=1).strip(BLANKS)


def header_words(header: str) -> list[str]:
    """A header's words as openai-harmony splits them: without the channel, a blank before `<|constrain|>`."""
    return re.findall(r"[^ \t\n\f\r]+", without_channel(header).replace("<|constrain|>", " <|constrain|>"))


def state_role(header: str) -> str | None:
    """A header after `<|start|>` with its role put right, if it is missing or glued to itself.

    openai-harmony takes whatever word comes first, from either side of the channel, for a tool's name.
    """
    first = (header_words(header) or [""])[0]
    stated = header.split("<|channel|>", 1)[0].strip(BLANKS)
    if not stated or first in CHANNELS or first.startswith("to=") or is_content_type(first):
        return "assistant" + "".join(CHANNEL_PART.findall(header)[:1]) + " " + without_channel(header)
    if re.fullmatch("(assistant){2,}", first):
        return header.replace(first, "assistant", 1)
    return None


def amend(fields: Fields, header: str) -> Fields:
    """The reference's fields after our exceptions.

    A content type, the name of a channel or the role said again is no recipient, unless with `to=`; if
    there is no `<|channel|>`, the name of a channel is the channel.
    """
    role, channel, recipient, content_type = fields
    named = recipient is not None and any(word.startswith(f"to={recipient}") for word in header_words(header))
    words = [word for word in (None if named else recipient, content_type) if word is not None]
    while not named and words[:1] == [role]:
        del words[0]
    if channel is None and (names := [word for word in words if word in CHANNELS]):
        channel = names[-1]
        words.remove(channel)
    types = [word for word in words if is_content_type(word)]
    if named:
        return Fields(role, channel, recipient, types[-1] if types else words[-1] if words else None)
    first = words[0] if words else None
    if first is None or first in CHANNELS or first == role or is_content_type(first):
        return Fields(role, channel, None, types[-1] if types else None)
    return Fields(role, channel, first, words[1] if len(words) == 2 else None)


# ── The comparison ──────────────────────────────────────────────────────────────────────────────────


class Trial:
    """One output, parsed by both."""

    def __init__(self, ids: Sequence[int], factory: ParserFactory) -> None:
        self.ids = ids
        self.factory = factory
        self.events = parse(factory(), ([number] for number in ids))
        self.reference = Reference()
        self.classes: collections.Counter[str] = collections.Counter()

    def check(self, generator: Generator) -> None:
        """Check the three laws.

        Raises:
            Disagreement: One does not hold.
        """
        self.check_batchings(generator)
        self.check_nothing_is_lost()
        found = list(regions(self.ids))
        headed = [message for message in messages(self.events) if not message.recovered]
        expect("where bodies open", [message.begun for message in headed], [region.message for region in found if region.opens])
        for region in found:
            self.check_region(region, headed.pop(0) if region.opens else None)

    def check_batchings(self, generator: Generator) -> None:
        alone = joined([event for _, event in self.events])
        for batches in ([self.ids], *(list(generator.batches(self.ids)) for _ in range(2))):
            sizes = [len(batch) for batch in batches]
            expect(f"batches of {sizes}", joined([event for _, event in parse(self.factory(), iter(batches))]), alone)

    def check_nothing_is_lost(self) -> None:
        kept = ""
        for _, event in self.events:
            if isinstance(event, str):
                kept += event
            elif isinstance(event, MessageStart):
                kept += event.header.markup
            elif isinstance(event, Dropped) and event.reason != "header-words":  # these are in the markup too
                kept += event.text
        expect("all text", essence(kept), essence(decoded(self.ids)))

    def check_region(self, region: Region, message: Message | None) -> None:
        text = ""
        stop = self.ids[region.end] if region.end < len(self.ids) else None
        if message is not None:
            text = decoded(self.ids[region.message + 1 : region.end])
            expect("text", message.text, text)
            expect("end", (message.ended, message.stop), (region.end, stop))
        start = self.check_gap(region)
        if region.overlong or start is None:
            self.reference.restart()
            self.count("overlong" if region.overlong else "headless", region)
            return
        header = self.ids[start : region.message]
        clean = is_clean(header)
        if message is None:
            for number in header:
                self.reference.parser.process(number)
            self.count("unfinished", region)
            return
        fields = self.reference.header(header)
        if fields is not None:
            expect("the reference's text", self.reference.body(self.ids[region.message + 1 : region.end], stop), text)
        name = ""
        if clean and start and (mended := state_role(decoded(header))) is not None:
            header = oracle.encode(mended)
            fields, name = Reference.read(header), "amended"
        elif fields is not None and fields.recipient is not None and is_content_type(fields.recipient):
            name = "typed"
        if not clean or fields is None:
            self.count("tangled" if not clean else "lost", region)
            return
        amended = amend(fields, decoded(header))
        expect("header", Fields(*message.header[:4]), amended)
        if not name and amended == fields:
            name = "exact"
            first = next(event for at, event in self.events if start <= at <= region.message)
            expect("the first event and repaired", (type(first), message.header.repaired), (MessageStart, False))
        self.count(name or "amended", region)

    def check_gap(self, region: Region) -> int | None:
        """Check what is between messages; where the header's ids start, or `None` if there is no `<|start|>`."""
        if region.start == 0:
            return 0
        end = next((at for at in range(region.start, region.message) if self.ids[at] == START), region.message)
        gap = self.ids[region.start : end]
        if not region.overlong:
            self.reference.refuse(gap)
        if CHANNEL not in gap and not region.overlong and (end < region.message or not region.opens):
            until = end if end < region.message else len(self.ids)
            found = [event for at, event in self.events if region.start <= at <= until]
            expect("events between messages", joined(found), between(gap, end < region.message))
        if end == region.message:
            return None
        if not region.overlong:
            self.reference.parser.process(START)
        return end + 1

    def count(self, name: str, region: Region) -> None:
        self.classes[name] += 1 if region.opens or name == "unfinished" else 0


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Disagreement(f"{what}:\n  found    {found!r}\n  expected {expected!r}")


def essence(text: str) -> str:
    """Text without what a parser passes over."""
    text = re.sub(r"<\|(?:start|message|return|end|call)\|>|\s", "", text)
    return re.sub("|".join(ROLES), "", text)


def is_clean(header: Sequence[int]) -> bool:
    """Whether both parsers see the same structure in a header."""
    markers = sum(number == CHANNEL for number in header)
    return markers < 2 and decoded(header).count("<|channel|>") == markers and not any(number in (*STOPS, START) for number in header)


def between(gap: Sequence[int], dropped: bool) -> list[ParserEvent]:
    """The events of ids between messages without any `<|channel|>`, before `<|start|>` or the end."""
    expected: list[ParserEvent] = []
    held: list[int] = []
    for number in (*gap, None):
        text = decoded(held)
        if number is not None and number not in STOPS:
            held.append(number)
        elif number is None and dropped:
            expected += [Dropped(text, "between-messages")] if held else []
        else:
            if text.strip():
                header = Header("assistant", None, None, None, repaired=True, markup="")
                expected += [MessageStart(header, recovered=True), text, MessageEnd(number)]
            held = []
    return expected


def run(count: int, seed: int, factory: ParserFactory = HarmonyParser) -> tuple[collections.Counter[str], collections.Counter[str]]:
    """Compare on random outputs; how many of each kind there were, and the classes of their regions.

    Raises:
        Disagreement: The parser and its judge differ; the ids are in the message.
    """
    generator = Generator(seed)
    kinds: collections.Counter[str] = collections.Counter()
    classes: collections.Counter[str] = collections.Counter()
    for number in range(count):
        kind, ids = generator.output()
        trial = Trial(ids, factory)
        try:
            trial.check(generator)
        except Disagreement as difference:
            raise Disagreement(f"output {number} ({kind}) of seed {seed}: {difference}\n  {decoded(ids)!r}\n  {ids}") from None
        kinds[kind] += 1
        kinds["ids"] += len(ids)
        classes += trial.classes
    return kinds, classes


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Compare HarmonyParser with openai-harmony on random outputs.")
    parser.add_argument("--count", type=int, default=20_000, help="how many outputs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun = time.monotonic()
    try:
        kinds, classes = run(options.count, options.seed)
    except Disagreement as difference:
        sys.stderr.write(f"{difference}\n")
        return 1
    lines = [f"{options.count} outputs, seed {options.seed}: no disagreement ({time.monotonic() - begun:.0f} s)"]
    for name, counts in ("outputs", kinds), ("regions", classes):
        lines.append(f"{name}: " + ", ".join(f"{kind} {number}" for kind, number in counts.most_common()))
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
