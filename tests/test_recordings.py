"""The recordings are whole, and give the streams that servers send."""

from __future__ import annotations

import json

import pytest

from harmony_client.wire import EVENT_TYPE, decode_batch
from tests.recordings import NAMES, load, load_all, load_cases


@pytest.mark.parametrize(("name", "count"), list(zip(NAMES, (123, 124, 123, 62, 31), strict=True)))
def test_every_recording_is_there_and_of_its_version(name, count):
    assert [recording.version for recording in load(name)] == [name] * count


def test_there_are_a_hundred_cases_of_three_levels():
    cases = load_cases()
    assert len({case["id"] for case in cases}) == 100
    assert {case["level"] for case in cases} == {"event", "sse", "token"}


@pytest.mark.parametrize("k", [None, 1, 7, 10_000])
def test_token_batches_carry_all_ids_once_and_end_with_done(k):
    for recording in load_all():
        batches = [decode_batch(event) for event in recording.events(frames=True, k=k) if event["type"] == EVENT_TYPE]
        assert [token_id for batch in batches for token_id in batch.token_ids] == recording.token_ids
        assert [batch.done for batch in batches] == [False] * (len(batches) - 1) + [True]
        assert [batch.batch for batch in batches] == list(range(len(batches)))
        assert batches[-1].total == len(recording.token_ids)
        assert bool(batches[-1].snapshot_error) == (recording.ended == "raised")
        assert batches[0].server is not None


@pytest.mark.parametrize("k", [None, 1, 7])
def test_without_its_token_frames_a_stream_is_the_stock_one(k):
    for recording in load("main"):
        stock = [frame for frame in recording.frames(frames=True, k=k) if EVENT_TYPE.encode() not in frame]
        assert stock == recording.frames(frames=False)


def test_the_first_token_frame_follows_created_and_comes_before_any_item():
    for recording in load_all():
        types = [event["type"] for event in recording.events(frames=True)]
        assert types.index(EVENT_TYPE) == len(recording.opening)
        assert types[0] == "response.created"


def test_the_body_is_the_payloads_as_server_sent_events():
    recording = load("vllm-0.33")[0]
    data = [line[6:] for line in recording.sse(frames=True).decode().split("\n") if line.startswith("data: ")]
    assert list(map(json.loads, data)) == recording.events(frames=True)


def test_v12_and_vllm_break_where_they_raise_and_the_others_say_so():
    raised = [recording for recording in load_all() if recording.ended == "raised"]
    assert len([recording for recording in raised if not recording.version.startswith("vllm")]) == 72
    assert {recording.version for recording in raised if recording.breaks} == {"v12", "vllm-0.33", "vllm-0.24"}
    for recording in raised:
        snapshot = recording.snapshot
        assert snapshot is None if recording.breaks else snapshot["status"] == "failed"
