"""One conversation as each framework holds it, and what the application sees of it.

The framework's part is what its documentation recommends; a driver takes any two clients, so that stock and wrapped ones go the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import agents
import pydantic_ai
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from harmony_client import Report, wrap
from server_ext.replay import ReplayServer
from tests.frameworks.server import Conversation

__all__ = ["DRIVERS", "Clients", "Driver", "LangChain", "LangChainSync", "OpenAIAgents", "PydanticAI", "Run", "play"]

MODEL: Final = "gpt-oss-120b"


class Eta(BaseModel):
    """When a parcel arrives."""

    eta: str


class Clients(NamedTuple):
    """The same client twice."""

    blocking: OpenAI
    asynchronous: AsyncOpenAI


@dataclass
class Run:
    """What an application saw of a conversation.

    Attributes:
        cities: What the tool was called with.
        streamed: The text that was streamed, per question.
        answers: The framework's final answer, per question.
        error: The exception that ended it.
        reports: What `on_report` got; empty for a stock client.
    """

    cities: list[str] = field(default_factory=list)
    streamed: list[str] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    error: Exception | None = None
    reports: list[Report] = field(default_factory=list)

    def get_weather(self, city: str) -> str:
        """The weather of a city."""
        self.cities.append(city)
        return f"It is sunny in {city}."


class Driver(Protocol):
    """A framework.

    Attributes:
        label: How the table names it.
        distribution: Its name on PyPI.
    """

    label: str
    distribution: str

    async def converse(self, clients: Clients, run: Run, *questions: str) -> None:
        """Ask the questions one after the other, streamed, with the tool `get_weather(city)`."""

    async def extract(self, clients: Clients, run: Run) -> None:
        """Ask one question, streamed, for an answer of the form of `Eta`."""

    async def leave(self, clients: Clients, run: Run) -> None:
        """Ask one question and stop reading at the first piece of text."""


async def play(action: Callable[..., Awaitable[None]], app: Conversation, *questions: str, wrapped: bool, **options: Any) -> Run:
    """Do a driver's action against a server of its own, with stock or with wrapped clients; `options` are those of `wrap`."""
    run = Run()
    with ReplayServer(app) as server:
        clients = Clients(OpenAI(base_url=server.base_url, api_key="none"), AsyncOpenAI(base_url=server.base_url, api_key="none"))
        if wrapped:
            options["on_report"] = run.reports.append
            clients = Clients(wrap(clients.blocking, **options), wrap(clients.asynchronous, **options))
        with clients.blocking:
            async with clients.asynchronous:
                try:
                    await action(clients, run, *questions)
                except Exception as error:
                    run.error = error
    return run


class OpenAIAgents:
    """The OpenAI Agents SDK."""

    label = distribution = "openai-agents"

    async def converse(self, clients: Clients, run: Run, *questions: str) -> None:
        agent = self._agent(clients, tools=[agents.function_tool(run.get_weather)])
        history: list[Any] = []
        for question in questions:
            history.append({"role": "user", "content": question})
            result = agents.Runner.run_streamed(agent, history)
            run.streamed.append("")
            async for event in result.stream_events():
                run.streamed[-1] += self._text(event)
            run.answers.append(result.final_output)
            history = result.to_input_list()

    async def extract(self, clients: Clients, run: Run) -> None:
        result = agents.Runner.run_streamed(self._agent(clients, output_type=Eta), "When does it arrive?")
        run.streamed.append("")
        async for event in result.stream_events():
            run.streamed[-1] += self._text(event)
        run.answers.append(result.final_output)

    async def leave(self, clients: Clients, run: Run) -> None:
        result = agents.Runner.run_streamed(self._agent(clients), "Tell me more.")
        async for event in result.stream_events():
            if self._text(event):
                result.cancel()

    @staticmethod
    def _agent(clients: Clients, **settings: Any) -> agents.Agent:
        agents.set_default_openai_client(clients.asynchronous, use_for_tracing=False)
        agents.set_tracing_disabled(True)
        return agents.Agent(name="Assistant", instructions="Be brief.", model=MODEL, **settings)

    @staticmethod
    def _text(event: agents.StreamEvent) -> str:
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            return event.data.delta
        return ""


class PydanticAI:
    """Pydantic AI."""

    label = "pydantic-ai"
    distribution = "pydantic-ai-slim"

    async def converse(self, clients: Clients, run: Run, *questions: str) -> None:
        agent = pydantic_ai.Agent(self._model(clients), instructions="Be brief.", tools=[run.get_weather])
        history: list[pydantic_ai.ModelMessage] = []
        for question in questions:
            run.streamed.append("")
            async with agent.run_stream(question, message_history=history) as result:
                async for text in result.stream_text(delta=True, debounce_by=None):
                    run.streamed[-1] += text
                run.answers.append(await result.get_output())
                history = result.all_messages()

    async def extract(self, clients: Clients, run: Run) -> None:
        agent = pydantic_ai.Agent(self._model(clients), output_type=pydantic_ai.NativeOutput(Eta))
        async with agent.run_stream("When does it arrive?") as result:
            run.answers.append(await result.get_output())

    async def leave(self, clients: Clients, run: Run) -> None:
        async with pydantic_ai.Agent(self._model(clients)).run_stream("Tell me more.") as result:
            await anext(result.stream_text(delta=True, debounce_by=None))

    @staticmethod
    def _model(clients: Clients) -> OpenAIResponsesModel:
        return OpenAIResponsesModel(MODEL, provider=OpenAIProvider(openai_client=clients.asynchronous))


class LangChain:
    """LangChain, asynchronous.

    Args:
        settings: Further arguments of `ChatOpenAI`.
    """

    label = "langchain-openai, async"
    distribution = "langchain-openai"

    def __init__(self, **settings: Any) -> None:
        self.settings = {"store": False, **settings}

    async def converse(self, clients: Clients, run: Run, *questions: str) -> None:
        weather = tool(run.get_weather)
        model = self._model(clients).bind_tools([weather])
        history: list[AnyMessage] = []
        for question in questions:
            history.append(HumanMessage(question))
            run.streamed.append("")
            while True:
                message: Any = None
                async with aclosing(self._stream(model, history)) as chunks:
                    async for chunk in chunks:
                        run.streamed[-1] += chunk.text
                        message = chunk if message is None else message + chunk
                history.append(message)
                if not message.tool_calls:
                    break
                history += [weather.invoke(call) for call in message.tool_calls]
            run.answers.append(message.text)

    async def extract(self, clients: Clients, run: Run) -> None:
        model = self._model(clients).with_structured_output(Eta.model_json_schema())
        answers = [answer async for answer in self._stream(model, "When does it arrive?")]
        run.answers.append(Eta(**answers[-1]) if answers else None)

    async def leave(self, clients: Clients, run: Run) -> None:
        async with aclosing(self._stream(self._model(clients), "Tell me more.")) as chunks:
            async for chunk in chunks:
                if chunk.text:
                    break
        await asyncio.sleep(0)  # astream() leaves the generator inside it to the event loop, which closes it in its next round

    def _model(self, clients: Clients) -> ChatOpenAI:
        return ChatOpenAI(
            model=MODEL,
            use_responses_api=True,
            root_client=clients.blocking,
            client=clients.blocking.chat.completions,
            root_async_client=clients.asynchronous,
            async_client=clients.asynchronous.chat.completions,
            **self.settings,
        )

    async def _stream(self, model: Runnable[Any, Any], given: Any) -> Any:
        chunks: Any = model.astream(given)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk


class LangChainSync(LangChain):
    """LangChain, synchronous."""

    label = "langchain-openai, sync"

    async def _stream(self, model: Runnable[Any, Any], given: Any) -> Any:
        chunks: Any = model.stream(given)
        with closing(chunks):
            for chunk in chunks:
                yield chunk


DRIVERS: Final[Sequence[Driver]] = (OpenAIAgents(), PydanticAI(), LangChainSync(), LangChain())
