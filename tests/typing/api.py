"""The types that users see: checked by mypy and pyright, both strict, and never run.

A line with an expected error has a comment that both checkers demand to be needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, assert_type

import openai
from openai import AsyncOpenAI, AsyncStream, AzureOpenAI, OpenAI, Stream
from openai.lib.streaming.responses import AsyncResponseStream, AsyncResponseStreamManager, ResponseStream, ResponseStreamManager
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

import harmony_client
from harmony_client import (
    AsyncHarmonyOpenAI,
    Checker,
    Difference,
    DisconnectedError,
    Dropped,
    FrameError,
    HarmonyOpenAI,
    LimitError,
    Outcome,
    Repair,
    Report,
    ServerError,
    StreamError,
    StreamRepairer,
    VerificationError,
    Violation,
    check,
    outcome_of,
    report_of,
    wrap,
)
from harmony_client.reference import compare, prepare
from harmony_client.report import Reference, ReferenceDifference
from harmony_client.tokens import Evidence


class City(BaseModel):
    name: str


# --- clients ----------------------------------------------------------------------------------------


def clients_take_the_arguments_of_the_sdk_and_ours(report: Report) -> None:
    client = HarmonyOpenAI(base_url="http://gpu:8000/v1", api_key="none", timeout=5.0, max_retries=0, deltas="hold", reference=True)
    assert_type(client, HarmonyOpenAI)
    as_sdk: OpenAI = client
    as_async_sdk: AsyncOpenAI = AsyncHarmonyOpenAI(api_key="none", on_report=print, mode="observe", on_disconnect="incomplete")
    print(as_sdk, as_async_sdk, report)
    HarmonyOpenAI(mode="repiar")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    HarmonyOpenAI(deltas="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    HarmonyOpenAI(request_tokens="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def streams_have_the_types_of_the_sdk(client: HarmonyOpenAI) -> None:
    stream = client.responses.create(model="gpt-oss-120b", input="Hello", stream=True)
    assert_type(stream, Stream[ResponseStreamEvent])
    for event in stream:
        assert_type(event, ResponseStreamEvent)
        if event.type == "response.output_text.delta":
            assert_type(event.delta, str)
    assert_type(client.responses.create(model="gpt-oss-120b", input="Hello"), Response)
    manager = client.responses.stream(model="gpt-oss-120b", input="Where?", text_format=City)
    assert_type(manager, ResponseStreamManager[City])
    with manager as helper:
        assert_type(helper, ResponseStream[City])
        assert_type(helper.get_final_response().output_parsed, City | None)


async def asynchronous_streams_have_the_types_of_the_sdk(client: AsyncHarmonyOpenAI) -> None:
    stream = await client.responses.create(model="gpt-oss-120b", input="Hello", stream=True)
    assert_type(stream, AsyncStream[ResponseStreamEvent])
    async for event in stream:
        assert_type(event, ResponseStreamEvent)
    manager = client.responses.stream(model="gpt-oss-120b", input="Where?", text_format=City)
    assert_type(manager, AsyncResponseStreamManager[City])
    async with manager as helper:
        assert_type(helper, AsyncResponseStream[City])
        assert_type((await helper.get_final_response()).output_parsed, City | None)


def copies_keep_their_class(client: HarmonyOpenAI, other: AsyncHarmonyOpenAI) -> None:
    assert_type(client.with_options(timeout=3, deltas="live"), HarmonyOpenAI)
    assert_type(other.copy(on_mismatch="raise"), AsyncHarmonyOpenAI)


def wrapped_clients_keep_their_class(client: AzureOpenAI, other: AsyncOpenAI) -> None:
    assert_type(wrap(client), AzureOpenAI)
    assert_type(wrap(other, on_report=lambda report: print(report.verdict), preambles="message", reference=False), AsyncOpenAI)
    wrap(client, delta="live")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    wrap(client, deltas="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    wrap("client")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]


# --- after a stream ---------------------------------------------------------------------------------


def a_report_has_typed_fields(stream: Stream[ResponseStreamEvent]) -> None:
    report = report_of(stream)
    assert_type(report, Report)
    assert_type(report.verdict, Literal["match", "mismatch", "unverifiable"])
    assert_type(report.basis, Literal["tokens", "events"])
    assert_type(report.mode, Literal["tokens", "lost", "events"])
    assert_type(report.repairs, list[Repair])
    assert_type(report.repairs[0].output_index, int | None)
    assert_type(report.differences, list[Difference])
    assert_type(report.unexpected_differences[0].expected, bool)
    assert_type(report.dropped, list[Dropped])
    assert_type(report.repair_codes, set[str])
    assert_type(report.ids, dict[str, str])
    assert_type(report.reference, Reference | None)
    assert_type(report.server_response, dict[str, Any] | None)
    print(json.dumps(report.as_dict()))


def an_outcome_can_be_taken_apart(stream: Stream[ResponseStreamEvent]) -> None:
    assert_type(outcome_of(stream), Outcome)
    ending, response, error = outcome_of(stream)
    assert_type(ending, str | None)
    assert_type(response, Response | None)
    assert_type(error, openai.APIError | None)


def errors_carry_typed_fields(error: StreamError) -> None:
    assert_type(error.code, str)
    assert_type(error.retryable, bool)
    assert_type(error.report, Report | None)
    if isinstance(error, ServerError):
        assert_type(error.body, object)
    kinds: list[type[StreamError]] = [ServerError, DisconnectedError, LimitError, VerificationError]
    value_error: ValueError = FrameError("bad-ids", "no ids")
    print(kinds, value_error)


# --- without the SDK --------------------------------------------------------------------------------


def the_core_takes_and_returns_plain_events(events: Iterable[dict[str, Any]]) -> None:
    repairer = StreamRepairer(tools=["get_weather", {"type": "function", "name": "get_time"}], deltas="live", keep_tokens=True)
    for event in events:
        assert_type(repairer.receive(event), list[dict[str, Any]])
    assert_type(repairer.receive_eof(ConnectionError()), list[dict[str, Any]])
    assert_type(repairer.failure, StreamError | None)
    assert_type(repairer.finished, bool)
    assert_type(repairer.partial(), dict[str, Any] | None)
    assert_type(repairer.evidence(), Evidence | None)
    prepare()
    assert_type(compare(repairer.evidence()), Reference)
    assert_type(compare(None).differences, tuple[ReferenceDifference, ...])
    StreamRepairer(mode="off")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def the_checker_returns_violations(events: list[dict[str, Any]]) -> None:
    assert_type(check(events), list[Violation])
    checker = Checker()
    assert_type(checker.receive(events[0]), list[Violation])
    code, position, sequence_number, output_index, message = checker.close(failed=True)[0]
    assert_type((code, position, message), tuple[str, int, str])
    assert_type((sequence_number, output_index), tuple[int | None, int | None])


def a_name_that_does_not_exist_is_an_error() -> None:
    harmony_client.HarmonyOpenAl  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # noqa: B018
    assert_type(harmony_client.__version__, str)
