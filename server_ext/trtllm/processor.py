"""The tap of TensorRT-LLM 1.2 and later: a subclass of `ResponsesStreamingProcessor`.

Imported only where TensorRT-LLM is. The class must stand in a module under its own name: with `--num_postprocess_workers` a processor
is pickled, by reference, to the process that makes the frames.
"""

from __future__ import annotations

from typing import Any

from tensorrt_llm.serve.responses_utils import ResponsesStreamingProcessor

from server_ext.asgi import current_exchange
from server_ext.tap import Tap, report_once
from server_ext.trtllm.engine import free_parser, log_failed_snapshot, read_result, server_name

__all__ = ["TokenProcessor"]


class TokenProcessor(ResponsesStreamingProcessor):  # type: ignore[misc]
    """A processor that puts token frames before its own, if the request in whose task it is made asks for them.

    Otherwise it becomes an instance of the server's own class, so that nothing of ours touches the response or has to be importable in
    a worker process.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        exchange = current_exchange()
        if exchange is None or not self._is_harmony():
            self.__class__ = ResponsesStreamingProcessor
            return
        self._token_tap = Tap(server_name(), read_result)
        exchange.active = True

    def _is_harmony(self) -> bool:
        """Whether the model is gpt-oss; other models' tokens are of another vocabulary."""
        try:
            return bool(self.use_harmony)
        except AttributeError as error:
            report_once(server_name(), "ResponsesStreamingProcessor.use_harmony", repr(error))
            return False

    def process_single_output(self, res: Any, *args: Any, **kwargs: Any) -> Any:
        """The frames of one engine response, after its token frame."""
        frame = self._token_tap.receive(res)
        try:
            frames = super().process_single_output(res, *args, **kwargs)
        except Exception as error:
            last = self._token_tap.close(error) if self._token_tap.done else ""
            if not last:
                raise
            log_failed_snapshot(error)
            self._free_parser()
            return [frame + last]
        return self._joined(frame, frames) if frame else frames

    def get_final_response_non_store(self, final_res: Any, *args: Any, **kwargs: Any) -> Any:
        """The terminal frame, after the last token frame; that alone where the server cannot build the terminal response.

        The server's own exception would take the frames of the whole last engine response with it, tokens included.
        """
        try:
            terminal = super().get_final_response_non_store(final_res, *args, **kwargs)
        except Exception as error:
            last = self._token_tap.close(error)
            if not self._token_tap.closed:
                raise
            log_failed_snapshot(error)
            return last
        finally:
            self._free_parser()
        if not isinstance(terminal, str):
            self._token_tap.stop("ResponsesStreamingProcessor.get_final_response_non_store", f"returned {type(terminal).__name__}, not str")
            return terminal
        return self._token_tap.close() + terminal

    def _joined(self, frame: str, frames: Any) -> Any:
        """A token frame and the server's frames. In one chunk with the first of these, as a chunk costs more than a frame."""
        if type(frames) is not list or (frames and not isinstance(frames[0], str)):
            self._token_tap.stop("ResponsesStreamingProcessor.process_single_output", f"returned {type(frames).__name__}, not list[str]")
            return frames
        return [frame + frames[0], *frames[1:]] if frames else [frame]

    def _free_parser(self) -> None:
        free_parser(lambda: _harmony_adapter().cleanup_stream_state(self.stream_request_id))


def _harmony_adapter() -> Any:
    from tensorrt_llm.serve.harmony_adapter import get_harmony_adapter

    return get_harmony_adapter()
