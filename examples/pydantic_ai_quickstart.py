"""An agent of Pydantic AI that calls a tool and streams its answer.

Needs `pip install 'pydantic-ai-slim[openai]'`. Against a replay server that it starts itself, or against your own::

    python examples/pydantic_ai_quickstart.py
    python examples/pydantic_ai_quickstart.py http://gpu:8000/v1
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from harmony_client import Report, wrap
from server_ext.replay import ReplayApp, ReplayServer, load


def get_weather(city: str) -> str:
    """The weather of a city."""
    print(f"get_weather({city})")
    return f"It is sunny in {city}."


async def ask(base_url: str) -> None:
    reports: list[Report] = []
    client = wrap(AsyncOpenAI(base_url=base_url, api_key="none"), on_report=reports.append)
    model = OpenAIResponsesModel("gpt-oss-120b", provider=OpenAIProvider(openai_client=client))
    agent = Agent(model, instructions="Be brief.", tools=[get_weather])
    async with client, agent.run_stream("How is the weather in Paris?") as result:
        async for text in result.stream_text(delta=True):
            print(text, end="", flush=True)
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
        asyncio.run(ask(sys.argv[1]))
    else:
        with two_turns() as server:
            asyncio.run(ask(server.base_url))
