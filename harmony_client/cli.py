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
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final, TextIO

from harmony_client import __version__
from harmony_client._cli_source import FORMS, Source, UnusableError, add_arguments, opened, usage
from harmony_client.dump import CompressedError, payloads, sse_body
from harmony_client.errors import LimitError
from harmony_client.sse import Marker

if TYPE_CHECKING:
    from harmony_client.body import RepairedBody
    from harmony_client.timeline import WatchedRepairer

__all__ = ["main"]

OK: Final = 0
FOUND: Final = 1
UNUSABLE: Final = 2
INTERRUPTED: Final = 130

_PROGRAM: Final = "harmony-client"
_SHOWN: Final = 60
_MAX_PACE: Final = 60
_WIDTH: Final = 80  # of what is drawn for no terminal

_EXAMPLES: Final = """\
examples:
  harmony-client demo
  curl -N http://gpu:8000/v1/responses -H 'content-type: application/json' \\
      -d '{"model": "gpt-oss", "input": "Hello", "stream": true}' > stream.sse
  harmony-client check stream.sse
  harmony-client check --timeline stream.sse
  harmony-client check --timeline --url http://gpu:8000/v1 'Tell me a joke.'
  harmony-client repair stream.sse > whole.sse
"""
_CHECK: Final = """\
List the violations of a stream: one line each, with the number of the event
(from 0), a stable code, and a sentence. --timeline draws the stream, too.

exit status: 0 no violations, 1 violations, 2 no stream to read
"""
_CHECK_EXAMPLES: Final = """\
examples:
  harmony-client check stream.sse
  harmony-client check --json - < stream.sse | jq -r .code | sort | uniq -c
  harmony-client check --timeline --url http://gpu:8000/v1 'Tell me a joke.'
"""
_REPAIR: Final = """\
Write the complete, well-formed stream that the client makes of a stream to
standard output, and the report to standard error. Token batches are used where
the stream has them (request header x-harmony-tokens: 1).

exit status: 0 repaired; 1 the stream ends in an error, or its terminal response
contradicts it; 2 no stream to read
"""
_REPAIR_EXAMPLES: Final = """\
examples:
  harmony-client repair stream.sse > whole.sse
  harmony-client repair --timeline stream.sse > /dev/null
  harmony-client repair --json stream.sse 2> report.json > whole.sse
  harmony-client repair --url http://gpu:8000/v1 'Tell me a joke.' > whole.sse
"""
_DEMO: Final = """\
Show what the client is for: the stock SDK and HarmonyOpenAI side by side on
recorded streams, which a server inside this command replays.

exit status: 0 all streams are whole with HarmonyOpenAI, 1 some are not,
2 it cannot run
"""
#: Codes of the errors in which a stream without a single event ends.
_NO_STREAM: Final = {"disconnected", "timeout", "not-a-stream"}

_JSON: Final = {"check": "one JSON object per violation", "repair": "the report as one JSON object"}
_TIMELINE: Final = {
    "check": "then draw the stream, as it is and repaired",
    "repair": "then draw the stream, as it is and repaired, to standard error",
}


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
    except (UnusableError, CompressedError, LimitError) as error:
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

    for name, run, purpose, description, examples in (
        ("check", _check, "list the violations of a stream", _CHECK, _CHECK_EXAMPLES),
        ("repair", _repair, "repair a stream", _REPAIR, _REPAIR_EXAMPLES),
    ):
        command = commands.add_parser(
            name, help=purpose, usage=usage(name), description=description, epilog=examples, formatter_class=layout
        )
        shape = command.add_mutually_exclusive_group()
        shape.add_argument("--json", action="store_true", help=_JSON[name])
        shape.add_argument("--timeline", action="store_true", help=_TIMELINE[name])
        add_arguments(command)
        command.set_defaults(run=run, error=command.error)
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
        raise UnusableError(str(error)) from None


def _check(options: argparse.Namespace) -> int:
    from harmony_client.checker import Checker
    from harmony_client.wire import EVENT_TYPE

    checker, watched = Checker(), _watched(options)
    events = batches = found = 0
    with opened(options, _say) as source:
        for payload in payloads(source.chunks()):
            if payload in (Marker.EMPTY, Marker.DONE):
                continue
            event: Any = payload if isinstance(payload, dict) else "unreadable data"
            if watched is not None:
                watched.watch(event)
            if isinstance(payload, dict) and payload.get("type") == EVENT_TYPE:
                batches += 1  # no violation here: this is what a server sends to who asks for it
            else:
                found += _print_violations(checker.receive(event), events, options)
            events += 1
        if not events:
            raise _no_events(source)
    found += _print_violations(checker.close(), events, options)
    tokens = f" (and {_count(batches, 'token batch', 'token batches')})" if batches else ""
    _say(f"{_count(found, 'violation')} in {_count(events - batches, 'event')}{tokens}")
    if source.broken is not None:
        _say(f"the connection broke: {source.broken!r}")
    if watched is not None:
        watched.receive_eof(source.broken)
        _draw(watched, sys.stdout)
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

    watched = _watched(options)
    body = RepairedBody(watched or StreamRepairer(on_mismatch="ignore"))  # the report says so
    with opened(options, _say) as source:
        for events in _repaired(body, source):
            for event in events:
                sys.stdout.buffer.write(_frame(event))
            sys.stdout.buffer.flush()
    report, failure = body.report, body.failure
    if failure is not None and failure.code in _NO_STREAM and not report.events_received and not report.skipped_data:
        raise _no_events(source)
    if options.json:
        _say(json.dumps(report.as_dict()))
    else:
        for line in _report_lines(report):
            _say(line)
        if failure is not None:
            _say(f"error: {failure.code}: {failure}")
    if watched is not None:
        _draw(watched, sys.stderr)
    return FOUND if failure is not None or report.verdict == "mismatch" else OK


def _repaired(body: RepairedBody, source: Source) -> Iterator[list[dict[str, Any]]]:
    for piece in sse_body(source.chunks()):
        for events in body.receive_data(piece):
            yield events
            if body.finished:
                return
    yield from body.receive_eof(source.broken)


def _watched(options: argparse.Namespace) -> WatchedRepairer | None:
    if not options.timeline:
        return None
    from harmony_client.timeline import WatchedRepairer

    return WatchedRepairer(on_mismatch="ignore")


def _draw(watched: WatchedRepairer, file: TextIO) -> None:
    """Draw for the eye: on a terminal in its width and in colour, else 80 columns wide."""
    from harmony_client.timeline import Look

    plain = not file.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    for line in watched.draw(Look(_width(file), unicode=_shows_unicode(file), colour=not plain)):
        print(line, file=file)


def _width(file: TextIO) -> int:
    if file.isatty():
        if (columns := os.environ.get("COLUMNS", "")).isdecimal():
            return int(columns)
        with suppress(OSError):  # not shutil's function, which asks standard output only
            return os.get_terminal_size(file.fileno()).columns or _WIDTH
    return _WIDTH


def _shows_unicode(file: TextIO) -> bool:
    try:
        "├█─┤◆·▮≠“”…".encode(file.encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


# --- output ---------------------------------------------------------------------------------------


def _no_events(source: Source) -> UnusableError:
    if source.broken is not None:
        return UnusableError(f"{source.name}: the connection broke before the first event: {source.broken!r}")
    return UnusableError(f"{source.name}: no events; expected {FORMS}")


def _frame(event: dict[str, Any]) -> bytes:
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    try:
        return f"event: {event['type']}\ndata: {data}\n\n".encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold and UTF-8 cannot
        return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode("utf-8", "replace")


def _say(text: str) -> None:
    sys.stdout.flush()  # where both go to one file, they stand in the order in which they were written
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
