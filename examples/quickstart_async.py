"""Stream a tool call with AsyncHarmonyOpenAI.

Against a replay server that it starts itself, or against your own::

    python examples/quickstart_async.py
    python examples/quickstart_async.py http://gpu:8000/v1
"""

from __future__ import annotations

import asyncio
import sys

from openai.types.responses import FunctionToolParam

from harmony_client import AsyncHarmonyOpenAI, report_of
from server_ext.replay import ReplayServer

GET_WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}


async def ask(base_url: str, model: str) -> None:
    async with AsyncHarmonyOpenAI(base_url=base_url, api_key="none") as client:
        stream = await client.responses.create(model=model, input="How is the weather in Paris?", tools=[GET_WEATHER], stream=True)
        async for event in stream:
            if event.type == "response.function_call_arguments.delta":
                print(event.delta, end="|", flush=True)
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                print(f"\ncall {event.item.name}({event.item.arguments})")
        print(f"verdict: {report_of(stream).verdict}")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(ask(sys.argv[1], "gpt-oss-120b"))
    else:
        with ReplayServer() as server:  # plays the recording that the model's name names
            asyncio.run(ask(server.base_url, "tool_commentary:1"))
