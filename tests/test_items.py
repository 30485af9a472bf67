"""Harmony messages become the output items that the server's terminal response would list."""

from __future__ import annotations

from typing import Any

import pytest

from harmony_client.harmony import Header
from harmony_client.items import plan, search_action, tool_names

TOOLS = frozenset({"get_weather"})


def header(channel: str | None, recipient: str | None = None, role: str = "assistant", repaired: bool = False) -> Header:
    return Header(role=role, channel=channel, recipient=recipient, content_type=None, repaired=repaired, markup="")


@pytest.mark.parametrize(
    ("given", "kind", "name", "phase"),
    [
        (header("analysis"), "reasoning", "", None),
        (header("final"), "message", "", "final_answer"),
        (header("commentary", "functions.get_weather"), "function_call", "get_weather", None),
        (header("analysis", "functions.get_weather"), "function_call", "get_weather", None),
        (header("final", "functions.get_weather"), "function_call", "get_weather", None),
        (header(None, "functions.get_weather"), "function_call", "get_weather", None),
        (header("commentary", "functions.undeclared"), "function_call", "undeclared", None),
        (header("commentary", "get_weather"), "function_call", "get_weather", None),
        (header("commentary", "function.get_weather"), "function_call", "get_weather", None),
        (header("commentary", "functions.get_weather<|channel|>commentary"), "function_call", "get_weather", None),
        (header("commentary", "memory.store"), "function_call", "memory.store", None),
        (header("commentary", "function.unknown"), "function_call", "function.unknown", None),
        (header("analysis", "browser.search"), "web_search_call", "browser.search", None),
        (header("commentary", "browser.open"), "web_search_call", "browser.open", None),
        (header("analysis", "browser.find"), "web_search_call", "browser.find", None),
        (header("commentary", "browser.close"), "reasoning", "", None),
        (header("commentary", "python"), "reasoning", "", None),
        (header("analysis", "container.exec"), "reasoning", "", None),
        (header("commentary", "user"), "", "", None),
        (header("final", "assistant"), "message", "", "final_answer"),
        (header("final", "json_ish_word"), "message", "", "final_answer"),
        (header(None), "message", "", "final_answer"),
        (header(""), "message", "", "final_answer"),
        (header("thoughts"), "message", "", "final_answer"),
        (header("analysis?analysis"), "reasoning", "", None),
        (header("final", role="tool"), "drop", "", None),
        (header("final", role="poet"), "drop", "", None),
    ],
    ids=repr,
)
def test_a_message_becomes_this_item(given: Header, kind: str, name: str, phase: str | None) -> None:
    decided = plan(given, TOOLS, "tensorrt-llm/1.2.1", "auto")
    assert (decided.kind, decided.name, decided.phase) == (kind, name, phase)


@pytest.mark.parametrize(
    ("server", "preambles", "kind", "listed"),
    [
        ("tensorrt-llm/1.2.1", "auto", "", ""),
        (None, "auto", "", ""),
        ("someserver/2", "auto", "", ""),
        ("vllm/0.33", "auto", "message", "message"),
        ("tensorrt-llm/1.2.1", "message", "message", ""),
        ("vllm/0.33", "drop", "", "message"),
    ],
)
def test_a_preamble_is_shown_where_the_server_lists_it_unless_told_otherwise(server: Any, preambles: Any, kind: str, listed: str) -> None:
    decided = plan(header("commentary"), TOOLS, server, preambles)
    assert (decided.kind, decided.listed) == (kind, listed)
    assert decided.phase == ("commentary" if kind else None)


@pytest.mark.parametrize(
    ("channel", "recipient", "server", "listed"),
    [
        ("commentary", "functions.get_weather", "tensorrt-llm/1.2.1", "function_call"),
        ("analysis", "functions.get_weather", "tensorrt-llm/1.2.1", "reasoning"),
        ("final", "functions.get_weather", "tensorrt-llm/1.2.1", "message"),
        ("analysis", "functions.get_weather", "vllm/0.33", "function_call"),
        ("commentary", "memory.store", "vllm/0.33", "mcp_call"),
    ],
)
def test_a_call_is_listed_as_the_server_lists_it(channel: str, recipient: str, server: str, listed: str) -> None:
    decided = plan(header(channel, recipient), TOOLS, server, "auto")
    assert decided.kind == "function_call"
    assert decided.listed == listed
    assert bool(decided.reason) == (listed != "function_call")


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        (header("final"), ()),
        (header("final", repaired=True), ("header-recovered",)),
        (header("commentary", "memory.store"), ("recipient-unknown",)),
        (header("commentary", "functions.get_weather<|channel|>x"), ("name-cleaned",)),
        (header("final", "user"), ("role-ignored",)),
        (header("final", role="tool"), ("role-ignored",)),
        (header("thoughts"), ("channel-unknown",)),
        (header(None), ("channel-unknown",)),
    ],
    ids=repr,
)
def test_what_is_odd_about_a_header_is_reported(given: Header, codes: tuple[str, ...]) -> None:
    assert plan(given, TOOLS, None, "auto").notes == codes


@pytest.mark.parametrize(
    ("recipient", "arguments", "action", "understood"),
    [
        ("browser.search", '{"query":"tide"}', {"type": "search", "query": "tide"}, True),
        ("browser.open", '{"url":"https://a.example"}', {"type": "open_page", "url": "https://a.example"}, True),
        ("browser.open", '{"id":3}', {"type": "open_page", "url": "3"}, True),
        ("browser.find", '{"pattern":"x","cursor":1}', {"type": "find_in_page", "pattern": "x", "url": "1"}, True),
        ("browser.search", '{"query":"ti', {"type": "search", "query": '{"query":"ti'}, False),
        ("browser.search", "[" * 100_000, {"type": "search", "query": "[" * 100_000}, False),
        ("browser.find", '{"query":"x"}', {"type": "search", "query": '{"query":"x"}'}, False),
        ("browser.search", '"x"', {"type": "search", "query": '"x"'}, False),
    ],
)
def test_a_web_search_shows_what_it_asks_for_or_the_raw_text(recipient: str, arguments: str, action: Any, understood: bool) -> None:
    assert search_action(recipient, arguments) == (action, understood)


def test_only_function_tools_and_names_count_as_declared() -> None:
    tools = [
        "a",
        {"type": "function", "name": "b"},
        {"type": "web_search", "name": "c"},
        {"type": "function"},
        7,
        {"type": "function", "name": 1},
    ]
    assert tool_names(tools) == {"a", "b"}
    assert tool_names(None) == frozenset()
