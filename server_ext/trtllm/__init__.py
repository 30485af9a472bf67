"""Token frames for TensorRT-LLM: gpt-oss Responses streams carry their raw token ids to clients that ask.

Three ways to load it into `trtllm-serve`, all with the same effect (`docs/server.md`):

| TensorRT-LLM | |
| --- | --- |
| 1.3.0rc and later | `trtllm-serve … --middleware server_ext.trtllm.TokenTap` |
| 1.2 and later | `trtllm-serve … --custom_module_dirs "$(python -m server_ext.trtllm --module-dir)"` |
| 1.1 and later | `harmony-trtllm-serve …` |

`python -m server_ext.trtllm --check` says whether the installed TensorRT-LLM has what this needs. Importing this module imports nothing of
TensorRT-LLM, and it fails open: where TensorRT-LLM is not as expected, one line is logged and the server serves as if this were not there.

The parts: `hook` installs what `inspection` finds no fault with, `processor` (1.2 and later) and `generator` (1.1) tap the stream, `engine`
knows TensorRT-LLM's names and results, `failures` its exceptions, `launcher` and `check` are the commands. What any server's tap must do is
written down in `server_ext.tap`.
"""

from __future__ import annotations

from typing import Any

from server_ext.asgi import TokenRequests
from server_ext.trtllm.hook import install, late_route

__all__ = ["TokenTap", "install"]


class TokenTap(TokenRequests):
    """The extension as an ASGI middleware: `--middleware server_ext.trtllm.TokenTap`.

    Args:
        app: The ASGI application behind it.
    """

    def __init__(self, app: Any) -> None:
        install()
        super().__init__(app, late_route())
