"""An agent of the OpenAI Agents SDK that calls a tool and streams its answer.

Needs `pip install openai-agents`. Against a replay server that it starts itself, or against your own::

    python examples/openai_agents_quickstart.py
    python examples/openai_agents_quickstart.py http://gpu:8000/v1
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI

from harmony_client import Report, wrap
from server_ext.replay import ReplayApp, ReplayServer, load


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    print(f"get_weather({city})")
    return f"It is sunny in {city}."


async def ask(base_url: str) -> None:
    reports: list[Report] = []
    client = wrap(AsyncOpenAI(base_url=base_url, api_key="none"), on_report=reports.append)
    set_default_openai_client(client, use_for_tracing=False)
    set_tracing_disabled(True)  # traces would be sent to OpenAI

    agent = Agent(name="Assistant", instructions="Be brief.", model="gpt-oss-120b", tools=[get_weather])
    async with client:
        result = Runner.run_streamed(agent, "How is the weather in Paris?")
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                print(event.data.delta, end="", flush=True)
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
