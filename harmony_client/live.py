"""One question to a live server, for the command line: the raw bytes of its answer.

The request is the one that the SDK sends, through the SDK's own HTTP client; the body is not looked
at here, so that a server is judged by the same code as a saved stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import openai

from harmony_client import wire
from harmony_client._sdk_errors import transport_errors

__all__ = ["Answer", "LiveError", "ask"]


class LiveError(Exception):
    """The server could not be asked; the message is for the user."""


class Answer:
    """A response of the server that has begun.

    Attributes:
        name: The URL that was asked.
        model: The model that was asked.
        offered: Whether the server says that it sends token batches.
        broken: What broke the connection, or ``None``; known once :meth:`chunks` has ended.
    """

    def __init__(self, response: Any, name: str, model: str) -> None:
        self.name = name
        self.model = model
        self.offered = wire.HEADER in response.headers
        self.broken: BaseException | None = None
        self._response = response

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the body as they come; a connection that breaks ends them."""
        try:
            yield from self._response.iter_bytes()
        except transport_errors() as error:
            self.broken = error


@contextmanager
def ask(url: str, prompt: str, *, model: str | None, tokens: bool, api_key: str | None) -> Iterator[Answer]:
    """Send one prompt and wait for the beginning of the answer.

    Args:
        url: The server's base URL, as the SDK takes it; that of its ``/responses`` will do.
        prompt: The input.
        model: The model; ``None``: the first one that the server lists.
        tokens: Whether token batches are asked for.
        api_key: Sent as the bearer token; ``None``: a word that is none.

    Raises:
        LiveError: There is no such server, or it refuses.
    """
    base = _base_url(url)
    client = openai.OpenAI(base_url=base, api_key=api_key or "none", max_retries=0)
    headers = {wire.HEADER: wire.HEADER_VALUE} if tokens else {}
    with client, ExitStack() as stack:
        name = model or _first_model(client, f"{base}/models")
        request = client.responses.with_streaming_response.create(model=name, input=prompt, stream=True, extra_headers=headers)
        try:
            response = stack.enter_context(request)
        except (openai.APIError, ValueError) as error:
            raise LiveError(f"{base}/responses: {_sentence(error)}") from None
        yield Answer(response, f"{base}/responses", name)


def _base_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise LiveError(f"{url}: not the URL of a server, such as http://gpu:8000/v1")
    return url.rstrip("/").removesuffix("/responses")


def _first_model(client: openai.OpenAI, address: str) -> str:
    try:
        first = next(iter(client.models.list()), None)
    except (openai.APIError, ValueError) as error:
        raise LiveError(f"{address}: {_sentence(error)} (--model names one without asking)") from None
    if first is None:
        raise LiveError(f"{address}: the server lists no model; name one with --model")
    return first.id


def _sentence(error: Exception) -> str:
    if not isinstance(error, openai.APIStatusError):
        return str(error.__cause__ or error) or type(error).__name__
    body = error.body if isinstance(error.body, dict) else {}
    if body.get("message"):
        return f"HTTP {error.status_code}: {body['message']}"
    hint = "; a base URL usually ends in /v1" if error.status_code == 404 and "/v1" not in str(error.request.url) else ""
    return f"HTTP {error.status_code}: {error.response.reason_phrase}{hint}"
