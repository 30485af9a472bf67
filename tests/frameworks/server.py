"""A server that plays one recording per request and refuses the input that TensorRT-LLM refuses.

All that these tests believe of TensorRT-LLM's side stands here. Its rules are those of `_parse_response_input` and
`_construct_harmony_messages` (`tensorrt_llm/serve/responses_utils.py`), the same from release 1.1 to main of November 2026, and of
`ResponsesRequest` (`openai_protocol.py`). They were read, not run: TensorRT-LLM cannot be installed without its GPU stack.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from openai.types.responses import ResponseFunctionToolCall, ResponseInputItemParam, ResponseReasoningItem
from pydantic import TypeAdapter, ValidationError

from server_ext.recording import Batch
from server_ext.replay import ReplayApp
from tests.recordings import Recording, load

__all__ = ["Conversation", "doubts", "recording", "refusal"]

Item = Mapping[str, Any]


def recording(name: str) -> Recording:
    """The recording of a name, `scenario@version:pattern`."""
    version = name.partition("@")[2].partition(":")[0]
    return next(recorded for recorded in load(version) if recorded.name == name)


class Conversation:
    """The ASGI application.

    Args:
        names: The recordings to play, `scenario@version:pattern`, one per request. The last one is also played for all further requests.
        extension: Whether requests that ask for token batches get them.
        repeats_text: Whether the responses repeat the request's `text`, as those of the API do.

    Attributes:
        requests: The bodies of all requests in order.
        headers: Their headers.
        refusals: What was refused, as sentences.
    """

    def __init__(self, *names: str, extension: bool = True, repeats_text: bool = True) -> None:
        self.recordings = [recording(name) for name in names]
        self.extension = extension
        self.repeats_text = repeats_text
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.refusals: list[str] = []

    @property
    def inputs(self) -> list[list[Item]]:
        """The input items of each request."""
        return [_items(request) for request in self.requests]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        request = json.loads(await _body(receive))
        self.requests.append(request)
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        refused = refusal(_items(request))
        if refused is not None:
            self.refusals.append(refused)
            await _refuse(send, refused)
            return
        played = self.recordings[min(len(self.requests), len(self.recordings)) - 1]
        if self.repeats_text and "text" in request:
            played = _with_text(played, request["text"])
        unread = [{"type": "http.request", "body": json.dumps({**request, "model": played.name}).encode()}]

        async def read_again() -> Any:
            return unread.pop() if unread else await receive()

        await ReplayApp([played], extension=self.extension)(scope, read_again, send)


def _items(request: Item) -> list[Item]:
    given = request["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def refusal(sent: Iterable[Item]) -> str | None:
    """Why TensorRT-LLM would refuse an input, in a sentence, or None.

    Every release and main agree in this: an item of another type, a reasoning item without exactly one part, or the output of a call
    that is not in the input ends the request with an error.
    """
    calls: set[str] = set()
    for number, item in enumerate(sent):
        problem = _problem(item, calls)
        if problem is not None:
            return f"input[{number}]: {problem}"
        if item.get("type") == "function_call":
            calls.add(item["call_id"])
    return None


def _problem(item: Item, calls: set[str]) -> str | None:
    kind = item.get("type", "message")
    if kind == "message":
        return None if _is_text(item.get("content")) else "a message without text"
    if kind == "reasoning":
        parts = item.get("content") or []
        return None if len(parts) == 1 and _is_text(parts) else f"a reasoning item with {len(parts)} parts instead of 1"
    if kind == "function_call":
        absent = [name for name in ("call_id", "name", "arguments") if not isinstance(item.get(name), str)]
        return f"a function_call without {absent[0]}" if absent else None
    if kind == "function_call_output":
        if item.get("call_id") not in calls:
            return f"No call message found for {item.get('call_id')}"
        return None if isinstance(item.get("output"), str) else "a function_call_output that is not text"
    return f"Unknown input type: {kind}"


def _is_text(content: object) -> bool:
    return isinstance(content, str) or (isinstance(content, list) and all(isinstance(part.get("text"), str) for part in content))


@cache
def _declared() -> TypeAdapter[Any]:
    return TypeAdapter(ResponseInputItemParam | ResponseReasoningItem | ResponseFunctionToolCall)


def doubts(sent: Sequence[Item]) -> list[str]:
    """What releases 1.1 and 1.2 may make of an input besides, going by the Python types that their request model declares.

    They declare an input item as one of the SDK's types and let pydantic choose. A call is found again only if pydantic makes a
    `ResponseFunctionToolCall` of it, not a dict; a message whose parts pydantic leaves unread is passed over; what fits no type
    refuses the request. Which one happens depends on the versions of openai and pydantic on the server: this asks those installed here.
    """
    found: list[str] = []
    models: set[str] = set()
    for item in sent:
        kind = item.get("type", "message")
        try:
            parsed = _declared().validate_python(item)
        except ValidationError:
            found.append(f"{kind} refused")
            continue
        if isinstance(parsed, ResponseFunctionToolCall):
            models.add(parsed.call_id)
        if kind == "function_call_output" and item["call_id"] not in models:
            found.append("call not found")
        if kind == "message" and not isinstance(parsed["content"], str | list):
            found.append("message passed over")
    return list(dict.fromkeys(found))


def _with_text(played: Recording, text: Any) -> Recording:
    def frames(recorded: Iterable[str]) -> list[str]:
        return [_set_text(frame, text) for frame in recorded]

    return replace(played, opening=frames(played.opening), batches=[Batch(ids, frames(own)) for ids, own in played.batches])


def _set_text(frame: str, text: Any) -> str:
    head, _, data = frame.partition("data: ")
    payload = json.loads(data)
    if "response" not in payload:
        return frame
    payload["response"]["text"] = text
    return f"{head}data: {json.dumps(payload)}\n\n"


async def _body(receive: Any) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def _refuse(send: Any, message: str) -> None:
    body = json.dumps({"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}).encode()
    await send({"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})
