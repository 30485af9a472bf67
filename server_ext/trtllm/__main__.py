"""`python -m server_ext.trtllm --check`, see `server_ext.trtllm.check`."""

from __future__ import annotations

import sys

from server_ext.trtllm.check import main

if __name__ == "__main__":
    sys.exit(main())
