"""respx on both generations of the SDK: tests that know nothing of this package, and replies as side effects."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import respx
from respx.mocks import HTTPCoreMocker

from harmony_client import AsyncHarmonyOpenAI, HarmonyOpenAI, report_of
from harmony_client.testing import Reply, ScriptedServer, patch_respx
from harmony_client.testing._respx import respx_patched
from tests.clients import ASK, HTTP, KINDS, events_of, result, streamed, text_of

ROOT = Path(__file__).parents[1]
URL = "http://gpu:8000/v1/responses"
ANSWER = "It is sunny in Paris."
NEEDED = HTTP.__name__ == "httpx2"

#: A respx test file as people have them.
UNMODIFIED = """
import asyncio
import httpx, openai, pytest, respx

CLIENT = dict(base_url="http://gpu:8000/v1", api_key="k", max_retries=0)
ASK = dict(model="m", input="Hi")
RESPONSE = {"id": "resp_1", "object": "response", "output": [], "model": "m", "created_at": 1, "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": []}


@respx.mock
def test_decorated():
    route = respx.post("http://gpu:8000/v1/responses").mock(return_value=httpx.Response(200, json=RESPONSE))
    assert openai.OpenAI(**CLIENT).responses.create(**ASK).id == "resp_1"
    assert route.called and route.calls.last.request.headers["authorization"] == "Bearer k"


def test_fixture(respx_mock):
    respx_mock.post(path="/v1/responses", json__model="m").respond(json=RESPONSE)
    assert openai.OpenAI(**CLIENT).responses.create(**ASK).id == "resp_1"


@respx.mock(base_url="http://gpu:8000/v1", assert_all_called=False)
def test_argument(respx_mock):
    respx_mock.post("/responses").mock(side_effect=[httpx.Response(503), httpx.Response(200, json=RESPONSE)])
    with pytest.raises(openai.InternalServerError):
        openai.OpenAI(**CLIENT).responses.create(**ASK)
    assert openai.OpenAI(**CLIENT).responses.create(**ASK).id == "resp_1"


def test_asynchronous():
    async def ask():
        async with respx.mock:
            respx.post("http://gpu:8000/v1/responses").mock(side_effect=lambda request: httpx.Response(200, json=RESPONSE))
            async with openai.AsyncOpenAI(**CLIENT) as client:
                return await client.responses.create(**ASK)

    assert asyncio.run(ask()).id == "resp_1"


@pytest.mark.parametrize(("raised", "error"), [
    (httpx.ConnectError, openai.APIConnectionError),
    (httpx.ReadTimeout, openai.APITimeoutError),
    (httpx.ConnectTimeout("slow"), openai.APITimeoutError),
])
@respx.mock
def test_errors(raised, error):
    respx.post("http://gpu:8000/v1/responses").mock(side_effect=raised)
    with pytest.raises(error):
        openai.OpenAI(**CLIENT).responses.create(**ASK)


@respx.mock
def test_streamed_bodies():
    class Stream(httpx.SyncByteStream):
        def __iter__(self):
            yield b'data: {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1"}}\\n\\n'

    respx.post("http://gpu:8000/v1/responses").mock(return_value=httpx.Response(200, stream=Stream()))
    assert [event.type for event in openai.OpenAI(**CLIENT).responses.create(**ASK, stream=True)] == ["response.created"]


@respx.mock
def test_what_is_not_mocked_is_an_error():
    with pytest.raises((openai.APIConnectionError, AssertionError)) as caught:  # new versions of the SDK map HTTP errors only
        openai.OpenAI(**CLIENT).responses.create(**ASK)
    assert "not mocked" in f"{caught.value} {caught.value.__cause__}"
"""


def run(*arguments: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:harmony_client", "--rootdir", str(folder), *arguments]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False).stdout


def client(kind: str, **options: Any) -> Any:
    cls = HarmonyOpenAI if kind == "sync" else AsyncHarmonyOpenAI
    return cls(base_url="http://gpu:8000/v1", api_key="k", max_retries=0, **options)


# --- tests that know nothing of this package --------------------------------------------------------------


def test_an_unmodified_respx_file_passes_with_one_line_in_conftest(tmp_path: Path) -> None:
    (tmp_path / "test_unmodified.py").write_text(UNMODIFIED)
    (tmp_path / "conftest.py").write_text("from harmony_client.testing import patch_respx\npatch_respx()\n")
    assert "9 passed" in run(folder=tmp_path)


def test_the_example_passes() -> None:
    assert "7 passed" in run("test_with_respx.py", folder=ROOT / "examples")


# --- the patch --------------------------------------------------------------------------------------------


def test_it_is_undone_at_the_end_of_a_block() -> None:
    before = list(HTTPCoreMocker.targets), dict(vars(HTTPCoreMocker))
    with respx_patched():
        inside = list(HTTPCoreMocker.targets)
        with respx_patched():
            assert HTTPCoreMocker.targets == inside
        assert HTTPCoreMocker.targets == inside
    assert (list(HTTPCoreMocker.targets), dict(vars(HTTPCoreMocker))) == before
    has_httpcore2 = importlib.util.find_spec("httpcore2") is not None
    assert any(target.startswith("httpcore2.") for target in inside) is has_httpcore2
    assert has_httpcore2 or not NEEDED


def test_it_may_be_called_again() -> None:
    with respx_patched():
        inside = list(HTTPCoreMocker.targets), HTTPCoreMocker.handler
        patch_respx()
        assert (list(HTTPCoreMocker.targets), HTTPCoreMocker.handler) == inside


@pytest.mark.skipif(not NEEDED, reason="there is nothing to add without httpx2")
def test_who_has_added_the_targets_by_hand_gets_the_errors_too() -> None:
    added = [target.replace("httpcore.", "httpcore2.", 1) for target in HTTPCoreMocker.targets]
    HTTPCoreMocker.add_targets(*added)
    try:
        with respx_patched(), respx.mock:
            respx.post(URL).mock(side_effect=httpx.ReadTimeout)
            with pytest.raises(openai.APITimeoutError):
                client("sync").responses.create(**ASK)
        assert set(added) <= set(HTTPCoreMocker.targets)
    finally:
        HTTPCoreMocker.remove_targets(*added)


def test_it_may_begin_and_end_within_a_mock() -> None:
    with respx.mock:
        respx.post(URL).mock(side_effect=Reply(ANSWER))
        with respx_patched():
            assert text_of(client("sync").responses.create(**ASK, stream=True)) == ANSWER


def test_a_legacy_client_of_httpx_is_still_answered() -> None:
    with respx_patched(), respx.mock:
        respx.get("http://gpu/").respond(json={"a": 1})
        assert httpx.get("http://gpu/").json() == {"a": 1}
        respx.get("http://gpu/").mock(side_effect=httpx.ReadTimeout)
        with pytest.raises(httpx.ReadTimeout) as caught:
            httpx.get("http://gpu/")
        assert caught.value.request.url == "http://gpu/"


def test_errors_of_the_users_own_stay_what_they_are() -> None:
    class OwnError(httpx.ReadError):
        pass

    with respx_patched(), respx.mock:
        respx.get("http://gpu/").mock(side_effect=OwnError("mine"))
        with pytest.raises(OwnError, match="mine"):
            httpx.get("http://gpu/")


# --- replies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [True, False])
async def test_a_reply_is_a_side_effect(kind: str, tokens: bool) -> None:
    reply = Reply(ANSWER, tokens=tokens, faults="tensorrt-llm", tokens_per_batch=3)
    with respx_patched(), respx.mock:
        respx.post(URL).mock(side_effect=reply)
        stream = await streamed(client(kind))
        assert text_of(await events_of(stream)) == ANSWER
    assert reply.reports == [report_of(stream)]
    assert reply.plays[0].closed
    assert reply.complaints() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_replies_are_a_list_of_side_effects(kind: str) -> None:
    replies = [Reply("One."), Reply("Two.")]
    with respx_patched(), respx.mock:
        respx.post(URL).mock(side_effect=replies)
        texts = [text_of(await events_of(await streamed(client(kind)))) for _ in replies]
    assert texts == ["One.", "Two."]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_is_a_side_effect(kind: str) -> None:
    with ScriptedServer() as server, respx_patched(), respx.mock:
        respx.post(URL).mock(side_effect=server)
        server.reply("One.")
        server.reply("Two.", cut_after=6)
        assert text_of(await events_of(await streamed(client(kind)))) == "One."
        with pytest.raises(openai.APIConnectionError):
            await events_of(await streamed(client(kind)))
        with pytest.raises(openai.NotFoundError):
            await streamed(client(kind))
        server._strays.clear()
    assert len(server.reports) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_response_is_a_return_value_and_can_be_given_again(kind: str) -> None:
    reply = Reply(ANSWER)
    with respx_patched(), respx.mock:
        respx.post(URL).mock(return_value=reply.response())
        for _ in range(2):
            stream = await streamed(client(kind))
            assert text_of(await events_of(stream)) == ANSWER
            assert reply.reports == [report_of(stream)]
    assert reply.complaints() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_is_content(kind: str) -> None:
    with respx_patched(), respx.mock:
        respx.post(URL).respond(content=Reply(ANSWER).body(), content_type="text/event-stream")
        assert text_of(await events_of(await streamed(client(kind)))) == ANSWER


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut_by", ["reset", "timeout"])
async def test_a_cut_is_an_error_of_the_sdk(kind: str, cut_by: Any) -> None:
    expected = openai.APITimeoutError if cut_by == "timeout" else openai.APIConnectionError
    with respx_patched(), respx.mock:
        respx.post(URL).mock(side_effect=Reply(ANSWER, cut_after=9, cut_by=cut_by))
        with pytest.raises(expected):
            await events_of(await streamed(client(kind)))


@pytest.mark.parametrize("kind", KINDS)
async def test_the_whole_response_comes_without_streaming(kind: str) -> None:
    with respx_patched(), respx.mock:
        respx.post(URL).mock(side_effect=Reply(ANSWER))
        assert (await result(client(kind).responses.create(**ASK))).output_text == ANSWER


def test_replies_may_be_shared_by_tasks() -> None:
    async def ask() -> list[str]:
        async def one() -> str:
            return text_of(await events_of(await streamed(client("async"))))

        with respx_patched(), respx.mock:
            respx.post(URL).mock(side_effect=Reply(ANSWER, chunk=5))
            return await asyncio.gather(*(one() for _ in range(5)))

    assert asyncio.run(ask()) == [ANSWER] * 5
