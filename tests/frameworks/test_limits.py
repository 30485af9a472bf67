"""What a framework cannot do, and how it can be helped: every limit in docs/frameworks.md.

A test that fails here says that a framework has changed: mend the page with it.
"""

from __future__ import annotations

from typing import Any

import agents
import pydantic_ai
import pytest
from agents.models.openai_responses import OpenAIResponsesModel as AgentsModel
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, SecretStr

from harmony_client import wrap
from tests.frameworks.drivers import DRIVERS, Clients, Driver, Eta, LangChain, LangChainSync, OpenAIAgents, PydanticAI, Run, play
from tests.frameworks.server import Conversation, doubts

ANSWER = "Your order #W2378156 shipped on Monday and should arrive by Thursday."
QUESTION = "Where is my order?"


# --- all ---------------------------------------------------------------------------------------------

WEB_SEARCH = {
    "openai-agents": ["input[2]: Unknown input type: web_search_call"],
    "pydantic-ai-slim": [],
    "langchain-openai": ["input[1]: Unknown input type: web_search_call"],
}


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.label)
async def test_a_call_of_the_built_in_browser_cannot_be_sent_back_but_by_pydantic_ai_which_leaves_it_out(driver: Driver) -> None:
    app = Conversation("browser_search@v12:20", "final_only@v12:20")
    run = await play(driver.converse, app, QUESTION, QUESTION, wrapped=True)
    assert app.refusals == WEB_SEARCH[driver.distribution]
    assert (run.error is None) == (app.refusals == [])


DOUBTS = {
    "openai-agents": ["message passed over"],
    "pydantic-ai-slim": ["call not found"],
    "langchain-openai": ["call not found", "message refused"],
}


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.label)
async def test_what_the_types_of_released_tensorrt_llm_may_make_of_the_next_turn(driver: Driver) -> None:
    app = Conversation("tool_commentary@v12:20", "reasoning_final@v12:20", "final_only@v12:20")
    await play(driver.converse, app, "How is the weather in Paris?", QUESTION, wrapped=True)
    assert doubts(app.inputs[2]) == DOUBTS[driver.distribution]


# --- openai-agents -----------------------------------------------------------------------------------


async def test_openai_agents_makes_an_error_of_an_answer_that_the_token_limit_cut() -> None:
    run = await play(OpenAIAgents().converse, Conversation("truncated_answer@v12:20"), QUESTION, wrapped=True)
    assert isinstance(run.error, agents.ModelBehaviorError)
    assert "response.incomplete" in str(run.error)
    assert run.streamed == ["Your order #W2378156 shipped on"]
    assert [report.ending for report in run.reports] == ["incomplete"]


async def test_openai_agents_takes_openai_off_a_model_name_unless_it_is_given_a_model() -> None:
    class Named(OpenAIAgents):
        def __init__(self, as_object: bool) -> None:
            self.as_object = as_object

        def _agent(self, clients: Clients, **settings: Any) -> agents.Agent:  # type: ignore[override]
            agent = super()._agent(clients, **settings)
            name = "openai/gpt-oss-120b"
            agent.model = AgentsModel(model=name, openai_client=clients.asynchronous) if self.as_object else name
            return agent

    for as_object, sent in ((False, "gpt-oss-120b"), (True, "openai/gpt-oss-120b")):
        app = Conversation("final_only@v12:20")
        run = await play(Named(as_object).converse, app, QUESTION, wrapped=True)
        assert (run.answers, app.requests[0]["model"]) == ([ANSWER], sent)


# --- pydantic-ai -------------------------------------------------------------------------------------


async def test_pydantic_ai_keeps_the_reasoning_as_raw_content_and_sends_it_back() -> None:
    async def converse(clients: Clients, run: Run) -> None:
        agent = pydantic_ai.Agent(PydanticAI()._model(clients))
        async with agent.run_stream(QUESTION) as result:
            run.answers += [await result.get_output(), result.all_messages()[-1].parts[0]]

    run = await play(converse, Conversation("reasoning_final@v12:20"), wrapped=True)
    answer, thought = run.answers
    assert (answer, thought.content) == (ANSWER, "")
    assert thought.provider_details == {"raw_content": ["The user asks where the order is. I should look it up and answer briefly."]}


async def test_pydantic_ai_ends_run_stream_at_the_first_text_even_beside_a_call() -> None:
    app = Conversation("tool_then_final@v12:20", "final_only@v12:20")
    run = await play(PydanticAI().converse, app, "How is the weather in Paris?", wrapped=True)
    assert (run.cities, run.answers, len(app.requests)) == (["Paris"], ["It is sunny."], 1)


async def test_pydantic_ai_runs_to_the_end_in_run_stream_events() -> None:
    async def converse(clients: Clients, run: Run) -> None:
        agent = pydantic_ai.Agent(PydanticAI()._model(clients), tools=[run.get_weather])
        async with agent.run_stream_events("How is the weather in Paris?") as events:
            run.answers += [event.result.output async for event in events if isinstance(event, pydantic_ai.AgentRunResultEvent)]

    app = Conversation("tool_then_final@v12:20", "final_only@v12:20")
    run = await play(converse, app, wrapped=True)
    assert (run.cities, run.answers, len(app.requests)) == (["Paris"], [ANSWER], 2)


async def test_pydantic_ai_gives_an_answer_that_the_token_limit_cut_and_says_so() -> None:
    async def converse(clients: Clients, run: Run) -> None:
        async with pydantic_ai.Agent(PydanticAI()._model(clients)).run_stream(QUESTION) as result:
            run.answers += [await result.get_output(), result.response.finish_reason]

    run = await play(converse, Conversation("truncated_answer@v12:20"), wrapped=True)
    assert run.answers == ["Your order #W2378156 shipped on", "length"]


# --- langchain ---------------------------------------------------------------------------------------


def clients() -> Clients:
    return Clients(wrap(OpenAI(base_url="http://x/v1", api_key="none")), wrap(AsyncOpenAI(base_url="http://x/v1", api_key="none")))


def test_langchain_discards_a_root_client_that_comes_without_client() -> None:
    """A canary for langchain-ai/langchain#38116: when it fails, two of the four arguments are enough."""
    wrapped = clients()
    model = ChatOpenAI(
        model="gpt-oss-120b", root_client=wrapped.blocking, root_async_client=wrapped.asynchronous, api_key=SecretStr("none")
    )
    assert model.root_client is not wrapped.blocking
    assert model.root_async_client is not wrapped.asynchronous


def test_langchain_keeps_root_clients_that_come_with_client_and_async_client() -> None:
    wrapped = clients()
    model = LangChain()._model(wrapped)
    assert model.root_client is wrapped.blocking
    assert model.root_async_client is wrapped.asynchronous


@pytest.mark.parametrize("driver", [LangChainSync(store=None), LangChain(store=None)], ids=lambda driver: driver.label)
async def test_langchain_sends_reasoning_back_without_its_text_unless_store_is_false(driver: LangChain) -> None:
    app = Conversation("tool_commentary@v12:20", "reasoning_final@v12:20")
    run = await play(driver.converse, app, "How is the weather in Paris?", wrapped=True)
    assert run.cities == ["Paris"]
    assert app.refusals == ["input[1]: a reasoning item with 0 parts instead of 1"]
    assert run.error is not None


async def test_langchain_streams_no_text_of_the_reasoning() -> None:
    async def ask(clients: Clients, run: Run) -> None:
        message = None
        async for chunk in LangChain()._model(clients).astream(QUESTION):
            message = chunk if message is None else message + chunk
        run.answers.append(message)

    run = await play(ask, Conversation("reasoning_final@v12:20"), wrapped=True)
    (message,) = run.answers
    assert message.text == ANSWER
    assert "look it up" not in str(message)


async def test_langchain_without_streaming_shows_what_the_server_lists_and_is_not_reported() -> None:
    async def ask(clients: Clients, run: Run) -> None:
        run.answers.append(await LangChain()._model(clients).ainvoke(QUESTION))

    run = await play(ask, Conversation("reasoning_final@v12:20"), wrapped=True)
    assert (run.answers[0].text, run.reports) == (ANSWER, [])


async def test_langchain_streams_inside_invoke_where_streaming_is_on_and_is_reported() -> None:
    async def ask(clients: Clients, run: Run) -> None:
        run.answers.append(await LangChain(streaming=True)._model(clients).ainvoke(QUESTION))

    run = await play(ask, Conversation("reasoning_final@v12:20"), wrapped=True)
    assert (run.answers[0].text, [report.verdict for report in run.reports]) == (ANSWER, ["match"])


async def test_langchain_reads_a_streamed_object_of_a_class_from_the_response_only_if_the_server_repeats_the_text_format() -> None:
    async def ask(clients: Clients, run: Run) -> None:
        model = LangChain()._model(clients).with_structured_output(Eta)
        run.answers += [answer async for answer in LangChain()._stream(model, QUESTION)]

    run = await play(ask, Conversation("structured_final@v12:20", repeats_text=False), wrapped=True)
    assert "does not have a 'parsed' field" in str(run.error)
    run = await play(ask, Conversation("structured_final@v12:20"), wrapped=True)
    assert run.answers[-1] == Eta(eta="Thursday")


class get_weather(BaseModel):  # noqa: N801 - the name of the tool that the recording calls
    """The weather of a city."""

    city: str


STRUCTURED: list[tuple[type[BaseModel], Any, str, BaseModel]] = [
    (Eta, "json_schema", "structured_final", Eta(eta="Thursday")),
    (Eta, "json_mode", "structured_final", Eta(eta="Thursday")),
    (get_weather, "function_calling", "tool_commentary", get_weather(city="Paris")),
]


@pytest.mark.parametrize(
    ("schema", "method", "scenario", "expected"), STRUCTURED, ids=lambda value: value if isinstance(value, str) else ""
)
@pytest.mark.parametrize("driver", [LangChainSync(), LangChain()], ids=lambda driver: driver.label)
async def test_langchain_streams_structured_output_in_each_of_its_ways(
    driver: LangChain, schema: type[BaseModel], method: Any, scenario: str, expected: BaseModel
) -> None:
    async def ask(clients: Clients, run: Run) -> None:
        model = driver._model(clients).with_structured_output(schema, method=method)
        run.answers += [answer async for answer in driver._stream(model, [HumanMessage("As JSON: when does it arrive?")])]

    run = await play(ask, Conversation(f"{scenario}@v12:20"), wrapped=True)
    assert run.error is None
    assert run.answers[-1] == expected
