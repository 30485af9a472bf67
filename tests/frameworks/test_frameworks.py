"""What every framework shows its application, with the stock client and with the wrapped one, of the same recordings."""

from __future__ import annotations

from typing import Any

import pytest

from harmony_client import StreamError
from tests.frameworks.drivers import DRIVERS, Driver, Eta, Run, play
from tests.frameworks.server import Conversation, recording

ANSWER = "Your order #W2378156 shipped on Monday and should arrive by Thursday."
SERVERS = ["v12:20", "v12:1", "main:20", "vllm-0.33:20"]
FAULTY = ["v12:20", "main:20"]


def conversation(server: str, *scenarios: str, extension: bool = True) -> Conversation:
    version, _, pattern = server.partition(":")
    return Conversation(*(f"{scenario}@{version}:{pattern}" for scenario in scenarios), extension=extension)


def verdicts(run: Run) -> list[str]:
    return [report.verdict for report in run.reports]


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.label.replace(", ", "-"))
def driver(request: pytest.FixtureRequest) -> Any:
    return request.param


# --- a tool and an answer ----------------------------------------------------------------------------


@pytest.mark.parametrize("server", SERVERS)
async def test_the_tool_is_called_and_the_answer_streamed(driver: Driver, server: str) -> None:
    app = conversation(server, "tool_commentary", "reasoning_final")
    run = await play(driver.converse, app, "How is the weather in Paris?", wrapped=True)
    assert run.error is None
    assert run.cities == ["Paris"]
    assert run.streamed == run.answers == [ANSWER]
    assert [(report.verdict, report.basis, report.ending) for report in run.reports] == [("match", "tokens", "completed")] * 2


@pytest.mark.parametrize("server", FAULTY)
async def test_the_stock_client_loses_the_call_or_the_answer_of_the_same_recordings(driver: Driver, server: str) -> None:
    app = conversation(server, "tool_commentary", "reasoning_final")
    run = await play(driver.converse, app, "How is the weather in Paris?", wrapped=False)
    assert (run.cities, run.streamed) != (["Paris"], [ANSWER])
    assert run.streamed in (["", " by"], [" by"], [""])
    assert run.reports == []


@pytest.mark.parametrize("server", FAULTY)
async def test_call_and_answer_come_through_without_token_batches(driver: Driver, server: str) -> None:
    app = conversation(server, "tool_commentary", "reasoning_final", extension=False)
    run = await play(driver.converse, app, "How is the weather in Paris?", wrapped=True)
    assert (run.error, run.cities, run.streamed, run.answers) == (None, ["Paris"], [ANSWER], [ANSWER])
    assert [(report.verdict, report.basis) for report in run.reports] == [("match", "events")] * 2


async def test_only_the_wrapped_client_asks_for_token_batches(driver: Driver) -> None:
    for wrapped, asked in ((True, "1"), (False, None)):
        app = conversation("v12:1", "final_only")
        await play(driver.converse, app, "Where is my order?", wrapped=wrapped)
        assert {headers.get("x-harmony-tokens") for headers in app.headers} == {asked}


# --- the next turn -----------------------------------------------------------------------------------


@pytest.mark.parametrize("server", SERVERS)
async def test_the_server_accepts_the_items_that_the_next_turn_sends_back(driver: Driver, server: str) -> None:
    app = conversation(server, "tool_commentary", "reasoning_final", "final_only")
    run = await play(driver.converse, app, "How is the weather in Paris?", "And my order?", wrapped=True)
    assert run.error is None
    assert app.refusals == []
    assert run.answers == run.streamed == [ANSWER, ANSWER]
    after_the_call, next_question = app.inputs[1:]
    (call,) = [item for item in after_the_call if item.get("type") == "function_call"]
    (output,) = [item for item in after_the_call if item.get("type") == "function_call_output"]
    assert output["call_id"] == call["call_id"]
    assert (call["name"], call["arguments"]) == ("get_weather", '{"city":"Paris"}')
    assert output["output"] == "It is sunny in Paris."
    assert list(next_question)[: len(after_the_call)] == after_the_call
    assert ANSWER in str(next_question)


async def test_the_call_id_that_comes_back_is_the_one_the_application_saw_and_is_reported(driver: Driver) -> None:
    app = conversation("v12:20", "tool_commentary", "reasoning_final")
    run = await play(driver.converse, app, "How is the weather in Paris?", wrapped=True)
    (call,) = [item for item in app.inputs[1] if item.get("type") == "function_call"]
    snapshot = app.recordings[0].snapshot
    assert snapshot is not None
    (server_call,) = [item for item in snapshot["output"] if item["type"] == "function_call"]
    assert run.reports[0].ids[server_call["call_id"]] == call["call_id"]


async def test_each_thought_comes_back_as_an_item_with_one_part(driver: Driver) -> None:
    app = conversation("v12:20", "two_reasoning", "final_only")
    run = await play(driver.converse, app, "Where is my order?", "And my other one?", wrapped=True)
    assert (run.error, app.refusals, run.answers) == (None, [], [ANSWER, ANSWER])
    thoughts = [item for item in app.inputs[1] if item.get("type") == "reasoning"]
    # LangChain with store=False sends no reasoning back: see test_limits.py.
    if driver.distribution != "langchain-openai":
        texts = [[part["text"] for part in item["content"]] for item in thoughts]
        assert texts == [["First thought about the parcel."], ["Second, different thought."]]
        assert len({item["id"] for item in thoughts}) == 2
    else:
        assert thoughts == []


# --- structured output -------------------------------------------------------------------------------


@pytest.mark.parametrize("server", FAULTY)
async def test_structured_output_streams(driver: Driver, server: str) -> None:
    app = conversation(server, "structured_final")
    run = await play(driver.extract, app, wrapped=True)
    assert (run.error, run.answers, verdicts(run)) == (None, [Eta(eta="Thursday")], ["match"])
    assert app.requests[0]["text"]["format"]["type"] == "json_schema"


@pytest.mark.parametrize("server", FAULTY)
async def test_the_stock_client_streams_no_structured_output(driver: Driver, server: str) -> None:
    run = await play(driver.extract, conversation(server, "structured_final"), wrapped=False)
    if driver.distribution == "openai-agents":  # reads the final response; what it streamed is lost all the same
        assert (run.streamed, run.answers) == ([""], [Eta(eta="Thursday")])
    else:
        assert run.answers in ([], [None])


# --- endings -----------------------------------------------------------------------------------------


async def test_an_answer_that_the_tokens_complete_survives_a_server_that_breaks_off(driver: Driver) -> None:
    run = await play(driver.converse, conversation("v12:20", "duplicate_end"), "Where is my order?", wrapped=True)
    assert (run.error, run.streamed, run.answers, verdicts(run)) == (None, [ANSWER], [ANSWER], ["unverifiable"])
    stock = await play(driver.converse, conversation("v12:20", "duplicate_end"), "Where is my order?", wrapped=False)
    assert "Connection error" in str(stock.error)


async def test_a_broken_stream_reaches_the_application_as_the_frameworks_error_with_ours_as_its_cause(driver: Driver) -> None:
    app = conversation("v12:20", "duplicate_end", extension=False)
    run = await play(driver.converse, app, "Where is my order?", wrapped=True)
    assert run.error is not None
    error = run.error if isinstance(run.error, StreamError) else run.error.__cause__
    assert isinstance(error, StreamError)
    assert error.code == "disconnected"
    assert error.report is run.reports[0]
    assert error.partial is not None
    assert len(app.requests) == 1


async def test_a_stream_that_is_left_early_is_reported_as_closed(driver: Driver) -> None:
    app = conversation("v12:20", "very_long")
    run = await play(driver.leave, app, wrapped=True)
    assert run.error is None
    assert [report.ending for report in run.reports] == ["closed"]
    assert run.reports[0].events_received < len(recording("very_long@v12:20").events(frames=True))
