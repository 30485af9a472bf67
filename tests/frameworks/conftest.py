"""Collects these tests only where the frameworks are installed: `pip install '.[test,frameworks]' && pytest tests/frameworks`."""

from __future__ import annotations

from importlib.util import find_spec

FRAMEWORKS = ("agents", "pydantic_ai", "langchain_openai")

collect_ignore_glob = [] if all(find_spec(name) for name in FRAMEWORKS) else ["test_*.py"]
