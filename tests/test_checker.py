"""The checker finds nothing in correct streams, and in a broken one exactly what was broken."""

from __future__ import annotations

import copy
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_client.checker import CODES, Checker, check
from harmony_client.checker_rules import ARGUMENTS, EVENTS, ITEM, PART, RESPONSE, UNFINISHED, UNFINISHED_ARGUMENTS, Kind, Phase, State
from tests.faults import FAULTS
from tests.recordings import load, load_cases
from tests.streams import CUSTOM, Call, Message, Reasoning, Tool, build, numbered, sample, specs


def codes(events, **options):
    return [violation.code for violation in check(events, **options)]


# Correct streams ----------------------------------------------------------------------------------------------------


def test_a_stream_with_everything_in_it_is_well_formed():
    assert check(sample()) == []


@given(specs(), st.sampled_from(["completed", "incomplete", "failed"]))
def test_built_streams_are_well_formed(wanted, status):
    assert check(build(wanted, status)) == []


@pytest.mark.parametrize("name", ["E00", "E47", "E72"])
def test_correct_cases_are_well_formed(name):
    [case] = [case for case in load_cases() if case["id"] == name]
    assert check(case["events"]) == []


# What vLLM gets wrong in the others: items without text are only listed, built-in tools are listed as another kind.
WRONG_IN_VLLM = {"tool_empty_args", "empty_analysis", "empty_final", "browser_search", "python_commentary", "no_channel"}


def test_recordings_of_vllm_are_well_formed_but_for_known_scenarios():
    wrong = {recording.scenario for recording in load("vllm-0.33") if check(recording.events(frames=False))}
    assert wrong == WRONG_IN_VLLM


def test_hardly_a_recording_of_tensorrt_llm_is_well_formed():
    right = {name: sum(not check(recording.events(frames=False)) for recording in load(name)) for name in ("v12", "main", "pr")}
    assert right == {"v12": 0, "main": 3, "pr": 2}


def test_interleaved_calls_may_close_in_any_order():
    first, second = build([Call(["{}"])]), build([Call(["{}"]), Call(["[]"])])
    lanes = [[event for event in second if event.get("output_index") == index] for index in (0, 1)]
    for mixed in (lanes[0][:1] + lanes[1] + lanes[0][1:], [event for pair in zip(*lanes, strict=True) for event in pair]):
        assert check(numbered([*first[:2], *mixed, second[-1]])) == []


def test_the_last_item_of_an_incomplete_response_may_be_done_as_completed():
    events = build([Reasoning([["a"]]), Message([["b"]])], "incomplete")
    events[-2]["item"]["status"] = "completed"
    assert check(events) == []


def test_only_messages_need_a_status():
    events = build([Reasoning([["a"]]), Call(["{}"]), Message([["b"]])])
    for item in [event["item"] for event in events if "item" in event] + events[-1]["response"]["output"]:
        if item["type"] != "message":
            del item["status"]
    assert check(events) == []


def test_an_error_event_ends_a_stream_legally_and_may_be_followed_by_failed():
    error = {"type": "error", "code": "x", "message": "gave up"}
    events, failed = build([Message([["a"]])]), build([Message([["a"]])], "failed")
    assert check(numbered([*events[:5], error])) == []
    assert check(numbered([*failed[:-1], error, failed[-1]])) == []


def test_a_failed_response_need_not_list_its_items_but_they_must_be_closed():
    events = build([Message([["a"]])], "failed")
    events[-1]["response"]["output"] = []
    assert check(events) == []
    assert codes(numbered([*events[:-2], events[-1]])) == ["item-done-missing"]


def test_a_cancelled_response_ends_with_any_terminal_event():
    events = build([Message([["a"]])])
    events[-1]["response"]["status"] = "cancelled"
    assert check(events) == []


def test_an_exception_stands_in_for_the_terminal_event_but_not_for_open_items():
    events = build([Message([["a"]])])[:-1]
    assert codes(events) == ["terminal-missing"]
    assert codes(events, failed=True) == []
    assert codes(events[:-1], failed=True) == ["item-done-missing"]
    assert codes([], failed=True) == []


def test_every_event_type_of_the_sdk_that_speaks_of_an_item_is_known():
    responses = pytest.importorskip("openai.types.responses")
    import typing

    union = typing.get_args(typing.get_args(responses.ResponseStreamEvent)[0])
    types = {typing.get_args(cls.model_fields["type"].annotation)[0] for cls in union if "output_index" in cls.model_fields}
    assert types <= set(EVENTS)


def test_unknown_events_are_ignored_wherever_they_come_but_before_created():
    for position in range(1, len(sample()) + 1):
        for vendor in ({"type": "slug:x"}, {"type": "response.mystery.delta", "delta": None, "output_index": "x"}):
            events = sample()
            events.insert(position, vendor)
            assert check(events) == []


@pytest.mark.parametrize("tool", [Tool(), CUSTOM, Tool("mystery_call", (("x", 1),), ())], ids=lambda tool: tool.kind)
def test_the_contents_of_an_item_without_grammar_are_not_looked_at(tool):
    events = build([tool])
    done, listed = events[-2]["item"], events[-1]["response"]["output"][0]
    done["status"], listed["status"] = "strange", None
    done["content"] = listed["input"] = 7
    assert check(events) == []


# Broken streams -----------------------------------------------------------------------------------------------------

INJECTED = [(code, number) for code, injectors in FAULTS.items() for number in range(len(injectors))]


@pytest.mark.parametrize(("code", "number"), INJECTED, ids=[f"{code}-{number}" for code, number in INJECTED])
def test_a_fault_is_reported_once_and_as_what_it_is(code, number):
    events = FAULTS[code][number](copy.deepcopy(sample()))
    [violation] = check(events)
    assert violation.code == code
    assert len(violation.message) > 20
    assert 0 <= violation.position <= len(events)


def test_every_code_has_an_injector_and_a_sentence():
    assert set(FAULTS) == set(CODES)
    assert all(sentence[0].isupper() or sentence[0] == "`" for sentence in CODES.values())
    assert all(sentence.endswith((".", ".)")) for sentence in CODES.values())


@pytest.mark.parametrize("kind", ["web_search_call", "mcp_call"])
def test_an_item_announced_late_is_taken_as_it_was_announced(kind):
    events = build([Tool(kind, (("call_id", "call_1"),), ["in_progress", "completed"])])
    events[2], events[3] = events[3], events[2]
    assert codes(numbered(events)) == ["item-not-announced"]


def test_a_violation_says_where_it_is():
    events = build([Reasoning([["a"]]), Message([["b"]])])
    position = [event["type"] for event in events].index("response.output_text.delta")
    events[position] |= {"delta": None, "sequence_number": 12}
    for event in events[position + 1 :]:
        event["sequence_number"] += 100
    [violation] = check(events)
    assert violation[:4] == ("delta-not-string", position, 12, 1)
    assert violation.message == "response.output_text.delta for the message at output_index 1 has the delta null"


def test_messages_hold_no_text_of_the_model():
    secret = "the launch code is 0000"
    for injector in itertools.chain.from_iterable(FAULTS.values()):
        text = json.dumps(injector(sample())).replace("It may ", secret).replace("Oslo", secret).replace("Let me ", secret)
        assert not [violation for violation in check(json.loads(text)) if secret in violation.message]


# Laws ---------------------------------------------------------------------------------------------------------------


def test_the_tables_have_a_cell_for_every_state_and_kind_of_event():
    assert set(RESPONSE) == set(itertools.product(Phase, Kind))
    assert {state for state, _ in ITEM} == {State.ABSENT, State.PRESUMED, State.OPEN, State.CLOSED}
    of_item = {kind for kind in Kind if any(RESPONSE[phase, kind].read for phase in Phase)}
    of_item -= {Kind.CREATED, Kind.LIFECYCLE, Kind.TERMINAL, Kind.FAILED}
    assert set(ITEM) == set(itertools.product({state for state, _ in ITEM}, of_item))
    for table, unfinished in ((PART, UNFINISHED), (ARGUMENTS, UNFINISHED_ARGUMENTS)):
        states = {state for state, _ in table}
        assert set(table) == set(itertools.product(states, {kind for _, kind in table}))
        assert {to for _, to in table.values()} <= states == set(unfinished)


def test_every_code_of_the_tables_is_explained():
    used = {step.code for step in RESPONSE.values()} | set(ITEM.values()) | {code for code, _ in [*PART.values(), *ARGUMENTS.values()]}
    used |= {code for row in [*UNFINISHED.values(), *UNFINISHED_ARGUMENTS.values()] for code in row}
    assert used - {None} <= set(CODES)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats()
    | st.sampled_from(["", "msg_1", "message", "function_call", "x"])
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "id", "text", "content", "call_id"]), inner, max_size=4)
    ),
    max_leaves=8,
)
FIELDS = [
    "type",
    "sequence_number",
    "output_index",
    "content_index",
    "summary_index",
    "item_id",
    "item",
    "part",
    "delta",
    "response",
    "error",
]


@given(
    st.lists(JSON | st.fixed_dictionaries({"type": st.sampled_from(sorted(EVENTS))}, optional=dict.fromkeys(FIELDS[1:], JSON)), max_size=12)
)
def test_it_never_raises_whatever_json_it_is_given(events):
    assert {violation.code for violation in check(events)} <= set(CODES)


@given(st.data())
def test_it_never_raises_on_a_correct_stream_with_fields_replaced(data):
    events = sample()
    for _ in range(data.draw(st.integers(1, 5))):
        target = data.draw(st.sampled_from(events))
        while True:
            keys = list(target) if isinstance(target, dict) else range(len(target))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(target[key], dict | list) and target[key] and data.draw(st.booleans()):
                target = target[key]
                continue
            target[key] = data.draw(JSON)
            break
    assert {violation.code for violation in check(events)} <= set(CODES)


@given(st.lists(st.integers(0, len(sample()) - 1), max_size=40))
def test_any_events_in_any_order_give_each_code_once_per_item(order):
    events = sample()
    found = check([events[position] for position in order])
    assert len({(violation.code, violation.output_index) for violation in found}) == len(found)


def test_numbers_of_any_size_are_shown():
    huge = 10**5_000
    assert codes([{**sample()[0], "sequence_number": huge}, {**sample()[1], "sequence_number": huge}]) == [
        "sequence-not-increasing",
        "terminal-missing",
    ]
    assert check([{"type": "response.output_item.done", "output_index": huge, "item": {"type": "x"}}])


def test_a_second_close_finds_nothing():
    checker = Checker()
    assert len(checker.close()) == 1
    assert checker.close() == []


def test_work_per_event_does_not_grow_with_the_stream():
    import time

    def seconds(count):
        events = build([Message([["x"] * count])] + [Call(["{}"])] * (count // 10))
        start = time.process_time()
        assert check(events) == []
        return time.process_time() - start

    assert min(seconds(20_000) for _ in range(3)) < 20 * min(seconds(2_000) for _ in range(3))
