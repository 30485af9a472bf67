"""What can go wrong, as one tree.

::

    FrameError(ValueError)          a token batch frame that breaks the wire format
    StreamError(Exception)          a response stream that did not end well
    ├── ServerError                 the server reported an error inside the stream
    ├── DisconnectedError           the stream ended or broke before its terminal event
    ├── LimitError                  the server sent more than a named bound allows
    └── VerificationError           the terminal response contradicts what was streamed

These classes need no SDK. What the SDK wrapper raises derives from one of them *and* from the
matching ``openai.APIError`` class, so either ``except`` clause catches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harmony_client.report import Report

__all__ = ["DisconnectedError", "FrameError", "LimitError", "ServerError", "StreamError", "VerificationError"]


class FrameError(ValueError):
    """A token batch frame that breaks the wire format.

    Attributes:
        code: What is wrong, in kebab case (``bad-version``, ``bad-vocabulary``, ``bad-ids``, …).
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class StreamError(Exception):
    """A response stream that did not end well. Nothing received is lost: see ``partial``.

    Attributes:
        code: What happened, in kebab case (``server-error``, ``disconnected``, ``timeout``, …).
        partial: The response as received so far: a plain dict shaped like the API's response object,
            or the SDK's ``Response`` where a wrapped client raised. Its ``status`` is
            ``"incomplete"`` and every item in it was closed. ``None`` when nothing had arrived.
        retryable: Whether sending the same request again may succeed.
        report: The report of the stream.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        retryable: bool = False,
        partial: Any = None,
        report: Report | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.partial = partial
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross processes: they pickle without calling ``__init__``."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[StreamError], args: tuple[Any, ...], state: dict[str, Any]) -> StreamError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class ServerError(StreamError):
    """The server reported an error inside the stream.

    Attributes:
        body: The error as the server sent it: the payload of an ``error`` event, a chat-style error
            object, or a JSON body.
    """

    body: object = None


class DisconnectedError(StreamError):
    """The stream ended, broke or timed out before its terminal event."""


class LimitError(StreamError):
    """The server sent more than a named bound allows. ``code`` names the bound."""


class VerificationError(StreamError):
    """The terminal response contradicts what was streamed (only with ``on_mismatch="raise"``)."""
