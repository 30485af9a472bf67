"""Stream an answer with HarmonyOpenAI.

Against a replay server that it starts itself, or against your own::

    python examples/quickstart.py
    python examples/quickstart.py http://gpu:8000/v1
"""

from __future__ import annotations

import sys

from harmony_client import HarmonyOpenAI, report_of
from server_ext.replay import ReplayServer


def ask(base_url: str) -> None:
    client = HarmonyOpenAI(base_url=base_url, api_key="none")
    with client.responses.stream(model="gpt-oss-120b", input="Where is my order?") as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
    report = report_of(stream)
    print(f"\n\nverdict: {report.verdict} (made from {report.basis})")


if __name__ == "__main__":
    if sys.argv[1:]:
        ask(sys.argv[1])
    else:
        with ReplayServer() as server:
            ask(server.base_url)
