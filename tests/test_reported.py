"""Faults that a hostile review found, each with the stream that showed it."""

from __future__ import annotations

from typing import Any

import pytest

from harmony_client.errors import ServerError
from harmony_client.wire import EVENT_TYPE
from tests.judge import Event, Played, play
from tests.recordings import load
from tests.streams import build

CREATED = build([])[0]


def completed(*output: Event) -> Event:
    return {**build([])[-1], "response": {**build([])[-1]["response"], "output": list(output)}, "sequence_number": 900}


def added(index: int, **item: Any) -> Event:
    return {
        "type": "response.output_item.added",
        "output_index": index,
        "item": {"role": "assistant", "content": [], "status": "in_progress", **item},
    }


def message(index: int = 0, id_: str = "m", *texts: str) -> Event:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": id_, "role": "assistant", "status": "completed", "content": content}


def delta(text: str, content_index: int = 0, index: int = 0, id_: str = "m") -> Event:
    return {
        "type": "response.output_text.delta",
        "output_index": index,
        "content_index": content_index,
        "item_id": id_,
        "delta": text,
        "logprobs": [],
    }


def done(text: str, content_index: int = 0) -> Event:
    return {
        "type": "response.output_text.done",
        "output_index": 0,
        "content_index": content_index,
        "item_id": "m",
        "text": text,
        "logprobs": [],
    }


def part(kind: str, text: str, content_index: int = 0) -> Event:
    body = {"type": "output_text", "text": text, "annotations": []}
    return {"type": f"response.content_part.{kind}", "output_index": 0, "content_index": content_index, "item_id": "m", "part": body}


def call(id_: str, call_id: str, name: str, arguments: str = "", status: str = "in_progress") -> Event:
    return {"type": "function_call", "id": id_, "call_id": call_id, "name": name, "arguments": arguments, "status": status}


def well_formed(stream: Played) -> Played:
    assert stream.violations() == []
    return stream


def texts_of_parts(stream: Played) -> list[list[str]]:
    return [[entry["text"] for entry in (item.done or {})["content"]] for item in stream.items]


@pytest.mark.parametrize("end", [[], [completed(message(0, "m", "A1", "B2"))], [completed()]])
def test_a_second_part_that_is_not_announced_is_kept(end: list[Event]) -> None:
    stream = well_formed(play([CREATED, added(0, type="message", id="m"), delta("A1"), done("A1"), delta("B2", 1), done("B2", 1), *end]))
    assert texts_of_parts(stream) == [["A1", "B2"]]
    assert stream.texts == [("message", "A1B2")]


def test_a_second_part_announced_under_the_first_ones_index_is_kept() -> None:
    parts = [event for text in ("A1", "B2") for event in (part("added", ""), delta(text), done(text), part("done", text))]
    stream = well_formed(play([CREATED, added(0, type="message", id="m"), *parts, completed(message(0, "m", "A1", "B2"))]))
    assert texts_of_parts(stream) == [["A1", "B2"]]
    assert stream.report.verdict == "match"


@pytest.mark.parametrize("with_done", [True, False])
def test_several_parts_that_come_as_deltas_only_are_not_repeated(with_done: bool) -> None:
    item = message(0, "m", "A1", "B2", "C3")
    item_done = [{"type": "response.output_item.done", "output_index": 0, "item": item}] if with_done else []
    deltas = [delta("A1", 0), delta("B2", 1), delta("C3", 2)]
    stream = well_formed(play([CREATED, added(0, type="message", id="m"), *deltas, *item_done, completed(item)]))
    assert stream.texts == [("message", "A1B2C3")]
    assert stream.report.verdict == "match"


def test_arguments_go_to_the_call_that_they_name() -> None:
    arguments = {"f": '{"x":1}', "g": '{"y":2}'}
    events = [CREATED, *(added(0, **call("", f"call_{name}", name)) for name in "fg")]
    events += [
        {"type": "response.function_call_arguments.done", "output_index": 0, "item_id": "", "name": name, "arguments": arguments[name]}
        for name in "fg"
    ]
    finished = [call("", f"call_{name}", name, arguments[name], "completed") for name in "fg"]
    events += [{"type": "response.output_item.done", "output_index": 0, "item": item} for item in finished]
    stream = well_formed(play([*events, completed(*finished)]))
    assert [((item.done or {})["name"], item.text) for item in stream.items] == [("f", '{"x":1}'), ("g", '{"y":2}')]
    assert stream.report.verdict == "match"


@pytest.mark.parametrize("output", [[], None])
def test_a_call_that_nothing_confirms_is_not_closed_as_complete(output: Any) -> None:
    events = [CREATED, added(0, **call("fc", "call", "f"))]
    events.append({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc", "delta": '{"x"'})
    end = completed()
    end["response"]["output"] = output
    stream = well_formed(play([*events, end]))
    assert (stream.items[0].done or {})["status"] == "incomplete"


def test_a_long_replay_of_numbered_deltas_is_dropped() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    deltas = [{**delta(letter), "sequence_number": 3 + number} for number, letter in enumerate(letters)]
    opening = [CREATED, {**added(0, type="message", id="m"), "sequence_number": 2}]
    stream = well_formed(
        play([*opening, *deltas, *deltas[3:], {**done(letters), "sequence_number": 99}, completed(message(0, "m", letters))])
    )
    assert stream.texts == [("message", letters)]
    assert stream.report.verdict == "match"


def test_a_batch_after_the_last_one_loses_the_tokens_but_not_the_snapshot() -> None:
    recording = next(recording for recording in load("main") if recording.scenario == "final_then_more" and recording.pattern == "20")
    events = recording.events(frames=True)
    frames = [event for event in events if event["type"] == EVENT_TYPE]
    start = frames[-1]["start"] + len(frames[-1]["token_ids"])
    extra = {**frames[-1], "batch": len(frames), "start": start, "token_ids": [], "total": start}
    stream = well_formed(play([*events[:-1], extra, events[-1]]))
    assert stream.report.mode == "lost"
    assert stream.report.verdict == "match"


def test_an_engine_that_ends_every_turn_with_a_last_batch_is_understood() -> None:
    recording = next(recording for recording in load("main") if recording.scenario == "reasoning_final" and recording.pattern == "20")
    events = recording.events(frames=True)
    frames = [event for event in events if event["type"] == EVENT_TYPE]
    count = frames[-1]["start"] + len(frames[-1]["token_ids"])
    second = [{**frame, "batch": frame["batch"] + len(frames), "start": frame["start"] + count, "turn": 1} for frame in frames]
    for frame in second:
        frame.pop("total", None)
    output = (recording.snapshot or {})["output"]
    again = [{**item, "id": item["id"] + "x"} for item in output]
    terminal = {**events[-1], "response": {**events[-1]["response"], "output": [*output, *again]}}
    stream = well_formed(play([*events[:-1], *second, terminal]))
    assert [kind for kind, _ in stream.texts] == ["reasoning", "message"] * 2
    assert (stream.report.mode, stream.report.verdict) == ("tokens", "match")


def test_a_call_whose_deltas_come_before_its_announcement_is_one_call() -> None:
    events = [CREATED]
    events += [
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "", "delta": text} for text in ('{"a"', ":1}")
    ]
    finished = call("fc", "call_f", "f", '{"a":1}', "completed")
    events += [
        added(0, **call("fc", "call_f", "f")),
        {"type": "response.function_call_arguments.done", "output_index": 0, "item_id": "fc", "name": "f", "arguments": '{"a":1}'},
        {"type": "response.output_item.done", "output_index": 0, "item": finished},
    ]
    for deltas in ("auto", "live", "hold"):
        stream = well_formed(play([*events, completed(finished)], deltas=deltas))
        assert stream.texts == [("function_call", '{"a":1}')]
        assert stream.report.verdict == "match"


def test_a_call_that_is_announced_after_it_was_done_is_one_call() -> None:
    finished = call("fc", "call_f", "f", "{}", "completed")
    events = [
        CREATED,
        {"type": "response.output_item.done", "output_index": 3, "item": finished},
        added(0, **call("fc", "call_f", "f")),
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc", "delta": "{}"},
    ]
    stream = well_formed(play([*events, completed(finished)]))
    assert stream.texts == [("function_call", "{}")]


@pytest.mark.parametrize(
    ("said", "message_"),
    [
        ({"object": "error", "message": "boom", "code": 500}, "boom"),
        ({"detail": "boom"}, "boom"),
        ({"message": "boom", "code": "overloaded"}, "boom"),
    ],
)
def test_errors_of_other_shapes_are_errors_of_the_server(said: Event, message_: str) -> None:
    stream = play([CREATED, said])
    assert isinstance(stream.failure, ServerError)
    assert message_ in str(stream.failure)


def test_a_server_that_does_not_stream_is_understood() -> None:
    response = {**completed(message(0, "m", "Hello."))["response"]}
    stream = well_formed(play([response]))
    assert stream.texts == [("message", "Hello.")]
    assert stream.terminal is not None


def test_an_opener_that_holds_all_the_arguments_and_a_delta_that_repeats_them_are_one_text() -> None:
    finished = call("", "call_f", "f", '{"x":1}', "completed")
    events = [
        CREATED,
        added(0, **{**finished, "status": "in_progress"}),
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "", "delta": '{"x":1}'},
    ]
    stream = well_formed(play([*events, completed(finished)]))
    assert stream.texts == [("function_call", '{"x":1}')]


def test_a_heartbeat_with_another_response_id_is_no_second_response() -> None:
    events = build([])
    beat = {**events[1], "response": {**events[1]["response"], "id": "resp_other"}, "sequence_number": 50}
    stream = play([events[0], events[1], beat])
    assert stream.report.repair_codes == {"duplicate-dropped"}


def test_numbers_that_begin_anew_do_not_make_repeats_of_new_deltas() -> None:
    first = [CREATED, {**added(0, type="message", id="a"), "sequence_number": 1}]
    first += [{**delta(text), "item_id": "a", "sequence_number": 2 + number} for number, text in enumerate(("the ", "end "))]
    second = [{**added(1, type="message", id="b"), "sequence_number": 1}]
    second += [
        {**delta(text), "item_id": "b", "output_index": 1, "sequence_number": 2 + number} for number, text in enumerate(("the ", "end "))
    ]
    stream = well_formed(play([*first, *second, completed(message(0, "a", "the end "), message(1, "b", "the end "))]))
    assert stream.texts == [("message", "the end ")] * 2
    assert stream.report.verdict == "match"
