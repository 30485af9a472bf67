"""Which output item a Harmony message is, and what a server would list for it.

Sources: TensorRT-LLM's and vLLM's final responses, as measured; ``README`` and ``docs`` repeat the
table. One rule stands above it: text the model wrote for the user is never lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from harmony_client.harmony import Header

__all__ = ["Plan", "Preambles", "clean_name", "plan", "search_action", "tool_names"]

Preambles = Literal["auto", "message", "drop"]

_ROLE_WORDS = {"user", "assistant", "system", "developer", "tool"}
_WEB_SEARCH = {"browser.search", "browser.open", "browser.find"}
_PREAMBLE = "preamble left out"


class Plan(NamedTuple):
    """What becomes of a Harmony message.

    Attributes:
        kind: The item's type; ``""``: none, its text is a preamble; ``"drop"``: none at all.
        name: The tool's name, for calls.
        phase: The message's phase.
        notes: Repair codes to report.
        listed: The item type under which the server's terminal response would list it; ``""``: it
            would not.
        reason: Why that differs from ``kind``, or ``""``.
    """

    kind: str
    name: str = ""
    phase: str | None = None
    notes: tuple[str, ...] = ()
    listed: str = ""
    reason: str = ""


def tool_names(tools: Iterable[Any] | None) -> frozenset[str]:
    """The names of the function tools among a request's tools.

    Args:
        tools: Names, or tool objects as the API takes them; anything else among them is ignored.
    """
    names = set()
    for tool in tools or ():
        name: Any = tool
        if isinstance(tool, Mapping):
            name = tool.get("name") if tool.get("type") == "function" else None
        if isinstance(name, str):
            names.add(name)
    return frozenset(names)


def clean_name(name: str) -> str:
    """A tool name without Harmony markup (``get_x<|channel|>commentary`` is ``get_x``)."""
    return name.split("<|", 1)[0].strip()


def plan(header: Header, tools: frozenset[str], server: str | None, preambles: Preambles) -> Plan:
    """Decide which output item a message is.

    Args:
        header: Its header.
        tools: Names of the declared function tools.
        server: The server's name and version; unknown: as TensorRT-LLM.
        preambles: What to do with commentary for the user.
    """
    vllm = (server or "").startswith("vllm")
    notes = ("header-recovered",) if header.repaired else ()
    if header.role != "assistant":
        return Plan("drop", notes=(*notes, "role-ignored"))
    recipient = header.recipient
    if recipient in _ROLE_WORDS:
        recipient, notes = None, (*notes, "role-ignored")
    if recipient in (None, "", "all"):
        return _for_the_user(header.channel, notes, vllm, preambles)
    return _for_a_tool(recipient or "", header.channel, notes, tools, vllm)


def _for_the_user(channel: str | None, notes: tuple[str, ...], vllm: bool, preambles: Preambles) -> Plan:
    if channel == "analysis":
        return Plan("reasoning", notes=notes, listed="reasoning")
    if channel == "commentary":
        listed = "message" if vllm else ""
        if preambles == "message" or (preambles == "auto" and vllm):
            return Plan("message", phase="commentary", notes=notes, listed=listed, reason="" if vllm else _PREAMBLE)
        return Plan("", notes=notes, listed=listed, reason=_PREAMBLE)
    if channel == "final":
        return Plan("message", phase="final_answer", notes=notes, listed="message")
    if channel is not None and channel.startswith("analysis"):  # a word glued to it: still not for the user
        return Plan("reasoning", notes=(*notes, "channel-unknown"), listed="reasoning")
    return Plan("message", phase="final_answer", notes=(*notes, "channel-unknown"), listed="message")


def _for_a_tool(recipient: str, channel: str | None, notes: tuple[str, ...], tools: frozenset[str], vllm: bool) -> Plan:
    if recipient in _WEB_SEARCH:
        return Plan("web_search_call", name=recipient, notes=notes, listed="web_search_call")
    name = _function(recipient, tools)
    if name is None and channel == "final":
        return Plan("message", phase="final_answer", notes=notes, listed="message")
    if name is None and recipient.split(".", 1)[0] in ("python", "browser", "container"):
        return Plan("reasoning", notes=notes, listed="reasoning")
    if name is None:
        listed = "mcp_call" if vllm else "reasoning" if channel == "analysis" else "function_call"
        return _call(clean_name(recipient) or recipient, recipient, (*notes, "recipient-unknown"), listed, "unknown recipient")
    if vllm or channel not in ("analysis", "final"):
        return _call(name, recipient, notes, "function_call", "")
    return _call(name, recipient, notes, "reasoning" if channel == "analysis" else "message", f"call on the {channel} channel")


def _call(name: str, recipient: str, notes: tuple[str, ...], listed: str, reason: str) -> Plan:
    if "<|" in recipient:
        notes = (*notes, "name-cleaned")
    return Plan("function_call", name=name, notes=notes, listed=listed, reason=reason)


def _function(recipient: str, tools: frozenset[str]) -> str | None:
    """The function a recipient names, or ``None``."""
    cleaned = clean_name(recipient)
    if cleaned.startswith("functions.") and len(cleaned) > len("functions."):
        return cleaned[len("functions.") :]
    bare = cleaned.removeprefix("function.")
    return bare if bare in tools else None


def search_action(recipient: str, arguments: str) -> tuple[dict[str, Any], bool]:
    """The action of a web search call.

    Args:
        recipient: ``browser.search``, ``browser.open`` or ``browser.find``.
        arguments: The message's text: JSON, if the model kept to the format.

    Returns:
        The action object, and whether the arguments could be understood; where not, the query is
        the raw text.
    """
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict):
        if recipient == "browser.search" and isinstance(given.get("query"), str):
            return {"type": "search", "query": given["query"]}, True
        url = given.get("url", given.get("id"))
        if recipient == "browser.open" and isinstance(url, (str, int)):
            return {"type": "open_page", "url": str(url)}, True
        if recipient == "browser.find" and isinstance(given.get("pattern"), str):
            return {"type": "find_in_page", "pattern": given["pattern"], "url": str(given.get("cursor", ""))}, True
    return {"type": "search", "query": arguments}, False
