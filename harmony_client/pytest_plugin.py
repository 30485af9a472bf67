"""The pytest plugin: the fixture ``harmony_server``.

pytest imports this module in every test run of every environment where the package is installed, so it imports nothing but pytest
before the fixture is asked for. ``-p no:harmony_client`` keeps it out altogether.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harmony_client.testing import ScriptedServer

__all__ = ["harmony_server"]


@pytest.fixture
def harmony_server(request: pytest.FixtureRequest) -> Iterator[ScriptedServer]:
    """A server whose replies the test scripts (``harmony_server.reply("…")``); afterwards nothing may be left undone.

    Where respx is loaded it sees the requests of openai 3 too, for the time of the test. A test that has failed is told no more.
    """
    from harmony_client.testing import ScriptedServer
    from harmony_client.testing._respx import respx_patched

    server = ScriptedServer()
    failures = request.session.testsfailed
    with respx_patched() if "respx" in sys.modules else nullcontext():
        yield server
    if request.session.testsfailed == failures and (complaints := server.complaints()):
        pytest.fail("harmony_server:\n- " + "\n- ".join(complaints), pytrace=False)
