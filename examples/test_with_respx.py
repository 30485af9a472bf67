"""Tests of an application that streams gpt-oss, with respx. Copy the file and put your application in.

The same file passes with openai 2, which runs on httpx, and with openai 3, which runs on httpx2::

    pip install 'harmony-stream-client' pytest respx
    pytest examples/test_with_respx.py
"""

from __future__ import annotations

import asyncio
import json

import httpx
import openai
import pytest
import respx

from harmony_client import AsyncHarmonyOpenAI, HarmonyOpenAI, StreamError
from harmony_client.testing import Reply, patch_respx

patch_respx()  # once, best in conftest.py: without it respx does not see the requests of openai 3

SERVER = "http://gpu:8000/v1"
URL = f"{SERVER}/responses"
ANSWER = "Your order #W2378156 shipped on Monday and should arrive by Thursday."


# --- the application ------------------------------------------------------------------------------


def ask(question: str) -> str:
    client = HarmonyOpenAI(base_url=SERVER, api_key="none", max_retries=0)
    with client.responses.stream(model="gpt-oss-120b", input=question) as stream:
        return "".join(event.delta for event in stream if event.type == "response.output_text.delta")


async def ask_with_weather(question: str) -> str:
    client = AsyncHarmonyOpenAI(base_url=SERVER, api_key="none", max_retries=0)
    conversation: list = [{"role": "user", "content": question}]
    while True:
        async with client.responses.stream(model="gpt-oss-120b", input=conversation) as stream:
            items = [event.item async for event in stream if event.type == "response.output_item.done"]
        calls = [item for item in items if item.type == "function_call"]
        if not calls:
            return items[-1].content[0].text
        conversation += [item.model_dump(exclude_none=True) for item in items]
        for call in calls:
            weather = f"sunny in {json.loads(call.arguments)['city']}"
            conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": weather})


# --- its tests ------------------------------------------------------------------------------------


@respx.mock
def test_the_answer_is_whole_though_the_server_loses_most_of_it() -> None:
    reply = Reply(ANSWER, reasoning="The user asks where the order is.", faults="tensorrt-llm", tokens_per_batch=20)
    respx.post(URL).mock(side_effect=reply)
    assert ask("Where is my order?") == ANSWER
    assert reply.reports[0].verdict == "match"


@respx.mock
def test_without_token_batches_the_answer_is_whole_too() -> None:
    respx.post(URL).mock(side_effect=Reply(ANSWER, tokens=False, faults="tensorrt-llm", tokens_per_batch=20))
    assert ask("Where is my order?") == ANSWER


@respx.mock
def test_a_tool_call_is_answered_in_a_second_turn() -> None:
    call = Reply(calls=[("get_weather", {"city": "Paris"})], faults="tensorrt-llm")
    route = respx.post(URL).mock(side_effect=[call, Reply("It is sunny in Paris.")])
    assert asyncio.run(ask_with_weather("How is the weather?")) == "It is sunny in Paris."
    sent = json.loads(route.calls.last.request.content)["input"]
    assert [item.get("type", "message") for item in sent] == ["message", "function_call", "function_call_output"]
    assert sent[1]["call_id"] == sent[2]["call_id"]


@respx.mock
@pytest.mark.parametrize(("cut_by", "error"), [("reset", openai.APIConnectionError), ("timeout", openai.APITimeoutError)])
def test_of_a_stream_that_breaks_nothing_is_lost_that_had_come(cut_by: str, error: type[Exception]) -> None:
    respx.post(URL).mock(side_effect=Reply(ANSWER, cut_after=15, cut_by=cut_by))
    with pytest.raises(StreamError) as caught:
        ask("Where is my order?")
    assert isinstance(caught.value, error)
    assert ANSWER.startswith(caught.value.partial.output_text)
    assert caught.value.partial.output_text


@respx.mock
def test_a_server_that_does_not_answer_is_a_timeout() -> None:
    respx.post(URL).mock(side_effect=httpx.ReadTimeout)  # plain respx
    with pytest.raises(openai.APITimeoutError):
        ask("Where is my order?")


@respx.mock
def test_an_error_status_is_the_sdks_error() -> None:
    respx.post(URL).mock(return_value=httpx.Response(400, json={"error": {"message": "no such model"}}))  # plain respx
    with pytest.raises(openai.BadRequestError, match="no such model"):
        ask("Where is my order?")
