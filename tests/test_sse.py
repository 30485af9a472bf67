"""Server-sent events: the specification's own examples, every split point, and what servers really send."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_client import sse
from harmony_client.errors import LimitError
from harmony_client.sse import Marker, ServerSentEvent, SSEDecoder, read_payload

LINE_ENDS = [b"\n", b"\r", b"\r\n"]


def decode(*chunks: bytes) -> list[ServerSentEvent]:
    decoder = SSEDecoder()
    events = [event for chunk in chunks for event in decoder.receive_data(chunk)]
    last = decoder.receive_eof()
    return events if last is None else [*events, last]


def data_of(*chunks: bytes) -> list[str]:
    return [event.data for event in decode(*chunks)]


# The examples of https://html.spec.whatwg.org/multipage/server-sent-events.html, section by section.


def test_whatwg_data_lines_of_one_event_are_joined_by_line_feeds() -> None:
    assert data_of(b"data: YHOO\ndata: +2\ndata: 10\n\n") == ["YHOO\n+2\n10"]


def test_whatwg_comments_and_ids_are_no_data_and_one_blank_after_the_colon_is_removed() -> None:
    stream = b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n"
    assert data_of(stream) == ["first event", "second event", " third event"]


def test_whatwg_data_without_a_value_is_an_empty_line() -> None:
    assert data_of(b"data\n\ndata\ndata\n\n") == ["", "\n"]


def test_whatwg_space_after_the_colon_makes_no_difference() -> None:
    assert data_of(b"data:test\n\ndata: test\n\n") == ["test", "test"]


def test_event_names_last_for_one_event() -> None:
    stream = b"event: add\ndata: 1\n\ndata: 2\n\nevent:remove\ndata: 3\n\nevent: lost\n\ndata: 4\n\n"
    assert decode(stream) == [("add", "1"), ("", "2"), ("remove", "3"), ("", "4")]


def test_unknown_fields_and_fields_that_only_begin_like_data_are_ignored() -> None:
    assert data_of(b"database: 1\nretry: 10\nid: 3\nfoo\n data: no\ndata: yes\n\n") == ["yes"]


# Bytes as they arrive.

UNICODE = 'event: a\ndata: {"x": "ferry ⛴ 🙂\u2028\x0b\x1c"}\n\n: ping\n\ndata: 2\ndata: 3\n\nevent: b\ndata: last\n\n'.encode()


@pytest.mark.parametrize("line_end", LINE_ENDS)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_any_split_of_the_bytes_gives_the_same_events(line_end: bytes, mark: bytes) -> None:
    body = mark + UNICODE.replace(b"\n", line_end)
    whole = decode(body)
    assert whole == [("a", '{"x": "ferry ⛴ 🙂\u2028\x0b\x1c"}'), ("", "2\n3"), ("b", "last")]
    assert decode(*(body[i : i + 1] for i in range(len(body)))) == whole
    for split in range(len(body) + 1):
        assert decode(body[:split], b"", body[split:]) == whole


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_an_event_is_handed_out_as_soon_as_its_blank_line_is_there(line_end: bytes) -> None:
    decoder = SSEDecoder()
    assert decoder.receive_data(b"data: 1" + line_end) == []
    assert decoder.receive_data(line_end) == [("", "1")]


@given(st.binary(max_size=80), st.data())
def test_any_bytes_at_all_decode_alike_however_they_are_split(body: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    chunks = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert decode(*chunks) == decode(body)


@given(st.lists(st.sampled_from([b"data", b"event", b":", b" ", b"\r", b"\n", b"{", b"x", b"\xef\xbb\xbf"]), max_size=24), st.data())
def test_any_mixture_of_fields_and_line_ends_decodes_alike_however_it_is_split(pieces: list[bytes], data: st.DataObject) -> None:
    body = b"".join(pieces)
    cut = data.draw(st.integers(0, len(body)))
    assert decode(body[:cut], body[cut:]) == decode(body)


def test_bad_utf_8_costs_one_character_and_not_the_stream() -> None:
    assert data_of(b"data: a\xffb\n\ndata: c\n\n") == ["a\ufffdb", "c"]


def test_a_byte_order_mark_inside_the_stream_is_text() -> None:
    assert data_of(b"data: \xef\xbb\xbfx\n\n") == ["\ufeffx"]


# Ends.


@pytest.mark.parametrize("tail", [b"", b"\n", b"\r", b"\r\n", b"\nevent: ne", b"\n:"])
def test_the_last_event_counts_without_its_blank_line(tail: bytes) -> None:
    assert data_of(b"data: 1\n\nevent: x\ndata: {}" + tail) == ["1", "{}"]


def test_an_end_without_data_is_no_event() -> None:
    assert decode(b"data: 1\n\nevent: x\n") == [("", "1")]
    assert decode() == decode(b"") == decode(b"\n\n") == decode(b"\xef\xbb") == decode(b": only a comment") == []


@pytest.mark.parametrize("before", [b"", b" \r\n", b"\xef\xbb\xbf", b"\n\n\n"])
def test_a_body_that_is_one_json_object_is_one_event(before: bytes) -> None:
    body = before + b'{\n "error": {\n\n  "message": "data: no"}\n}\n'
    for split in range(len(body) + 1):
        (event,) = decode(body[:split], body[split:])
        assert read_payload(event) == {"error": {"message": "data: no"}}


# Bounds.


def test_a_line_in_many_chunks_costs_time_in_proportion_to_its_length() -> None:
    def seconds(chunks: int) -> float:
        decoder = SSEDecoder()
        start = time.process_time()
        for _ in range(chunks):
            decoder.receive_data(b"x" * 64)
        decoder.receive_data(b"\n")
        return time.process_time() - start

    short = min(seconds(20_000) for _ in range(3))
    long = min(seconds(160_000) for _ in range(3))
    assert long < short * 8 * 3


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: " + b"x" * 94 + b"\n", b"data\n"])
def test_an_event_that_never_ends_hits_the_limit(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_LINE_BYTES", 1000)
    decoder = SSEDecoder()
    with pytest.raises(LimitError, match="1000 bytes") as caught:
        for _ in range(1000):
            decoder.receive_data(piece)
    assert caught.value.code == "event-too-long"


def test_a_json_body_that_never_ends_hits_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_LINE_BYTES", 1000)
    decoder = SSEDecoder()
    with pytest.raises(LimitError):
        for _ in range(1000):
            decoder.receive_data(b'{"a": 1,')


def test_events_before_an_endless_one_are_handed_out_before_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_LINE_BYTES", 10)
    decoder = SSEDecoder()
    assert decoder.receive_data(b"data: 1\n\ndata: " + b"x" * 20) == [("", "1")]
    with pytest.raises(LimitError):
        decoder.receive_data(b"x")


def test_many_events_and_endless_keepalives_never_hit_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_LINE_BYTES", 100)
    decoder = SSEDecoder()
    for _ in range(200):
        assert decoder.receive_data(b": ping\n\nevent: ping\n\ndata: 1\n\n") == [("", "1")]


# Payloads.


def payload(data: str, event: str = "") -> object:
    return read_payload(ServerSentEvent(event, data))


def test_the_name_of_the_event_is_the_type_of_a_payload_without_one() -> None:
    assert payload('{"a": 1}', "x.y") == {"a": 1, "type": "x.y"}
    assert payload('{"type": "right"}', "wrong") == {"type": "right"}
    assert payload('{"type": null}', "x") == {"type": None}
    assert payload('{"a": 1}', "message") == {"a": 1}
    assert payload('{"error": {}}', "error") == {"error": {}}
    assert payload("{}") == {}


@pytest.mark.parametrize("data", ["", " ", "\n", "\t \n " * 40])
def test_blank_data_is_a_keepalive(data: str) -> None:
    assert payload(data) is Marker.EMPTY


@pytest.mark.parametrize("data", ["[DONE]", " [DONE] ", "DONE", "[done]", '"[DONE]"', "[DONE", "[DONE]\n", '["DONE"]'])
def test_done_is_understood_in_every_spelling_seen(data: str) -> None:
    assert payload(data) is Marker.DONE


@pytest.mark.parametrize("data", ["x", "{", '{"a": 1', "1", "null", "[]", '"text"', "[1]", "1" * 5000, " " * 40 + "x", "{}{}", "\ufeff{}"])
def test_data_that_is_no_json_object_is_unreadable(data: str) -> None:
    assert payload(data) is Marker.UNREADABLE


def nested(depth: int, around: str = "[%s]") -> str:
    text = ""
    for _ in range(depth - 1):
        text = around % text if text else around % "1"
    return '{"a": %s}' % (text or "1")


def test_json_may_be_nested_as_deep_as_the_limit_and_no_deeper() -> None:
    assert payload(nested(sse.MAX_JSON_DEPTH)) == json.loads(nested(sse.MAX_JSON_DEPTH))
    for depth in (sse.MAX_JSON_DEPTH + 1, 500, 200_000):
        with pytest.raises(LimitError) as caught:
            payload(nested(depth) if depth < 1000 else '{"a":' * depth)
        assert caught.value.code == "json-too-deep"


def test_many_brackets_that_do_not_nest_are_no_matter() -> None:
    flat = {"a": [[] for _ in range(1000)], "text": "[{" * 1000, "b": [{"c": {}}] * 100}
    assert payload(json.dumps(flat)) == flat
