#!/bin/sh
# Serve gpt-oss with token batches for clients that ask. Arguments are those of trtllm-serve:
#
#     examples/trtllm-serve.sh openai/gpt-oss-120b --port 8000
#
# Run it where trtllm-serve runs, after `pip install --no-deps harmony-stream-client`. PYTHON chooses the interpreter.
# If the check finds that the extension will not work here, the server still starts, as it would without it.
set -eu

python=${PYTHON:-python3}
"$python" -m server_ext.trtllm --check >&2 || echo "trtllm-serve.sh: read the lines above" >&2
exec "$python" -m server_ext.trtllm.launcher "$@"
