"""The checker and the OpenAI SDK agree: what has no violation passes the SDK's accumulator whole."""

from __future__ import annotations

import copy
import random

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_client.checker import check
from tests.faults import FAULTS
from tests.recordings import load
from tests.sdk_oracle import HTTPX, accepts, see
from tests.streams import CUSTOM, Call, Message, Reasoning, Tool, build, numbered, sample, specs

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
STRICT = openai.VERSION.split(".") >= ["3"]


def test_the_judge_runs_on_the_http_package_of_the_sdk():
    assert HTTPX.__name__ == ("httpx2" if STRICT else "httpx")


def test_it_reports_what_the_sdk_hands_out():
    events = build([Reasoning([["Let me ", "think."]], [["Th", "ink"]]), Message([["It ", "rains."]]), Call(['{"a":', "1}"]), Tool()])
    seen = see(events)
    assert seen.error is None
    assert seen.types == [event["type"] for event in events]
    assert dict(seen.deltas) == {0: "Let me think.", 1: "It rains.", 2: '{"a":1}'}
    assert dict(seen.summaries) == {0: "Think"}
    assert seen.accumulated == {1: "It rains.", 2: '{"a":1}'}
    assert seen.text == "It rains."
    assert [item["type"] for item in seen.announced.values()] == ["reasoning", "message", "function_call", "web_search_call"]
    assert [item["id"] for item in seen.done.values()] == ["rs_0", "msg_1", "fc_2", "tool_3"]
    assert seen.final is not None
    assert [item["id"] for item in seen.final["output"]] == ["rs_0", "msg_1", "fc_2", "tool_3"]


@settings(max_examples=40, deadline=None)
@given(specs(), st.sampled_from(["completed", "incomplete", "failed"]))
def test_the_sdk_accepts_what_the_checker_finds_well_formed(wanted, status):
    events = build(wanted, status)
    assert accepts(events)


def test_the_sdk_accepts_recordings_without_a_violation():
    for recording in load("vllm-0.33"):
        events = recording.events(frames=False)
        if recording.pattern == "20" and not check(events):
            assert accepts(events), recording


@pytest.mark.parametrize("seed", range(8))
def test_the_sdk_accepts_a_mutated_stream_where_the_checker_finds_nothing(seed):
    chance = random.Random(seed)
    harmless = [events for events in (mutated(chance) for _ in range(60)) if not check(events)]
    assert harmless
    for events in harmless:
        assert accepts(events), events


def mutated(chance):
    """A built stream with an event dropped, repeated or swapped, or one value in it replaced."""
    items = [Reasoning([["a", "b"]], [["s"]]), Message([["c"], ["d"]], [["no"]], True), Call(["{", "}"]), Tool(), CUSTOM, Message([["e"]])]
    events = build(items[chance.randrange(4) :][: chance.randrange(1, 5)])
    at = chance.randrange(len(events))
    match chance.choice(["drop", "repeat", "swap", "set", "remove", "borrow"]):
        case "drop":
            del events[at]
        case "repeat":
            events.insert(chance.randrange(len(events) + 1), copy.deepcopy(events[at]))
        case "swap":
            events[at - 1], events[at] = events[at], events[at - 1]
        case how:
            container, key = chance.choice([place for place in places(events[at]) if place[1] != "type" or place[0] is not events[at]])
            if how == "remove":
                del container[key]
            elif how == "set":
                container[key] = chance.choice([None, "", [], {}, 0, 1, -1, True, "x", "message", "msg_1"])
            else:
                values = [container[key] for container, key in places(chance.choice(events))]
                container[key] = copy.deepcopy(chance.choice(values))
    return numbered(events)


def places(value):
    """Every (container, key) inside a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in pairs for place in [(value, key), *places(inner)]]


# What the strict accumulator of openai 3.31 and later raises for, at least in some form. All else it lets pass.
REJECTED = {
    "added-arguments-not-empty",
    "added-content-not-empty",
    "call-id-changed",
    "call-id-missing",
    "call-id-repeated",
    "content-index-gap",
    "content-index-invalid",
    "created-late",
    "created-missing",
    "delta-not-string",
    "error-key",
    "event-after-terminal",
    "event-malformed",
    "event-wrong-kind",
    "item-added-repeated",
    "item-id-changed",
    "item-id-missing",
    "item-id-repeated",
    "item-kind-changed",
    "item-malformed",
    "item-not-announced",
    "output-index-invalid",
    "output-index-repeated",
    "output-index-wrong",
    "opening-output-wrong",
    "part-kind-wrong",
    "part-not-announced",
    "response-id-changed",
    "response-id-missing",
    "response-missing",
}


@pytest.mark.skipif(not STRICT, reason="openai 2 has a lenient accumulator")
@pytest.mark.parametrize("code", FAULTS)
def test_the_sdk_lets_pass_what_only_the_checker_finds(code):
    passed = [see(injector(sample())).error is None for injector in FAULTS[code]]
    assert (not all(passed)) == (code in REJECTED)
