"""What ties the client to the SDK: the event objects it builds, and the private names it relies on."""

from __future__ import annotations

import importlib.util
import inspect
from functools import cached_property
from typing import Any

import openai
import pytest
from openai import AsyncStream, Stream
from openai.types.responses import Response, ResponseStreamEvent

import harmony_client.client as client_module
from harmony_client._events import EventFactory, event_classes
from tests.clients import (
    HTTP,
    KINDS,
    Server,
    answer,
    events_of,
    frames,
    streamed,
    types_of,
)

both = pytest.mark.parametrize("kind", KINDS)


# --- event objects ------------------------------------------------------------------------------------

MALFORMED: list[dict[str, Any]] = [
    {"type": "response.output_text.delta", "delta": None},
    {"type": "response.output_text.delta", "delta": 3, "logprobs": {}, "item_id": [], "extra": {"a": 1}},
    {"type": "response.output_item.added", "item": {"type": "message", "content": None}, "output_index": "x"},
    {"type": "response.output_item.done", "item": {"type": "unheard-of", "x": 1}, "output_index": 0, "sequence_number": 1},
    {"type": "response.completed", "response": {"output": [{"type": "function_call"}, 3]}, "sequence_number": -1},
    {"type": "response.completed", "response": None},
    {"type": "vendor.ping", "sequence_number": 1},
    {"type": "response.unheard_of.delta", "delta": "x"},
    {"type": "error", "message": None, "code": 3},
]


@pytest.mark.parametrize("data", [*answer(), *MALFORMED], ids=lambda data: data["type"])
def test_an_event_is_the_object_that_the_sdk_makes_of_it(data: dict[str, Any]) -> None:
    client = openai.OpenAI(api_key="k")
    theirs: Any = client._process_response_data(data=data, cast_to=ResponseStreamEvent, response=None)  # type: ignore[arg-type]
    ours = EventFactory(None).event(data)
    assert type(ours) is type(theirs)
    assert ours == theirs
    assert ours.model_fields_set == theirs.model_fields_set
    assert ours.to_dict(warnings=False) == theirs.to_dict(warnings=False)


@pytest.mark.parametrize("key", ["_fields_set", "_BaseModel__cls", "_cls", "self", "__class__", "__dict__", "model_config"])
def test_no_key_that_a_server_sends_breaks_the_event(key: str) -> None:
    poison = {key: "x", "type": "response.completed", "response": {"output": 3, key: {key: []}}}
    assert EventFactory(None).event(poison).type == "response.completed"


def test_lone_surrogates_survive() -> None:
    event = EventFactory(None).event({**answer()[4], "delta": "\ud83d"})
    assert event.delta == "\ud83d"


@both
async def test_a_strict_client_stays_strict(kind: str) -> None:
    events = answer()
    events[4]["logprobs"] = "none"
    client = Server(events).client(kind, mode="observe", _strict_response_validation=True)
    with pytest.raises(openai.APIResponseValidationError):
        await events_of(await streamed(client))
    assert types_of(await events_of(await streamed(Server(events).client(kind))))[-1] == "completed"


@pytest.mark.skipif(HTTP.__name__ == "httpx" or importlib.util.find_spec("httpx") is None, reason="needs openai 3 and httpx")
@both
async def test_an_httpx_client_under_openai_3_works_and_its_errors_count(kind: str) -> None:
    import httpx

    class Breaking(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self) -> Any:
            yield from frames(answer()[:6])
            raise httpx.ReadTimeout("slow")

        async def __aiter__(self) -> Any:
            for chunk in self:
                yield chunk

    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Breaking()))
    http_client: Any = httpx.Client(transport=transport) if kind == "sync" else httpx.AsyncClient(transport=transport)
    stream = await streamed(Server().client(kind, http_client=http_client))
    with pytest.raises(openai.APITimeoutError):
        await events_of(stream)


# --- the SDK's private names --------------------------------------------------------------------------

WHAT_TO_DO = {
    "request": "client.py overrides request(cast_to, options, *, stream, stream_cls); follow its new signature there.",
    "stream": "_stream.py overrides Stream.__stream__, which Stream.__init__ calls for self._iterator; find what yields events now.",
    "stream_cls": "client.py swaps Stream[ResponseStreamEvent]; find what Responses.create and retrieve pass now.",
    "union": "_events.py reads the event classes from the union ResponseStreamEvent; find where they are listed now.",
    "helper": "report_of() finds the HTTP response of the responses.stream() helper in ResponseStream._response.",
    "strict": "_stream.py reads client._strict_response_validation, or else strict clients become lenient.",
    "http": "client.py reads client._client.headers, or else the HTTP client's own x-harmony-tokens header is overwritten.",
    "construct": "_events.py falls back on BaseModel.construct(**data), the SDK's recursive one.",
    "resources": "wrap() drops cached properties, which hold the old client; find how client.responses is kept now.",
    "options": "client.py reads options.headers and options.params, _stream.py options.json_data and options.extra_json.",
}


@pytest.mark.parametrize("name", WHAT_TO_DO)
def test_canary_the_sdk_still_has_what_this_package_relies_on(name: str) -> None:
    assert CANARIES[name](), f"openai {openai.VERSION} broke a name that this package relies on. {WHAT_TO_DO[name]}"


def same_request() -> bool:
    wanted = ["self", "cast_to", "options", "stream", "stream_cls"]
    return all(list(inspect.signature(cls.request).parameters) == wanted for cls in (openai.OpenAI, openai.AsyncOpenAI))


def same_stream() -> bool:
    wanted = ["self", "cast_to", "response", "client", "options"]
    source = [inspect.getsource(cls.__init__) for cls in (Stream, AsyncStream)]
    signatures = [list(inspect.signature(cls.__init__).parameters) for cls in (Stream, AsyncStream)]
    return signatures == [wanted, wanted] and all("self._iterator = self.__stream__()" in text for text in source)


def same_stream_cls() -> bool:
    from openai.resources.responses.responses import AsyncResponses, Responses

    calls = [(Responses, "=Stream[ResponseStreamEvent]"), (AsyncResponses, "=AsyncStream[ResponseStreamEvent]")]
    return all(text in inspect.getsource(method) for cls, text in calls for method in (cls.create, cls.retrieve))


def same_helper() -> bool:
    from openai.lib.streaming.responses._responses import AsyncResponseStream, ResponseStream

    sources = [inspect.getsource(cls.__init__) for cls in (ResponseStream, AsyncResponseStream)]
    return all("self._response = raw_stream.response" in source for source in sources)


def same_options() -> bool:
    from openai._models import FinalRequestOptions

    return {"headers", "params", "json_data", "extra_json"} <= FinalRequestOptions.model_fields.keys()


def sdk() -> Any:
    return openai.OpenAI(api_key="k")


CANARIES = {
    "request": same_request,
    "stream": same_stream,
    "stream_cls": same_stream_cls,
    "union": lambda: len(event_classes()) > 50 and "response.output_text.delta" in event_classes(),
    "helper": same_helper,
    "strict": lambda: sdk()._strict_response_validation is False,
    "http": lambda: "user-agent" in sdk()._client.headers,
    "construct": lambda: isinstance(Response.construct(output=[{"type": "message"}]).output[0], openai.BaseModel),
    "resources": lambda: isinstance(openai.OpenAI.__dict__["responses"], cached_property),
    "options": same_options,
}


def test_the_public_names_are_the_ones_promised() -> None:
    assert client_module.__all__ == ["AsyncHarmonyOpenAI", "HarmonyOpenAI", "Outcome", "outcome_of", "report_of", "wrap"]
