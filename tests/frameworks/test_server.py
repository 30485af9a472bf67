"""The checking server itself: what it refuses, what it lets pass, what it doubts."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from server_ext.replay import ReplayServer
from tests.frameworks.server import Conversation, doubts, refusal

QUESTION = {"role": "user", "content": "How is the weather in Paris?"}
PART = {"type": "reasoning_text", "text": "Hm."}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [PART]}
CALL = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"}
OUTPUT: Any = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}]}


def test_a_whole_conversation_is_accepted() -> None:
    assert refusal([QUESTION, THOUGHT, CALL, OUTPUT, THOUGHT, ANSWER, QUESTION]) is None


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([QUESTION, OUTPUT], "input[1]: No call message found for call_1"),
        ([OUTPUT, CALL], "input[0]: No call message found for call_1"),
        ([CALL, {**OUTPUT, "call_id": "call_2"}], "input[1]: No call message found for call_2"),
        ([CALL, {**OUTPUT, "output": [{"type": "input_text", "text": "sunny"}]}], "input[1]: a function_call_output that is not text"),
        ([{**CALL, "call_id": None}], "input[0]: a function_call without call_id"),
        ([{**THOUGHT, "content": []}], "input[0]: a reasoning item with 0 parts instead of 1"),
        ([{**THOUGHT, "content": None}], "input[0]: a reasoning item with 0 parts instead of 1"),
        ([{**THOUGHT, "content": [PART, PART]}], "input[0]: a reasoning item with 2 parts instead of 1"),
        ([{"type": "item_reference", "id": "rs_1"}], "input[0]: Unknown input type: item_reference"),
        ([{"type": "web_search_call", "id": "ws_1"}], "input[0]: Unknown input type: web_search_call"),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], "input[0]: a message without text"),
    ],
)
def test_what_tensorrt_llm_refuses_is_refused(items: list[Any], expected: str) -> None:
    assert refusal(items) == expected


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([QUESTION, {**CALL, "status": None}, OUTPUT], []),
        ([QUESTION, CALL, OUTPUT], ["call not found"]),
        ([{**ANSWER, "id": "msg_1", "status": "completed"}], ["message passed over"]),
        ([ANSWER], ["message refused"]),
        ([{"role": "assistant", "content": "Sunny."}, THOUGHT], []),
    ],
)
def test_a_doubt_is_named(items: list[Any], expected: list[str]) -> None:
    assert doubts(items) == expected


def test_recordings_are_played_in_order_the_last_one_again_and_a_refused_request_counts() -> None:
    app = Conversation("tool_commentary@v12:1", "tool_commentary@v12:1", "final_only@v12:1")
    with ReplayServer(app) as server, OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        first = client.responses.create(model="any/name", input="x")
        with pytest.raises(BadRequestError, match="No call message found for call_1"):
            client.responses.create(model="any/name", input=[OUTPUT])
        second, third = (client.responses.create(model="any/name", input="x") for _ in range(2))
    assert [item.type for item in first.output] == ["reasoning", "function_call"]
    assert second.output_text == third.output_text
    assert app.refusals == ["input[0]: No call message found for call_1"]
    assert [len(items) for items in app.inputs] == [1, 1, 1, 1]


def test_the_responses_repeat_the_text_format_of_the_request() -> None:
    app = Conversation("structured_final@v12:20")
    with ReplayServer(app) as server, OpenAI(base_url=server.base_url, api_key="none") as client:
        response = client.responses.create(model="m", input="x", text={"format": {"type": "json_object"}})
        plain = client.responses.create(model="m", input="x")
    assert response.text is not None
    assert response.text.format is not None
    assert response.text.format.type == "json_object"
    assert plain.text is None
