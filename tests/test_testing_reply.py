"""Scripted replies: token ids without a tokenizer, healthy streams, how they travel."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_client import StreamRepairer, check
from harmony_client.harmony import HarmonyParser, MessageStart
from harmony_client.testing import Reply
from harmony_client.testing._tokens import encode
from harmony_client.vocabulary import CALL, END, RETURN, decode_table
from harmony_client.wire import EVENT_TYPE, decode_batch
from tests.judge import play
from tests.sdk_oracle import see

PARIS = ("get_weather", {"city": "Paris"})
FULL = {"reasoning": "The user asks.", "calls": [PARIS], "answer": "It is sunny in Paris."}


def spelled(ids: list[int]) -> str:
    """What ids spell, special tokens too."""
    names = {RETURN: "<|return|>", END: "<|end|>", CALL: "<|call|>"}
    texts = [names.get(token) or decode_table()[token] or "" for token in ids]
    return "".join(texts).encode("utf-8", "surrogateescape").decode()


def items(events: list[Any]) -> list[tuple[str, str]]:
    """Type and text of the items in the terminal response."""
    output = events[-1]["response"]["output"]
    return [(item["type"], item.get("arguments") or "".join(part["text"] for part in item.get("content", ()))) for item in output]


# --- token ids ----------------------------------------------------------------------------------------


@settings(deadline=None)  # the first text makes the table
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_ids_of_a_text_spell_it(text: str) -> None:
    assert spelled(encode(text)) == text


def test_special_tokens_in_harmony_text_are_one_id_each() -> None:
    assert encode("<|channel|>final<|message|>Hi<|return|>") == [200005, 17196, 200008, 12194, 200002]
    assert encode("<|start|>assistant<|call|><|end|><|constrain|>")[:1] == [200006]


def test_a_text_is_few_tokens() -> None:
    assert len(encode("The user asks where the order is. I should look it up and answer briefly.")) < 20


def test_special_tokens_in_an_answer_are_what_somebody_wrote() -> None:
    reply = Reply("Harmony ends a message with <|end|>.")
    assert reply.token_ids.count(END) == 0
    assert items(reply.events()) == [("message", "Harmony ends a message with <|end|>.")]


def test_the_table_of_the_process_is_not_filled() -> None:
    before = len(decode_table())
    encode("a text that was not encoded before")
    assert len(decode_table()) - before < 20


# --- healthy streams ----------------------------------------------------------------------------------

texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
scripts = st.fixed_dictionaries(
    {
        "answer": texts,
        "reasoning": texts,
        "preamble": texts,
        "calls": st.lists(st.tuples(st.sampled_from(["get_weather", "f"]), st.text(st.characters(exclude_categories=["Cs"]))), max_size=2),
        "tokens_per_batch": st.sampled_from([1, 2, 5, 1000]),
        "finish_reason": st.sampled_from(["stop", "length"]),
        "server": st.sampled_from([None, "vllm/0.33"]),
    }
)
said = scripts.filter(lambda script: script["calls"] or any(script[name] is not None for name in ("answer", "reasoning", "preamble")))


@settings(deadline=None, max_examples=60)
@given(said)
def test_a_reply_without_faults_is_well_formed_and_comes_out_as_it_is(script: dict[str, Any]) -> None:
    reply = Reply(**script)
    sent = reply.events(tokens=False)
    assert check(sent) == []
    for tokens in (False, True):
        played = play(reply.events(tokens=tokens))
        assert played.report.verdict == "match"
        assert items(played.events) == items(sent)
    assert played.report.basis == "tokens"


def test_a_reply_says_what_the_model_wrote() -> None:
    reply = Reply(**FULL)
    assert items(reply.events()) == [
        ("reasoning", "The user asks."),
        ("function_call", '{"city":"Paris"}'),
        ("message", "It is sunny in Paris."),
    ]
    parser = HarmonyParser()
    headers = [event.header for event in parser.receive(reply.token_ids) if isinstance(event, MessageStart)]
    assert [(header.channel, header.recipient, header.content_type) for header in headers] == [
        ("analysis", None, None),
        ("commentary", "functions.get_weather", "<|constrain|>json"),
        ("final", None, None),
    ]


def test_the_sdk_accepts_it() -> None:
    seen = see(Reply(**FULL).events(tokens=False))
    assert seen.error is None


def test_harmony_text_is_the_whole_output() -> None:
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"
    assert Reply(harmony=text).events() == Reply("Yes.", reasoning="Hm.").events()
    assert spelled(Reply(harmony=text).token_ids) == text


def test_arguments_that_are_text_are_sent_as_they_are() -> None:
    assert items(Reply(calls=[("f", '{"city": ')]).events()) == [("function_call", '{"city": ')]


def test_preambles_are_listed_where_the_server_lists_them() -> None:
    assert items(Reply("Sunny.", preamble="Let me look.").events()) == [("message", "Sunny.")]
    assert items(Reply("Sunny.", preamble="Let me look.", server="vllm/0.33").events())[0] == ("message", "Let me look.")
    assert play(Reply("Sunny.", preamble="Let me look.").events()).report.preambles == ["Let me look."]


def test_the_token_limit_cuts_the_last_message() -> None:
    reply = Reply("It is sun", finish_reason="length")
    assert reply.token_ids[-1] != RETURN
    terminal = reply.events()[-1]
    assert (terminal["type"], terminal["response"]["status"]) == ("response.incomplete", "incomplete")
    assert terminal["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize("size", [1, 3, 20, 10**6])
def test_each_batch_has_its_tokens_before_its_events(size: int) -> None:
    reply = Reply(**FULL, tokens_per_batch=size)
    batches = [decode_batch(event) for event in reply.events() if event["type"] == EVENT_TYPE]
    assert [token for batch in batches for token in batch.token_ids] == reply.token_ids
    assert {len(batch.token_ids) for batch in batches[:-1]} <= {size}
    assert [batch.done for batch in batches] == [False] * (len(batches) - 1) + [True]
    whole = [event for event in reply.events() if event["type"] != EVENT_TYPE]
    assert whole == reply.events(tokens=False) == Reply(**FULL).events(tokens=False)
    assert [event["sequence_number"] for event in whole] == list(range(len(whole)))


def test_the_ids_of_the_server_are_its_own() -> None:
    reply = Reply(**FULL)
    assert play(reply.events()).report.ids
    assert not play(reply.events(tokens=False)).report.ids


def test_a_script_always_gives_the_same_bytes_and_two_scripts_other_ids() -> None:
    assert Reply(**FULL).body() == Reply(**FULL).body()
    assert Reply("A").events()[0]["response"]["id"] != Reply("B").events()[0]["response"]["id"]


def test_a_reply_that_is_given_twice_has_other_ids() -> None:
    reply = Reply("Hi")
    first, second = (json.loads(b"".join(reply.stream(tokens=False)).split(b"data: ")[1].split(b"\n")[0]) for _ in range(2))
    assert first["response"]["id"] != second["response"]["id"]


def test_model_and_tools_of_the_request_are_repeated() -> None:
    tools = [{"type": "function", "name": "get_weather"}]
    bare = Reply(harmony="<|channel|>commentary to=get_weather<|message|>{}<|call|>")
    created = json.loads(bare.frames(request={"model": "m", "tools": tools})[0].split(b"data: ")[1])
    assert (created["response"]["model"], created["response"]["tools"]) == ("m", tools)
    output = json.loads(bare.frames(request={"tools": tools})[-1].split(b"data: ")[1])["response"]["output"]
    assert (output[0]["type"], output[0]["name"]) == ("function_call", "get_weather")


def test_output_tokens_are_counted() -> None:
    reply = Reply("Hi")
    assert reply.events()[-1]["response"]["usage"]["output_tokens"] == len(reply.token_ids)


# --- misuse -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ({}, "a reply needs an answer, reasoning, a preamble, calls or harmony"),
        ({"answer": "Hi", "harmony": "<|channel|>"}, "harmony is the whole output"),
        ({"answer": "Hi", "tokens_per_batch": 0}, "tokens_per_batch must be 1 or more, not 0"),
        ({"answer": "Hi", "chunk": 0}, "chunk must be 'frame', 'byte' or a number of bytes, not 0"),
        ({"answer": "Hi", "chunk": "line"}, "not 'line'"),
        ({"answer": "Hi", "cut_by": "fire"}, "cut_by must be one of 'reset', 'timeout', 'end', not 'fire'"),
        ({"answer": "Hi", "finish_reason": "tired"}, "finish_reason must be one of 'stop', 'length'"),
        ({"answer": "Hi", "verdict": "good"}, "verdict must be one of 'match', 'mismatch', 'unverifiable', 'any'"),
        ({"answer": "Hi", "faults": "lose-delta"}, "Did you mean 'lose-deltas'"),
        ({"answer": "Hi", "faults": ["fire"]}, "no fault is called 'fire'. There are: tensorrt-llm, tool-in-terminal-only"),
        ({"answer": "Hi", "faults": "lose-deltas"}, "'lose-deltas' changes nothing in this reply: it needs two or more tokens_per_batch"),
    ],
)
def test_a_script_that_cannot_be_played_is_an_error_of_its_line(script: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Reply(**script)


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="tokns"):
        Reply("Hi", tokns=False)  # type: ignore[call-arg]


def test_a_reply_describes_itself_shortly() -> None:
    assert str(Reply(**FULL)) == "reasoning, call of get_weather, answer 'It is sunny in Paris.'"
    assert len(str(Reply("x" * 100))) < 40


def test_the_arguments_of_reply_and_server_are_the_same() -> None:
    from harmony_client.testing._reply import ReplyDict

    fields = [name for name, field in Reply.__dataclass_fields__.items() if field.init]
    assert fields == ["answer", *ReplyDict.__annotations__]


def test_a_repairer_reads_every_byte_of_a_reply() -> None:
    repairer = StreamRepairer()
    for event in Reply("Hi", chunk="byte").events():
        repairer.receive(event)
    assert repairer.report.verdict == "match"
