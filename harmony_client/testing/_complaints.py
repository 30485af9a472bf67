"""What a test left undone with a scripted reply, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harmony_client.testing._faults import names_of
from harmony_client.testing._http import Play

if TYPE_CHECKING:
    from harmony_client.report import Report
    from harmony_client.testing._reply import Reply

__all__ = ["of"]


def of(reply: Reply, name: str) -> Iterator[str]:
    """The complaints about one reply.

    Args:
        reply: The reply.
        name: How the sentences call it, at their beginning or after another word.
    """
    called = f"{name} ({reply})"
    if not reply.plays:
        yield f"{called} was never requested{_unused(reply)}."
    for play in reply.plays:
        yield from _of_play(reply, play, called)


def _of_play(reply: Reply, play: Play, called: str) -> Iterator[str]:
    if not play.streamed:
        if unused := _unused(reply):
            yield f"{called} was requested without streaming{unused}."
        return
    if not play.read and not (play.ended and not play.chunks):
        yield f"{called} was requested, but its stream was never read{_unused(reply)}."
        return
    if not play.ended and not play.closed:
        yield f"{called}: its stream was left open after chunk {play.read} of {len(play.chunks)}. Read it to its end, or close it."
        return
    if reply.cut_after is not None and (not play.ended or play.frames <= reply.cut_after):
        had = f"has only {play.frames}" if play.frames <= reply.cut_after else f"was left after chunk {play.read}"
        yield f"{called} was to be cut ({reply.cut_by}) after frame {reply.cut_after}, but its stream {had}."
    if play.report is not None:
        yield from _of_report(reply, play.report, called)


def _of_report(reply: Reply, report: Report, called: str) -> Iterator[str]:
    wanted = reply.expected
    if wanted in ("any", report.verdict):
        return
    found = [f"{difference.field} of item {difference.output_index}" for difference in report.unexpected_differences]
    why = ", ".join(found) if found else f"the stream ended as {report.ending!r}"
    yield (
        f"{called}: the verdict is {report.verdict!r}, not {wanted!r} ({why}). "
        f"If that is what the test is about, script the reply with verdict={report.verdict!r}."
    )


def _unused(reply: Reply) -> str:
    """What of its script was therefore of no use."""
    names = names_of(reply.faults)
    if reply.cut_after is not None:
        names.append(f"cut_after={reply.cut_after}")
    return f", so {', '.join(names)} {'was' if len(names) == 1 else 'were'} never used" if names else ""
