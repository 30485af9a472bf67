"""The tap of TensorRT-LLM 1.2 and later: a subclass of `ResponsesStreamingProcessor`.

Imported only where TensorRT-LLM is. The class must stand in a module under its own name: with `--num_postprocess_workers` a processor
is pickled, by reference, to the process that makes the frames.
"""

from __future__ import annotations

from typing import Any

from tensorrt_llm.serve.responses_utils import ResponsesStreamingProcessor

from server_ext.asgi import current_exchange
from server_ext.tap import Tap, report_once
from server_ext.trtllm.engine import PROCESSOR, free_parser, read_call, server_name
from server_ext.trtllm.failures import STOPS, log_failure

__all__ = ["TokenProcessor"]


class _PerRequest(type(ResponsesStreamingProcessor)):  # type: ignore[misc]
    """Chooses the class of a processor: ours only for a request that asks and whose tokens are those of gpt-oss.

    For all others it is the server's own, so that nothing of ours touches the response or has to be importable in a worker process.
    Unpickling does not come through here.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not TokenProcessor:  # somebody else's, made from ours: it has to be what they made it
            return super().__call__(*args, **kwargs)
        exchange = current_exchange()
        own = ResponsesStreamingProcessor(*args, **kwargs)
        if exchange is None:
            return own
        try:
            if not own.use_harmony:
                return own
            processor = super().__call__(*args, **kwargs)
            processor._token_tap = Tap(server_name(), read_call)
        except Exception as error:
            report_once(server_name(), PROCESSOR, error)
            return own
        exchange.begin(at_end=processor.free_parser)
        return processor


class TokenProcessor(ResponsesStreamingProcessor, metaclass=_PerRequest):  # type: ignore[misc]
    """A processor that puts token frames before its own.

    What its methods are given goes on to the server's own as it came; what these return is looked at before it is touched.
    """

    _token_tap: Tap | None = None
    _has_failed = False

    def process_single_output(self, *args: Any, **kwargs: Any) -> Any:
        """The frames of one engine response, after its token frame.

        If the server's own exception comes over the last engine response, that one still has its token frame. The server asks for the
        terminal response next, and what becomes of that decides how the stream ends.
        """
        tap = self._token_tap
        if tap is None:
            report_once(server_name(), PROCESSOR, "was subclassed, or pickled without its attributes")
            return super().process_single_output(*args, **kwargs)
        frame = tap.receive((args, kwargs))
        try:
            frames = super().process_single_output(*args, **kwargs)
        except STOPS:
            raise
        except BaseException as error:
            if not tap.done:
                raise
            self._log(error)
            frames = []
        return _joined(tap, frame, frames) if frame else frames

    def get_final_response_non_store(self, *args: Any, **kwargs: Any) -> Any:
        """The terminal frame, after the last token frame; that alone where the server cannot build the terminal response.

        The server's own exception would take the frames of the whole last engine response with it, tokens included.
        """
        tap = self._token_tap
        if tap is None:
            return super().get_final_response_non_store(*args, **kwargs)
        try:
            terminal = super().get_final_response_non_store(*args, **kwargs)
        except STOPS:
            raise
        except BaseException as error:
            last = tap.close(error)
            if not last:
                raise
            self._log(error)
            return last
        finally:
            self.free_parser()
        if not isinstance(terminal, str):
            tap.stop(f"{PROCESSOR}.get_final_response_non_store", f"returned {type(terminal).__name__}, not str")
            return terminal
        return tap.close() + terminal

    def free_parser(self) -> None:
        """Free the parser of this response, if it is in this process. Again does no harm."""
        free_parser(lambda: _harmony_adapter().cleanup_stream_state(self.stream_request_id))

    def _log(self, error: BaseException) -> None:
        if not self._has_failed:
            self._has_failed = True
            log_failure(error)


def _joined(tap: Tap, frame: str, frames: Any) -> Any:
    """A token frame and the server's frames. In one chunk with the first of these, as a chunk costs more than a frame."""
    if type(frames) is not list or (frames and not isinstance(frames[0], str)):
        tap.stop(f"{PROCESSOR}.process_single_output", f"returned {type(frames).__name__}, not list[str]")
        return frames
    return [frame + frames[0], *frames[1:]] if frames else [frame]


def _harmony_adapter() -> Any:
    from tensorrt_llm.serve.harmony_adapter import get_harmony_adapter

    return get_harmony_adapter()
