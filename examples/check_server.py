"""Ask a server whether it sends token batches, and whether what it sends adds up.

Against a replay server that it starts itself, or against your own::

    python examples/check_server.py
    python examples/check_server.py http://gpu:8000/v1 gpt-oss-120b
"""

from __future__ import annotations

import sys

from harmony_client import HarmonyOpenAI, report_of
from server_ext.replay import ReplayServer


def check(base_url: str, model: str) -> bool:
    client = HarmonyOpenAI(base_url=base_url, api_key="none", on_mismatch="ignore")
    with client.responses.stream(model=model, input="Say hello.", max_output_tokens=200) as stream:
        for _ in stream:
            pass
    report = report_of(stream)
    print(f"server:        {report.server or 'did not say'}")
    print(f"token batches: {'yes' if report.mode == 'tokens' else 'no'}, {report.output_tokens or 0} tokens")
    print(f"verdict: {report.verdict}")
    return report.mode == "tokens" and report.verdict == "match"


if __name__ == "__main__":
    if sys.argv[1:]:
        url, name = [*sys.argv[1:], "gpt-oss-120b"][:2]
        sys.exit(not check(url, name))
    with ReplayServer() as server:
        sys.exit(not check(server.base_url, "gpt-oss-120b"))
