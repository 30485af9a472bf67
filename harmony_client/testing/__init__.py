"""Tests of applications that stream gpt-oss: a scripted server, with the faults that servers have.

::

    from harmony_client.testing import ScriptedServer

    with ScriptedServer() as server:
        server.reply("It is sunny.", reasoning="Easy.", faults="tensorrt-llm", tokens_per_batch=20)
        client = HarmonyOpenAI(base_url="http://gpu:8000/v1", api_key="none", http_client=server.http_client())
        …

With pytest there is a fixture for it, ``harmony_server``. With respx a server, or a single :class:`Reply`, is a side effect:
``respx.post(url).mock(side_effect=Reply("It is sunny."))``, and :func:`patch_respx` lets respx see the requests of openai 3.
"""

from __future__ import annotations

from harmony_client.testing._faults import FAULTS, PRESETS, Fault
from harmony_client.testing._reply import Reply
from harmony_client.testing._respx import patch_respx
from harmony_client.testing._server import ScriptedServer

__all__ = ["FAULTS", "PRESETS", "Fault", "Reply", "ScriptedServer", "patch_respx"]
