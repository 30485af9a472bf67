"""The types that users see, by two type checkers: `tests/typing` says what they must make of the interface."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_agrees_with_the_types_of_the_interface(tmp_path: Path) -> None:
    run("mypy", "--strict", "--cache-dir", str(tmp_path), "tests/typing/api.py")


@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright is not installed: it needs node")
def test_pyright_agrees_with_the_types_of_the_interface() -> None:
    run("pyright", "-p", "tests/typing", "--pythonpath", sys.executable)
