"""The faults of scripted replies: each alone, all that servers commit, and TensorRT-LLM's all at once."""

from __future__ import annotations

import contextlib
import json
from functools import cache
from typing import Any

import pytest

from harmony_client import StreamRepairer, check
from harmony_client.dump import payloads
from harmony_client.report import Report
from harmony_client.testing import FAULTS, PRESETS, Reply
from harmony_client.testing._draft import draft
from harmony_client.testing._faults import apply
from tests.recordings import NAMES, Recording, load, load_cases

ANSWER = "It is sunny in Paris."
CALL: list[tuple[str, Any]] = [("get_weather", {"city": "Paris in France"})]
FULL: dict[str, Any] = {"reasoning": "I have to look.", "calls": CALL, "answer": ANSWER}
#: What a fault needs to be seen alone, where that is not FULL.
SCRIPTS: dict[str, dict[str, Any]] = {
    "tool-in-terminal-only": {"reasoning": "I have to look.", "calls": CALL},
    "lose-deltas": {"answer": ANSWER, "tokens_per_batch": 4},
    "trimmed-call": {"calls": CALL},
    "open-when-cut": {"answer": ANSWER, "finish_reason": "length"},
    "completed-when-cut": {"answer": ANSWER, "finish_reason": "length"},
}


def script(name: str) -> dict[str, Any]:
    """A reply with one fault."""
    return {**SCRIPTS.get(name, FULL), "faults": name}


def report(reply: Reply, *, tokens: bool) -> Report:
    """What the repairer makes of a reply."""
    repairer = StreamRepairer(on_mismatch="ignore")
    for event in reply.events(tokens=tokens):
        if isinstance(event, dict):
            repairer.receive(event)
    repairer.receive_eof()
    return repairer.report


def verdict(name: str, *, tokens: bool) -> str:
    return report(Reply(**script(name)), tokens=tokens).verdict


#: Faults that no client can repair; `doubled-delta` is seen only without tokens.
MISMATCH = {"changed-kind", "short-terminal", "reversed-terminal", "empty-terminal-text"}
UNVERIFIABLE = {"broken-ending", "error-ending", "no-terminal"}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_the_violations_it_says(name: str) -> None:
    found = check(Reply(**script(name)).events(tokens=False))
    assert {violation.code for violation in found} == set(FAULTS[name].codes)


@pytest.mark.parametrize("name", FAULTS)
def test_with_tokens_everything_is_right_but_the_terminal_response(name: str) -> None:
    expected = "mismatch" if name in MISMATCH else "unverifiable" if name in UNVERIFIABLE else "match"
    assert verdict(name, tokens=True) == expected


@pytest.mark.parametrize("name", FAULTS)
def test_the_tokens_are_untouched_by_a_fault_of_the_events(name: str) -> None:
    made = report(Reply(**script(name)), tokens=True)
    assert made.mode == ("lost" if name == "lose-token-batch" else "tokens")
    assert made.finish_reason == SCRIPTS.get(name, FULL).get("finish_reason", "stop") or made.mode == "lost"


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_described(name: str) -> None:
    assert name == name.lower().strip("-")
    assert FAULTS[name].what.endswith(".")
    assert "  " not in name.replace("-", " ")


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in SCRIPTS])
def test_faults_can_be_combined_with_a_preset(name: str) -> None:
    faults = ["tensorrt-llm", name]
    with contextlib.suppress(ValueError):  # TensorRT-LLM has lost already what it needs
        assert report(Reply(**FULL, faults=faults, tokens_per_batch=3), tokens=True).ending is not None


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.needs == "an output item"])
def test_where_there_is_no_item_a_fault_of_items_does_not_show(name: str) -> None:
    with pytest.raises(ValueError, match="it needs an output item"):
        Reply(preamble="Let me look.", faults=name)


# --- what servers commit ------------------------------------------------------------------------------


@cache
def recorded_codes() -> set[str]:
    """The violations in the recordings of TensorRT-LLM and vLLM."""
    return {violation.code for name in NAMES for recording in load(name) for violation in check(recording.events(frames=False))}


def reported_codes() -> set[str]:
    """Those in the streams of public reports."""
    codes = set()
    for case in load_cases():
        if case["level"] == "event":
            codes |= {violation.code for violation in check(case["events"])}
        elif case.get("raw_sse"):
            codes |= {violation.code for violation in check(payloads([case["raw_sse"].encode()]))}
    return codes - {"token-batch-leaked"}


def test_every_violation_that_recorded_servers_commit_has_a_fault() -> None:
    made = {code for fault in FAULTS.values() for code in fault.codes}
    assert recorded_codes() - made == set()
    assert len(recorded_codes()) > 15


def test_every_violation_in_public_reports_has_a_fault() -> None:
    made = {code for fault in FAULTS.values() for code in fault.codes}
    assert reported_codes() - made == set()


# --- TensorRT-LLM -------------------------------------------------------------------------------------

#: Outputs of which the server makes other items than are made here, and one that needs another trimmed token.
ELSE = {"python_commentary", "structured_final", "tool_analysis_channel", "trimmed_return"}
RECORDED = [recording for recording in load("v12") if not recording.raised and recording.pattern.isdecimal()]


def told(events: list[Any]) -> list[tuple[Any, ...]]:
    """What the events of a stream say, fresh ids and optional fields left out."""
    return [_told(event) for event in events]


def _told(event: dict[str, Any]) -> tuple[Any, ...]:
    said: Any = event.get("delta", event.get("text", event.get("arguments")))
    if "response" in event:
        said = [event["response"]["status"], *(_item(item)[1:] for item in event["response"]["output"])]
    elif "part" in event:
        said = (event["part"]["type"], event["part"]["text"])
    elif "item" in event:
        said = _item(event["item"])
    places = [event.get(name) for name in ("output_index", "item_id", "content_index", "sequence_number")]
    return (event["type"], *places, said)


def _item(item: dict[str, Any]) -> tuple[Any, ...]:
    return (item["id"], item["type"], item.get("arguments"), [part["text"] for part in item.get("content") or ()])


@pytest.mark.parametrize("recording", [r for r in RECORDED if r.scenario not in ELSE], ids=str)
def test_the_preset_sends_what_tensorrt_llm_sent(recording: Recording) -> None:
    trimmed = [recording.stop_reason] if isinstance(recording.stop_reason, int) else []
    made = draft(
        [*recording.token_ids, *trimmed],
        tokens_per_batch=int(recording.pattern),
        finish_reason=recording.finish_reason or "stop",
        server=None,
        request={"tools": [{"type": "function", "name": name} for name in recording.tools]},
        serial=0,
    )
    apply(made, "tensorrt-llm")
    sent = [json.loads(frame.partition(b"data: ")[2]) for frame in made.frames(tokens=False)]
    assert told(sent) == told(recording.events(frames=False))


def test_most_recordings_are_compared() -> None:
    assert len([recording for recording in RECORDED if recording.scenario not in ELSE]) == 62
    assert len(RECORDED) == 74


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
@pytest.mark.parametrize(
    "said",
    [
        {"answer": ANSWER},
        {"reasoning": "Hm."},
        {"calls": CALL},
        FULL,
        {"preamble": "Look."},
        {"answer": ""},
        {**FULL, "finish_reason": "length"},
    ],
    ids=str,
)
def test_a_preset_shows_what_it_can_of_any_reply(said: dict[str, Any], size: int, preset: str) -> None:
    reply = Reply(**said, faults=preset, tokens_per_batch=size)
    assert report(reply, tokens=True).verdict == "match"
    assert report(reply, tokens=False).verdict == "match"


def test_a_preset_names_faults() -> None:
    assert all(name in FAULTS for names in PRESETS.values() for name in names)
