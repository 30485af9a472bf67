"""Recorded streams without token batches: repaired from events and snapshot alone."""

from __future__ import annotations

from collections import Counter

import pytest

from harmony_client.verify import text_of
from tests.judge import TERMINALS, Played, play
from tests.recordings import NAMES, Recording, load
from tests.sdk_oracle import see

FINISHED = [recording for name in NAMES for recording in load(name) if recording.raised is None]
FAILED = [recording for name in NAMES for recording in load(name) if recording.raised is not None]
TENSORRT = ("v12", "main", "pr")
#: vLLM 0.24 streams one item's text under another's type; only holding it back can mend that.
MODES = ("auto", "live", "hold")


def mended(recording: Recording, deltas: str) -> Played:
    error = ConnectionResetError("reset by peer") if recording.breaks else None
    return play(recording.events(frames=False), error=error, tools=recording.tools, deltas=deltas)


@pytest.mark.parametrize("deltas", MODES)
@pytest.mark.parametrize("recording", FINISHED, ids=str)
def test_a_finished_recording_is_accepted_by_the_sdk_with_every_item_announced_and_closed_once(recording: Recording, deltas: str) -> None:
    stream = mended(recording, deltas)
    assert stream.failure is None
    assert stream.violations() == []
    seen = see(stream.events)
    assert seen.error is None
    assert seen.final is not None
    listed = [(entry["type"], entry["id"]) for entry in seen.final["output"]]
    assert [(item.kind, item.added["id"]) for item in stream.items] == listed
    assert all(item.done is not None for item in stream.items)
    server = recording.snapshot
    assert server is not None
    missing = Counter(entry["type"] for entry in server["output"]) - Counter(kind for kind, _ in listed)
    assert not missing
    assert stream.report.basis == "events"


@pytest.mark.parametrize("recording", [recording for name in TENSORRT for recording in load(name) if recording.raised is None], ids=str)
def test_held_deltas_join_to_the_text_of_the_terminal_response(recording: Recording) -> None:
    stream = mended(recording, "hold")
    server = recording.snapshot
    assert server is not None
    texts = [(entry["type"], text_of(entry)) for entry in server["output"]]
    assert sorted(stream.texts) == sorted(texts)
    assert stream.report.verdict == "match"
    assert "text-replaced" not in stream.report.repair_codes


@pytest.mark.parametrize("deltas", MODES)
@pytest.mark.parametrize("recording", FAILED, ids=str)
def test_a_failed_recording_ends_in_the_error_or_the_failed_event_with_all_that_came(recording: Recording, deltas: str) -> None:
    stream = mended(recording, deltas)
    assert stream.violations() == []
    assert all(item.done is not None for item in stream.items)
    if recording.breaks:
        assert stream.failure is not None
        assert stream.failure.code == "disconnected"
        assert stream.failure.partial is not None
        assert [entry["id"] for entry in stream.failure.partial["output"]] == [item.added["id"] for item in stream.items]
        if "text-replaced" not in stream.report.repair_codes:
            assert [text_of(entry) for entry in stream.failure.partial["output"]] == [
                text for kind, text in stream.texts if kind != "mcp_call"
            ]
    else:
        assert stream.terminal is not None
        assert stream.terminal["type"] == "response.failed"
    if deltas == "live":
        shown = "".join(text for _, text in stream.texts)
        assert all(event["delta"] in shown for event in recording.events(frames=False) if event["type"].endswith(".delta"))


def test_without_tokens_a_verdict_is_never_better_than_what_was_streamed() -> None:
    for recording in FINISHED:
        for deltas in MODES:
            stream = mended(recording, deltas)
            server = recording.snapshot
            assert server is not None
            same = sorted(stream.texts) == sorted((entry["type"], text_of(entry)) for entry in server["output"])
            opaque = any(kind not in ("message", "reasoning", "function_call") for kind, _ in stream.texts)
            if stream.report.verdict == "match" and not opaque:
                assert same, (recording, deltas)


def test_what_each_mode_gives_on_tensorrt_recordings_is_what_the_documentation_says() -> None:
    finished = [recording for name in TENSORRT for recording in load(name) if recording.raised is None]
    matched = {deltas: sum(mended(recording, deltas).report.verdict == "match" for recording in finished) for deltas in MODES}
    assert matched["hold"] == len(finished) == 298
    assert matched["auto"] == 298
    assert matched["live"] < 200
    assert all(stream.events[-1]["type"] in TERMINALS for stream in (mended(recording, "auto") for recording in finished))
