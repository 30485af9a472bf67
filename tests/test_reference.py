"""`reference=True`: openai-harmony reads all tokens once more, before the terminal event, and never harms the stream."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai_harmony
import pytest

from harmony_client import _stream, reference, wire
from harmony_client.client import report_of, wrap
from harmony_client.reference import compare, prepare
from harmony_client.repair import StreamRepairer
from harmony_client.report import Reference, ReferenceDifference
from harmony_client.tokens import Evidence, Reading
from tests.clients import ASK, BARE_CALL, KINDS, PARIS, Server, answer, events_of, next_of, result, streamed, with_tokens
from tests.differential import Generator
from tests.recordings import load

ROOT = Path(__file__).parent.parent
both = pytest.mark.parametrize("kind", KINDS)

#: ``<|channel|>analysis<|message|>Hello<|end|><|start|>assistant``
ANALYSIS = [200005, 35644, 200008, 13225, 200007, 200006, 173781]


@pytest.fixture
def load_anew() -> Iterator[None]:
    """openai-harmony is loaded once per process; the test, and those after it, load it anew."""
    reference._load.cache_clear()
    yield
    reference._load.cache_clear()


def evidence_of(events: list[dict[str, Any]], **options: Any) -> Evidence | None:
    repairer = StreamRepairer(keep_tokens=True, on_mismatch="ignore", **options)
    for event in events:
        repairer.receive(event)
    repairer.receive_eof()
    return repairer.evidence()


def batch(ids: list[int], **fields: Any) -> dict[str, Any]:
    data = wire.encode_batch(wire.TokenBatch(**{"batch": 0, "start": 0, "token_ids": ids, "done": True, "finish_reason": "stop", **fields}))
    return dict(json.loads(data.partition(b"data: ")[2]))


def evidence(ids: list[int]) -> Evidence:
    found = evidence_of([answer()[0], batch(ids)])
    assert found is not None
    return found


# --- what it says -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v12", "vllm-0.33"])
def test_openai_harmony_reads_what_was_streamed_in_every_recording(name: str) -> None:
    for recording in load(name):
        found = compare(evidence_of(recording.events(frames=True), tools=recording.tools))
        assert found.verdict == "match", f"{recording}: {found}"
        assert all(difference.expected for difference in found.differences)
        assert not found.differences or "header" in recording.scenario


def test_no_output_however_malformed_is_called_a_mismatch() -> None:
    generator = Generator(seed=7)
    for _ in range(1500):
        _, ids = generator.output()
        found = compare(evidence_of([answer()[0], batch(ids)], tools=["get_weather"]))
        assert found.verdict == "match", (ids, found)


def test_a_message_that_we_read_otherwise_is_a_mismatch() -> None:
    right = evidence([*ANALYSIS, *PARIS])
    assert compare(right) == Reference("match")
    hello, paris = right.readings
    for wrong, field in (
        (paris._replace(text="{}"), "text"),
        (paris._replace(kind="reasoning"), "kind"),
        (paris._replace(name="f"), "name"),
    ):
        found = compare(right._replace(readings=[hello, wrong]))
        assert found.verdict == "mismatch"
        assert [(entry.message, entry.field, entry.expected) for entry in found.differences] == [(1, field, False)]
        assert found.differences[0].streamed == getattr(wrong, field)
        assert found.differences[0].reference == getattr(paris, field)


def test_a_message_that_only_one_side_has_is_a_mismatch() -> None:
    right = evidence([*ANALYSIS, *PARIS])
    hello, paris = right.readings
    assert compare(right._replace(readings=[paris])).differences == (ReferenceDifference(0, "message", "", "reasoning Hello"),)
    more = right._replace(readings=[hello, Reading("message", "", "and"), paris])
    assert compare(more).differences == (ReferenceDifference(1, "message", "message and", ""),)


def test_differences_in_malformed_output_are_expected() -> None:
    found = compare(evidence([200005, 35644, 200007, 200006, 173781, *PARIS]))  # the first header ends in <|end|>
    assert found.verdict == "match"
    assert found.differences
    assert all(difference.expected for difference in found.differences)


def test_a_trimmed_stop_token_and_several_turns_are_part_of_what_is_read() -> None:
    first = batch(PARIS, done=False, finish_reason=None)
    second = batch(BARE_CALL[:-1], batch=1, start=len(PARIS), turn=1, stop_reason=BARE_CALL[-1])
    found = evidence_of([answer()[0], first, second], tools=["get_weather"])
    assert found is not None
    assert [list(turn) for turn in found.turns] == [PARIS, BARE_CALL]
    assert compare(found) == Reference("match")


# --- when it cannot be asked ------------------------------------------------------------------------


def test_ids_are_kept_only_if_asked_for() -> None:
    repairer = StreamRepairer()
    for event in with_tokens(PARIS):
        repairer.receive(event)
    assert repairer.report.output_tokens == len(PARIS)
    assert repairer.evidence() is None
    assert repairer._conclusion.tokens is not None
    assert repairer._conclusion.tokens._kept is None


@pytest.mark.parametrize("events", [answer(), with_tokens(PARIS)[:3], [with_tokens(PARIS)[number] for number in (0, 2, 4, 5)]])
def test_without_all_tokens_it_is_unverifiable(events: list[dict[str, Any]]) -> None:
    found = compare(evidence_of(events))
    assert found == Reference("unverifiable", "the tokens of the response did not come, or not all of them")


@pytest.mark.parametrize("base", [RuntimeError, type("PanicException", (BaseException,), {})])
def test_what_openai_harmony_raises_is_said_in_the_report(monkeypatch: pytest.MonkeyPatch, base: type[BaseException]) -> None:
    def raises(*_: object) -> None:
        raise base("no such state")

    monkeypatch.setattr(openai_harmony, "StreamableParser", raises)
    assert compare(evidence(PARIS)) == Reference("unverifiable", f"openai-harmony raised {base.__name__}: no such state")


def test_an_interrupt_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(openai_harmony, "StreamableParser", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare(evidence(PARIS))


@pytest.mark.parametrize("ids", [PARIS, [200007, 200006] * 3000])
def test_it_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch, ids: list[int]) -> None:
    monkeypatch.setattr(reference, "MAX_SECONDS", -1.0)
    assert compare(evidence(ids)).reason == "openai-harmony took more than -1 seconds"


@both
async def test_a_vocabulary_that_cannot_be_loaded_costs_nothing_but_the_check(
    kind: str, monkeypatch: pytest.MonkeyPatch, load_anew: None
) -> None:
    monkeypatch.setattr(reference, "_vocabulary_file", lambda: b"no vocabulary")
    stream = await streamed(Server(with_tokens(PARIS)).client(kind, reference=True))
    events = await events_of(stream)
    found = report_of(stream).reference
    assert events[-1].type == "response.completed"
    assert found is not None
    assert found.verdict == "unverifiable"
    assert found.reason.startswith("openai-harmony cannot be loaded: HarmonyError: ")


@both
def test_without_the_extra_the_client_is_not_made(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai_harmony", None)
    message = "reference=True needs openai-harmony: pip install 'harmony-stream-client\\[harmony\\]'"
    with pytest.raises(ImportError, match=message):
        Server().client(kind, reference=True)
    with pytest.raises(ImportError, match=message):
        wrap(Server().plain(kind), reference=True)
    with pytest.raises(ImportError, match=message):
        Server().client(kind).with_options(reference=True)


def test_loading_downloads_nothing_and_leaves_the_environment_alone(tmp_path: Path) -> None:
    code = """
import os
before = dict(os.environ)
from harmony_client import reference
reference.prepare()
assert reference._load()[1] == "", reference._load()[1]
assert dict(os.environ) == before
"""
    nowhere = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"), "http://127.0.0.1:9")
    for base in ({}, {"TIKTOKEN_ENCODINGS_BASE": "/nowhere"}):
        environment = {**os.environ, **nowhere, **base, "PYTHONPATH": str(ROOT), "TIKTOKEN_RS_CACHE_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr.decode()
    assert list(tmp_path.iterdir()) == []


def test_openai_harmony_is_not_imported_without_the_option() -> None:
    code = "import sys; from harmony_client import HarmonyOpenAI; HarmonyOpenAI(api_key='none'); print('openai_harmony' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout == b"False\n"


# --- in the clients ---------------------------------------------------------------------------------


@both
async def test_the_report_has_it_before_the_terminal_event(kind: str) -> None:
    seen: list[Any] = []
    client = Server(with_tokens(PARIS)).client(kind, reference=True, on_report=lambda report: seen.append(report.reference))
    stream = await streamed(client)
    events = await events_of(stream)
    stream = await streamed(client)
    while (await next_of(stream)).type != "response.completed":
        assert len(seen) == 1
    assert events[-1].type == "response.completed"
    assert seen == [Reference("match")] * 2
    assert report_of(stream).as_dict()["reference"] == {"verdict": "match", "reason": "", "differences": ()}


@both
async def test_without_the_option_there_is_no_entry(kind: str) -> None:
    stream = await streamed(Server(with_tokens(PARIS)).client(kind))
    await events_of(stream)
    assert report_of(stream).reference is None
    assert report_of(stream).as_dict()["reference"] is None


@both
async def test_a_stream_without_tokens_is_unverifiable(kind: str) -> None:
    stream = await streamed(Server(answer()).client(kind, reference=True))
    await events_of(stream)
    assert report_of(stream).reference == Reference("unverifiable", "the tokens of the response did not come, or not all of them")


@both
async def test_an_early_close_does_not_wait_for_it(kind: str) -> None:
    stream = await streamed(Server(with_tokens(PARIS)).client(kind, reference=True))
    await next_of(stream)
    await result(stream.close())
    assert report_of(stream).reference == Reference("unverifiable", "the stream ended before openai-harmony was asked")


@both
async def test_wrapped_and_copied_clients_keep_the_option(kind: str) -> None:
    client = wrap(Server(with_tokens(PARIS)).plain(kind), reference=True).with_options(timeout=5)
    stream = await streamed(client)
    await events_of(stream)
    assert report_of(stream).reference == Reference("match")


@both
async def test_an_observed_stream_is_checked_too(kind: str) -> None:
    stream = await streamed(Server(with_tokens(PARIS)).client(kind, mode="observe", reference=True))
    await events_of(stream)
    assert report_of(stream).reference == Reference("match")


@both
async def test_the_helper_stream_has_it_too(kind: str) -> None:
    client = Server(with_tokens(PARIS)).client(kind, reference=True)
    manager = client.responses.stream(**ASK)
    if kind == "sync":
        with manager as stream:
            await events_of(stream)
    else:
        async with manager as stream:
            await events_of(stream)
    assert report_of(stream).reference == Reference("match")


@both
async def test_a_mismatch_is_logged_without_content_unless_mismatches_are_ignored(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    different = Reference("mismatch", differences=(ReferenceDifference(0, "text", "secret", "other"),))
    monkeypatch.setattr(_stream, "compare", lambda _: different)
    for on_mismatch, messages in (("ignore", 0), ("warn", 1)):
        stream = await streamed(Server(with_tokens(PARIS)).client(kind, reference=True, on_mismatch=on_mismatch))
        with caplog.at_level(logging.INFO, "harmony_client"):
            events = await events_of(stream)
        assert events[-1].type == "response.completed"
        assert report_of(stream).reference is different
        found = [record.getMessage() for record in caplog.records if "openai-harmony" in record.getMessage()]
        assert found == ["response 'resp_1': openai-harmony reads 1 field(s) of the same tokens otherwise"] * messages


@both
async def test_only_an_asynchronous_client_asks_in_another_thread(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def remember(evidence: Evidence | None) -> Reference:
        threads.append(threading.current_thread() is threading.main_thread())
        return compare(evidence)

    monkeypatch.setattr(_stream, "compare", remember)
    await events_of(await streamed(Server(with_tokens(PARIS)).client(kind, reference=True)))
    assert threads == [kind == "sync"]


async def test_the_event_loop_goes_on_while_openai_harmony_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = threading.Event(), threading.Event()

    def wait(_: object) -> Reference:
        asked.set()
        assert answered.wait(10)
        return Reference("match")

    monkeypatch.setattr(_stream, "compare", wait)
    stream = await streamed(Server(with_tokens(PARIS)).client("async", reference=True))
    events: list[Any] = []
    reading = asyncio.create_task(events_of(stream, events))
    while not asked.is_set():
        await asyncio.sleep(0)
    assert "response.completed" not in [event.type for event in events]
    answered.set()
    await reading
    assert events[-1].type == "response.completed"
    assert report_of(stream).reference == Reference("match")


async def test_cancelling_while_openai_harmony_reads_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = threading.Event(), threading.Event()

    def wait(_: object) -> Reference:
        asked.set()
        answered.wait(10)
        return Reference("match")

    monkeypatch.setattr(_stream, "compare", wait)
    server, reports = Server(with_tokens(PARIS)), []
    stream = await streamed(server.client("async", reference=True, on_report=reports.append))
    reading = asyncio.create_task(events_of(stream))
    while not asked.is_set():
        await asyncio.sleep(0)
    reading.cancel()
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert [report.ending for report in reports] == ["completed"]
    assert server.bodies[0].closed


def test_preparing_twice_loads_once() -> None:
    prepare()
    assert reference._load() is reference._load()
