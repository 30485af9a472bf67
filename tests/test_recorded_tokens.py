"""Recorded streams with token batches: every word, item, index and id is right, and the verdict says so."""

from __future__ import annotations

from collections import Counter
from typing import Any

import openai_harmony
import pytest

from tests.judge import Played, play
from tests.oracle import encoding
from tests.recordings import Recording, load, load_all

RECORDINGS = load_all()
TENSORRT = [recording for name in ("v12", "main", "pr") for recording in load(name)]

#: What comes out where the server's own code failed at the end of the response.
RESCUED = {
    "bad_header": ([("reasoning", "Thinking."), ("function_call", "{}")], "response.completed"),
    "no_channel": ([("reasoning", "Hm."), ("message", "no channel here")], "response.completed"),
    "unknown_recipient": ([("reasoning", "Hm."), ("function_call", "x=1")], "response.completed"),
    "duplicate_end": (["reasoning", "message"], "response.completed"),
    "stray_return_after_end": (["reasoning", "message"], "response.completed"),
    "truncated_header": (["reasoning"], "response.incomplete"),
}


def played(recording: Recording, **options: Any) -> Played:
    error = ConnectionResetError("reset by peer") if recording.breaks else None
    return play(recording.events(frames=True), error=error, tools=recording.tools, **options)


def reference(token_ids: list[int]) -> list[tuple[str, str]] | None:
    """What openai-harmony makes of the ids: kinds and texts of the items; ``None`` if it cannot read them."""
    parser = openai_harmony.StreamableParser(encoding(), openai_harmony.Role.ASSISTANT)
    try:
        for token_id in token_ids:
            parser.process(token_id)
        parser.process_eos()
    except openai_harmony.HarmonyError:
        return None
    return [(kind, message.content[0].text) for message in parser.messages if (kind := _kind(message)) is not None]


def _kind(message: Any) -> str | None:
    recipient = message.recipient or ""
    if recipient.startswith("functions.") or recipient == "memory.store":
        return "function_call"
    if recipient == "browser.search":
        return "web_search_call"
    if message.channel == "analysis" or recipient == "python":
        return "reasoning"
    return "message" if message.channel in ("final", None) else "preamble"


@pytest.mark.parametrize("recording", RECORDINGS, ids=str)
def test_a_recording_with_tokens_comes_out_whole_and_well_formed(recording: Recording) -> None:
    stream = played(recording)
    assert stream.failure is None
    assert stream.violations() == []
    assert stream.report.mode == "tokens"
    assert stream.report.basis == "tokens"
    assert stream.report.output_tokens == len(recording.token_ids)
    assert stream.terminal is not None
    expected = reference(recording.token_ids)
    if expected is not None:
        # A preamble is a message where the server lists it, else text in the report; a search shows its query only.
        listed = not stream.report.preambles
        shown = [("message" if kind == "preamble" else kind, text) for kind, text in expected if listed or kind != "preamble"]
        assert [pair for pair in stream.texts if pair[0] != "web_search_call"] == [pair for pair in shown if pair[0] != "web_search_call"]
        assert [kind for kind, _ in stream.texts] == [kind for kind, _ in shown]
        assert listed or stream.report.preambles == [text for kind, text in expected if kind == "preamble"]


@pytest.mark.parametrize("recording", [recording for recording in RECORDINGS if recording.snapshot is not None], ids=str)
def test_the_terminal_response_lists_what_was_streamed_under_the_streamed_ids(recording: Recording) -> None:
    stream = played(recording)
    assert stream.terminal is not None
    output = stream.terminal["response"]["output"]
    assert [entry["id"] for entry in output] == [item.added["id"] for item in stream.items]
    assert len({entry["id"] for entry in output}) == len(output)
    assert all(entry["id"] for entry in output)
    server = stream.report.server_response
    if server is not None and recording.raised is None:
        assert server == recording.snapshot
        assert stream.terminal["response"]["id"] == server["id"]
        assert stream.terminal["response"].get("usage") == server.get("usage")


def test_the_tensorrt_recordings_are_matched_or_could_not_be_and_never_mismatched() -> None:
    verdicts = Counter(played(recording).report.verdict for recording in TENSORRT)
    assert verdicts == {"match": 298, "unverifiable": 72}


def test_the_vllm_recordings_are_matched_or_could_not_be_and_never_mismatched() -> None:
    verdicts = Counter(played(recording).report.verdict for name in ("vllm-0.33", "vllm-0.24") for recording in load(name))
    assert verdicts["mismatch"] == 0
    assert verdicts["unverifiable"] == sum(recording.raised is not None for name in ("vllm-0.33", "vllm-0.24") for recording in load(name))


def test_a_difference_that_the_servers_mapping_explains_is_listed_with_its_reason() -> None:
    found = {(difference.field, difference.reason) for recording in RECORDINGS for difference in played(recording).report.differences}
    assert found == {
        ("kind", "call on the analysis channel"),
        ("kind", "unknown recipient"),
        ("kind", "content type misread as a recipient"),
        ("item", "message with a malformed header left out"),
        ("item", "message of header markup"),
        ("status", "the server calls a cut answer complete"),
    }


@pytest.mark.parametrize("recording", [recording for recording in TENSORRT if recording.raised], ids=str)
def test_what_the_server_could_not_list_is_rescued_from_the_tokens(recording: Recording) -> None:
    stream = played(recording)
    items, terminal = RESCUED[recording.scenario]
    got: list[Any] = stream.texts if isinstance(items[0], tuple) else [kind for kind, _ in stream.texts]
    assert got == items
    assert stream.terminal is not None
    assert stream.terminal["type"] == terminal
    assert "terminal-synthesized" in stream.report.repair_codes
    names = {item.done["name"] for item in stream.items if item.done is not None and item.kind == "function_call"}
    assert names <= {"get_weather", "memory.store"}


@pytest.mark.parametrize("recording", [recording for recording in RECORDINGS if recording.finish_reason == "length"], ids=str)
def test_a_cut_answer_ends_in_response_incomplete(recording: Recording) -> None:
    stream = played(recording)
    assert stream.terminal is not None
    assert stream.terminal["type"] == "response.incomplete"
    assert stream.terminal["response"]["status"] == "incomplete"
    assert stream.terminal["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_the_size_of_the_batches_does_not_matter(size: int) -> None:
    for recording in load("main"):
        whole, recut = played(recording), play(recording.events(frames=True, k=size), tools=recording.tools)
        assert recut.texts == whole.texts
        assert [item.done for item in recut.items] == [item.done for item in whole.items]
        assert recut.report.verdict == whole.report.verdict


def test_a_preamble_is_in_the_report_or_shown_as_asked() -> None:
    recording = next(recording for recording in load("v12") if recording.scenario == "preamble_tool" and recording.pattern == "20")
    silent, shown = played(recording), played(recording, preambles="message")
    assert silent.report.preambles == ["I'll check the weather first."]
    assert [kind for kind, _ in silent.texts] == ["reasoning", "function_call"]
    assert shown.report.preambles == []
    assert shown.texts[1] == ("message", "I'll check the weather first.")
    assert shown.items[1].added["phase"] == "commentary"
    assert shown.report.verdict == "match"
    assert [difference.reason for difference in shown.report.differences] == ["preamble left out"]
