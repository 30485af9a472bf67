"""LangChain's `ChatOpenAI` that calls a tool and streams its answer.

Needs `pip install langchain-openai`. Against a replay server that it starts itself, or against your own::

    python examples/langchain_quickstart.py
    python examples/langchain_quickstart.py http://gpu:8000/v1
"""

from __future__ import annotations

import sys
from functools import reduce
from operator import add
from typing import Any

from langchain_core.messages import AIMessageChunk, AnyMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI

from harmony_client import Report, wrap
from server_ext.replay import ReplayApp, ReplayServer, load


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    print(f"get_weather({city})")
    return f"It is sunny in {city}."


def chat_model(base_url: str, reports: list[Report]) -> ChatOpenAI:
    client = wrap(OpenAI(base_url=base_url, api_key="none"), on_report=reports.append)
    async_client = wrap(AsyncOpenAI(base_url=base_url, api_key="none"), on_report=reports.append)
    return ChatOpenAI(
        model="gpt-oss-120b",
        use_responses_api=True,
        store=False,  # or it sends reasoning back without its text, which TensorRT-LLM refuses
        root_client=client,
        client=client.chat.completions,  # without these two it makes clients of its own
        root_async_client=async_client,
        async_client=async_client.chat.completions,
    )


def ask(base_url: str) -> None:
    reports: list[Report] = []
    model = chat_model(base_url, reports).bind_tools([get_weather])
    messages: list[AnyMessage] = [HumanMessage("How is the weather in Paris?")]
    while not isinstance(messages[-1], AIMessageChunk):
        chunks = []
        for chunk in model.stream(messages):
            print(chunk.text, end="", flush=True)
            chunks.append(chunk)
        answer = reduce(add, chunks)
        messages += [answer, *(get_weather.invoke(call) for call in answer.tool_calls)]
    print()
    for report in reports:
        print(f"verdict: {report.verdict} (made from {report.basis})")


def two_turns() -> ReplayServer:
    """A server that plays a tool call for the first request and an answer for the second."""
    recordings = {recording.name: recording for recording in load()}
    apps = [ReplayApp([recordings[name]]) for name in ("tool_commentary@v12:20", "reasoning_final@v12:20")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps.pop(0)(scope, receive, send)

    return ReplayServer(app)


if __name__ == "__main__":
    if sys.argv[1:]:
        ask(sys.argv[1])
    else:
        with two_turns() as server:
            ask(server.base_url)
