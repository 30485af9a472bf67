"""The command ``harmony-client``: ``demo``, ``check`` and ``repair``.

Results go to standard output, talk to standard error. The exit status is 0 if all is well, 1 if the
stream is not, and 2 for a usage or input error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, Final

from harmony_client import __version__
from harmony_client.dump import CompressedError, payloads, sse_body
from harmony_client.errors import DisconnectedError, LimitError

__all__ = ["main"]

OK: Final = 0
FOUND: Final = 1
UNUSABLE: Final = 2
INTERRUPTED: Final = 130

_PROGRAM: Final = "harmony-client"
_READ_SIZE: Final = 1 << 16
_SHOWN: Final = 60
_MAX_PACE: Final = 60

_EXAMPLES: Final = """\
examples:
  harmony-client demo
  curl -N http://gpu:8000/v1/responses -H 'content-type: application/json' \\
      -d '{"model": "gpt-oss", "input": "Hello", "stream": true}' > stream.sse
  harmony-client check stream.sse
  harmony-client repair stream.sse > whole.sse
"""
_CHECK: Final = """\
List the violations of a recorded stream: one line each, with the number of the
event (from 0), a stable code, and a sentence.

exit status: 0 no violations, 1 violations, 2 no stream to read
"""
_REPAIR: Final = """\
Write the complete, well-formed stream that the client makes of a recorded one
to standard output, and the report to standard error. Token batches are used
where the recording has them (request header x-harmony-tokens: 1).

exit status: 0 repaired; 1 the stream ends in an error, or its terminal response
contradicts it; 2 no stream to read
"""
_DEMO: Final = """\
Show what the client is for: the stock SDK and HarmonyOpenAI side by side on
recorded streams, which a server inside this command replays.

exit status: 0 all streams are whole with HarmonyOpenAI, 1 some are not,
2 it cannot run
"""
_FORMS: Final = "a recorded stream: server-sent events, JSON lines, or what curl -i prints; - for standard input"


class _UnusableError(Exception):
    """The input cannot be worked with; the message is for the user."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: Without the program's name; ``None``: those of the process.

    Returns:
        The exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character is no reason to stop
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read our output has left, as `head` does. Python must not complain at exit, when it flushes once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNUSABLE
    except (_UnusableError, CompressedError, LimitError) as error:
        return _complain(str(error))
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _run(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        return UNUSABLE
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def _complain(message: str) -> int:
    _say(f"{_PROGRAM}: {message}")
    return UNUSABLE


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description="Complete, verified gpt-oss streams for the OpenAI SDK.", epilog=_EXAMPLES, formatter_class=layout
    )
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")

    demo = commands.add_parser("demo", help="show what the client is for, on recorded streams", description=_DEMO, formatter_class=layout)
    demo.add_argument("--pace", type=_seconds, default=0.0, metavar="SECONDS", help="wait before each batch, to watch the text arrive")
    demo.add_argument("--json", action="store_true", help="one JSON object per stream and client; the talk goes to standard error")
    demo.set_defaults(run=_demo)

    check = commands.add_parser("check", help="list the violations of a recorded stream", description=_CHECK, formatter_class=layout)
    check.add_argument("--json", action="store_true", help="one JSON object per violation")
    check.set_defaults(run=_check)

    repair = commands.add_parser("repair", help="repair a recorded stream", description=_REPAIR, formatter_class=layout)
    repair.add_argument("--json", action="store_true", help="the report as one JSON object")
    repair.set_defaults(run=_repair)

    for command in (check, repair):
        command.add_argument("file", metavar="FILE", help=_FORMS)
    return parser


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (value := float(text)) <= _MAX_PACE:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {_MAX_PACE}")


# --- commands -------------------------------------------------------------------------------------


def _demo(options: argparse.Namespace) -> int:
    from harmony_client import demo

    try:
        return demo.run(options)
    except demo.MissingExtraError as error:
        raise _UnusableError(str(error)) from None


def _check(options: argparse.Namespace) -> int:
    from harmony_client.checker import Checker
    from harmony_client.sse import Marker
    from harmony_client.wire import EVENT_TYPE

    checker = Checker()
    events = batches = found = 0
    for payload in payloads(_chunks(options.file)):
        if payload in (Marker.EMPTY, Marker.DONE):
            continue
        if isinstance(payload, dict) and payload.get("type") == EVENT_TYPE:
            batches += 1  # no violation here: this is what a server sends to who asks for it
        else:
            event: Any = payload if isinstance(payload, dict) else "unreadable data"
            found += _print_violations(checker.receive(event), events, options)
        events += 1
    if not events:
        raise _no_events(options.file)
    found += _print_violations(checker.close(), events, options)
    tokens = f" (and {_count(batches, 'token batch', 'token batches')})" if batches else ""
    _say(f"{_count(found, 'violation')} in {_count(events - batches, 'event')}{tokens}")
    return FOUND if found else OK


def _print_violations(violations: Sequence[Any], position: int, options: argparse.Namespace) -> int:
    for violation in violations:
        if options.json:
            print(json.dumps({**violation._asdict(), "position": position}))
        else:
            print(_printable(f"event {position}: {violation.code}: {violation.message}"))
    return len(violations)


def _repair(options: argparse.Namespace) -> int:
    from harmony_client.body import RepairedBody
    from harmony_client.repair import StreamRepairer

    body = RepairedBody(StreamRepairer(on_mismatch="ignore"))  # the report says so
    for events in _repaired(body, sse_body(_chunks(options.file))):
        for event in events:
            sys.stdout.buffer.write(_frame(event))
        sys.stdout.buffer.flush()
    report, failure = body.report, body.failure
    if isinstance(failure, DisconnectedError) and not report.events_received and not report.skipped_data:
        raise _no_events(options.file)
    if options.json:
        _say(json.dumps(report.as_dict()))
    else:
        for line in _report_lines(report):
            _say(line)
        if failure is not None:
            _say(f"error: {failure.code}: {failure}")
    return FOUND if failure is not None or report.verdict == "mismatch" else OK


def _repaired(body: Any, pieces: Iterator[bytes]) -> Iterator[list[dict[str, Any]]]:
    for piece in pieces:
        for events in body.receive_data(piece):
            yield events
            if body.finished:
                return
    yield from body.receive_eof()


# --- input and output -----------------------------------------------------------------------------


def _chunks(name: str) -> Iterator[bytes]:
    """The bytes of a file as they come, so that a stream which still runs can be piped in."""
    with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
        if file.isatty():
            _say("reading from the terminal; end with Ctrl-D")
        yield from iter(lambda: _read(file), b"")


def _read(file: BinaryIO) -> bytes:
    # Not read(), which waits until the buffer is full.
    return file.read1(_READ_SIZE)  # type: ignore[attr-defined,no-any-return]


def _no_events(name: str) -> _UnusableError:
    source = "standard input" if name == "-" else name
    return _UnusableError(f"{source}: no events; expected server-sent events, JSON lines, or what curl -i prints")


def _frame(event: dict[str, Any]) -> bytes:
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    try:
        return f"event: {event['type']}\ndata: {data}\n\n".encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold and UTF-8 cannot
        return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode("utf-8", "replace")


def _say(text: str) -> None:
    print(_printable(text), file=sys.stderr)


def _printable(text: str) -> str:
    """Without control characters: what a server sent must not steer the terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number or 'no'} {plural or noun + 's'}"


def _report_lines(report: Any) -> Iterator[str]:
    yield f"verdict: {report.verdict} (made from {report.basis})"
    yield f"ending: {report.ending}"
    yield f"events: {report.events_received} read, {report.events_sent} written"
    if report.output_tokens is not None:
        yield f"tokens: {report.output_tokens}, finish reason {report.finish_reason}, from {report.server or 'an unnamed server'}"
    if report.lost_reason is not None:
        yield f"tokens lost: {report.lost_reason}"
    for entry in report.repairs:
        where = "response" if entry.output_index is None else f"item {entry.output_index}"
        times = f", {entry.count} times" if entry.count > 1 else ""
        detail = f" ({entry.detail})" if entry.detail else ""
        yield f"repair: {entry.code}: {where}, event {entry.event}{times}{detail}"
    for entry in report.differences:
        where = "item" if entry.output_index is None else f"item {entry.output_index}"
        expected = f" (expected: {entry.reason})" if entry.expected else ""
        yield f"difference: {where} {entry.field}: streamed {_short(entry.streamed)}, server {_short(entry.server)}{expected}"
    for entry in report.dropped:
        yield f"dropped: {entry.reason}: {_short(entry.text)}"
    for text in report.preambles:
        yield f"preamble: {_short(text)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


if __name__ == "__main__":
    sys.exit(main())
