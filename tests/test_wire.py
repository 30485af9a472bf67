"""The token frame: what is written can be read, what may not be read is refused with its code."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harmony_client import wire
from harmony_client.errors import FrameError
from harmony_client.vocabulary import decode_table
from harmony_client.wire import TokenBatch, decode_batch, encode_batch


def payload(frame: bytes) -> dict[str, Any]:
    head, data, blank, end = frame.decode("ascii").split("\n")
    assert (head, blank, end) == ("event: harmony:token_batch", "", "")
    assert data.startswith("data: ")
    result = json.loads(data.removeprefix("data: "))
    assert isinstance(result, dict)
    return result


def event(**changes: object) -> dict[str, Any]:
    """A valid payload with some fields changed; `...` removes one."""
    fields = {"type": wire.EVENT_TYPE, "v": 1, "batch": 3, "start": 10, "token_ids": [5, 6], "vocab": "o200k_harmony", "done": False}
    return {name: value for name, value in {**fields, **changes}.items() if value is not ...}


token_ids = st.lists(st.integers(0, wire.MAX_TOKEN_ID), max_size=30)
counts = st.integers(0, 2**40)
texts = st.none() | st.text(max_size=20)


@st.composite
def batches(draw: st.DrawFn) -> TokenBatch:
    ids, start = draw(token_ids), draw(counts)
    done = draw(st.booleans())
    return TokenBatch(
        batch=draw(counts),
        start=start,
        token_ids=ids,
        done=done,
        finish_reason=draw(texts),
        stop_reason=draw(texts | st.integers(0, wire.MAX_TOKEN_ID)),
        total=start + len(ids) if done else None,
        snapshot_error=draw(texts),
        turn=draw(st.integers(0, 5)),
        server=draw(texts),
    )


@given(batches())
@example(TokenBatch(0, 0, [], done=True, finish_reason="\ud800", total=0))
def test_what_is_encoded_decodes_to_the_same_batch(batch: TokenBatch) -> None:
    assert decode_batch(payload(encode_batch(batch))) == batch


def test_a_frame_reads_as_the_specification_shows_it() -> None:
    assert encode_batch(TokenBatch(0, 0, [200005, 35644])) == (
        b"event: harmony:token_batch\n"
        b'data: {"type":"harmony:token_batch","v":1,"batch":0,"start":0,"token_ids":[200005,35644],'
        b'"vocab":"o200k_harmony","done":false}\n\n'
    )


def test_fields_that_say_nothing_are_not_sent() -> None:
    assert list(payload(encode_batch(TokenBatch(1, 2, [3])))) == ["type", "v", "batch", "start", "token_ids", "vocab", "done"]


def test_the_last_frame_says_how_generation_ended_and_counts_all_ids() -> None:
    sent = payload(encode_batch(TokenBatch(7, 20, (), done=True, finish_reason="stop")))
    assert {name: sent[name] for name in ("token_ids", "done", "finish_reason", "stop_reason", "total")} == {
        "token_ids": [],
        "done": True,
        "finish_reason": "stop",
        "stop_reason": None,
        "total": 20,
    }


def test_a_frame_has_no_sequence_number_and_no_error_key() -> None:
    full = TokenBatch(0, 0, [1], True, "stop", 200012, 1, "HarmonyError", 1, "tensorrt-llm/1.2.1")
    assert not {"sequence_number", "error"} & payload(encode_batch(full)).keys()


def test_unknown_fields_are_ignored() -> None:
    assert decode_batch(event(logprobs=[0.5], sequence_number=4, error=None)) == TokenBatch(3, 10, [5, 6])


def test_the_type_is_the_callers_business() -> None:
    assert decode_batch(event(type=...)) == decode_batch(event())


def test_a_field_that_takes_the_place_of_the_type_is_still_read() -> None:
    assert decode_batch(event(type=..., turn=2)).turn == 2


def test_a_null_where_a_field_may_be_absent_reads_as_absent() -> None:
    nulls = dict.fromkeys(("finish_reason", "stop_reason", "total", "snapshot_error", "turn", "server"))
    assert decode_batch(event(**nulls)) == decode_batch(event())


def test_a_stop_reason_may_be_an_id_or_a_stop_string() -> None:
    assert decode_batch(event(done=True, stop_reason=200012)).stop_reason == 200012
    assert decode_batch(event(done=True, stop_reason="###")).stop_reason == "###"


VALID_EDGES = [[], [0], [1], [0, 1], [wire.MAX_TOKEN_ID], [0, wire.MAX_TOKEN_ID], [7] * wire.MAX_BATCH_IDS]


@pytest.mark.parametrize("ids", VALID_EDGES, ids=lambda ids: f"{len(ids)} ids")
def test_ids_at_the_edges_are_accepted(ids: list[int]) -> None:
    assert decode_batch(event(token_ids=ids)).token_ids is ids


BAD_ITEMS: list[Any] = [-1, wire.MAX_TOKEN_ID + 1, 2**32, 2**70, -(2**70), 1.0, float("nan"), True, False, "5", None, [5], {}]
VALUES_THAT_BREAK_A_RULE: list[tuple[str, list[str], list[Any]]] = [
    ("bad-version", ["v"], [2, 0, "1", 1.0, True, None, [1], ...]),
    ("bad-vocabulary", ["vocab"], ["cl100k", "", None, 7, ["o200k_harmony"], ...]),
    ("bad-ids", ["token_ids"], [[bad] for bad in BAD_ITEMS]),
    ("bad-ids", ["token_ids"], [[5, bad, 6] for bad in BAD_ITEMS]),
    ("bad-ids", ["token_ids"], [None, "56", 5, {"0": 5}, (5, 6), [7] * (wire.MAX_BATCH_IDS + 1), ...]),
    ("bad-field", ["batch", "start"], [-1, 1.0, "1", True, None, [], ...]),
    ("bad-field", ["done"], [0, 1, "true", None, ...]),
    ("bad-field", ["turn"], [-1, 1.5, "1", True]),
    ("bad-field", ["finish_reason", "snapshot_error", "server"], [1, True, ["x"], {}]),
    ("bad-field", ["stop_reason"], [1.5, True, [200012], {}]),
    ("bad-total", ["total"], [11, 13, 0, -1, 12.0, "12", True]),
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({name: value}, code) for code, names, values in VALUES_THAT_BREAK_A_RULE for name in names for value in values
]


@pytest.mark.parametrize(("changes", "code"), REFUSED)
def test_a_frame_that_breaks_a_rule_is_refused_with_its_code(changes: dict[str, object], code: str) -> None:
    with pytest.raises(FrameError) as refused:
        decode_batch(event(**changes))
    assert refused.value.code == code
    assert len(str(refused.value)) < 400


ENCODABLE = [
    (changes, code)
    for changes, code in REFUSED
    if changes.keys() <= set(TokenBatch._fields) and ... not in changes.values() and type(changes.get("token_ids", [])) is list
]


@pytest.mark.parametrize(("changes", "code"), ENCODABLE)
def test_what_decoding_refuses_is_not_encoded(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(FrameError) as refused:
        encode_batch(decode_batch(event())._replace(**changes))
    assert refused.value.code == code


def test_a_frame_of_the_largest_batch_is_within_the_limit() -> None:
    assert len(encode_batch(TokenBatch(0, 0, [wire.MAX_TOKEN_ID] * wire.MAX_BATCH_IDS))) < wire.MAX_FRAME_BYTES


def test_a_frame_over_the_limit_is_not_encoded() -> None:
    with pytest.raises(FrameError) as refused:
        encode_batch(TokenBatch(0, 0, [1], done=True, stop_reason="#" * wire.MAX_FRAME_BYTES))
    assert refused.value.code == "too-large"


@given(
    st.dictionaries(
        st.sampled_from([*event(), "turn", "total", "server", "stop_reason", "finish_reason"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("o200k_harmony") | st.just(1),
            st.lists,
            max_leaves=4,
        ),
    )
)
def test_nothing_but_a_frame_error_escapes_from_any_json(json_object: dict[str, Any]) -> None:
    with contextlib.suppress(FrameError):
        decode_batch({**event(), **json_object})


def test_the_largest_id_is_the_vocabularys_last() -> None:
    table = decode_table()
    assert table[wire.MAX_TOKEN_ID] == "<|reserved_201088|>"
    with pytest.raises(KeyError):
        table[wire.MAX_TOKEN_ID + 1]
