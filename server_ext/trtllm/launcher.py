"""`harmony-trtllm-serve`: `trtllm-serve` and its arguments, with the extension, for TensorRT-LLM 1.1 and later."""

from __future__ import annotations

import importlib
import sys

from server_ext.trtllm.engine import server_name
from server_ext.trtllm.hook import install_in_new_servers

__all__ = ["main"]


def main() -> int:
    """Load the extension and hand over to `tensorrt_llm.commands.serve:main`, which reads the command line and exits by itself.

    Returns:
        2 if there is no TensorRT-LLM to hand over to.
    """
    try:
        serve = importlib.import_module("tensorrt_llm.commands.serve").main
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        print(f"harmony-trtllm-serve: TensorRT-LLM's own command cannot be loaded: {error!r}", file=sys.stderr)
        return 2
    if install_in_new_servers():
        print(f"harmony-trtllm-serve: {server_name()} sends token batches to clients that ask for them", file=sys.stderr)
    serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
