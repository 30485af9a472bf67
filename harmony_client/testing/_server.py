"""A server that is made of replies."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, Unpack

from harmony_client.report import Report
from harmony_client.testing._http import Play, asked, json_response, sdk_family
from harmony_client.testing._reply import Reply, ReplyDict

__all__ = ["ScriptedServer"]


class ScriptedServer:
    """A server for tests: script its replies, let the application ask, and at the end nothing may be left undone.

    The server is a function of a request, as its replies are: give it to respx as the side effect of a route, or to a ``MockTransport``
    of httpx or httpx2, or take an HTTP client from it. It gives its replies in order, each once. Used as a context manager it raises at
    the end if a reply was not asked for, a stream not read, a scripted fault not used, or a verdict is not ``match``.

    Attributes:
        replies: The replies, in order.
    """

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self._plays: list[Play] = []
        self._strays: list[str] = []

    def reply(self, answer: str | None = None, **script: Unpack[ReplyDict]) -> Reply:
        """Script the next reply.

        Args:
            answer: The text of the final message.
            script: The other arguments of :class:`Reply`.

        Returns:
            The reply, which can also be given to respx by itself.

        Raises:
            ValueError: As for :class:`Reply`.
        """
        made = Reply(answer, **script)
        self.replies.append(made)
        return made

    def __call__(self, request: Any) -> Any:
        """Answer a request with the first reply that was not given yet, or with a 404 that says that there is none."""
        for made in self.replies:
            if not made.plays:
                return made(request)
        asked(request)
        self._strays.append(f"{request.method} {request.url}")
        message = f"no reply is left for request {len(self.requests) + 1}: {len(self.replies)} scripted, all given"
        return json_response(request, 404, {"error": {"message": message, "type": "scripted_server", "code": "no_reply_left"}})

    def http_client(self, **options: Any) -> Any:
        """An HTTP client for ``OpenAI(http_client=…)`` whose requests come here, of the library that the installed SDK uses.

        Args:
            options: Arguments of ``httpx.Client``.
        """
        http = sdk_family()
        return http.Client(transport=http.MockTransport(self), **options)

    def async_http_client(self, **options: Any) -> Any:
        """The same for ``AsyncOpenAI``."""
        http = sdk_family()
        return http.AsyncClient(transport=http.MockTransport(self), **options)

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of the requests that were answered, reply by reply."""
        return [play.request for made in self.replies for play in made.plays]

    @property
    def reports(self) -> list[Report]:
        """The reports of the streams that a wrapped client read, reply by reply."""
        return [report for made in self.replies for report in made.reports]

    def complaints(self) -> list[str]:
        """What the test left undone, in sentences."""
        found = [complaint for number, made in enumerate(self.replies, 1) for complaint in made.complaints(f"reply {number}")]
        return found + [f"{stray} came when no reply was left." for stray in self._strays]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if kind is None and (found := self.complaints()):
            raise AssertionError("\n".join(found))
