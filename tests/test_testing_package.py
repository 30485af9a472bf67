"""The testing package from outside: what it imports, its size, its public names."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import harmony_client.testing
from tests.test_package import CLIENT, FLOOR, imports, own, test_modules_and_functions_stay_small

MODULES = sorted((CLIENT / "testing").glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_imports_nothing_from_a_higher_floor_and_never_the_server(path: Path) -> None:
    known = {name for name in own(imports(path), "harmony_client") if name in FLOOR}
    assert {name for name in known if FLOOR[name] > FLOOR["testing"]} == set()
    assert "server_ext" not in {name.split(".")[0] for name in imports(path)}


@pytest.mark.parametrize("path", [*MODULES, CLIENT / "pytest_plugin.py"], ids=lambda path: path.stem)
def test_what_it_imports_at_once_needs_nothing_installed(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in at_once if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in at_once if isinstance(node, ast.ImportFrom)}
    allowed = set(sys.stdlib_module_names) | {"harmony_client"} | ({"pytest"} if path.stem == "pytest_plugin" else set())
    assert {name.split(".")[0] for name in names} <= allowed
    assert "harmony_client.client" not in names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_its_modules_and_functions_are_small(path: Path) -> None:
    test_modules_and_functions_stay_small(path)


def test_its_public_names_are_few_and_documented() -> None:
    public = harmony_client.testing.__all__
    assert public == ["FAULTS", "PRESETS", "Fault", "Reply", "ScriptedServer", "patch_respx"]
    assert all(getattr(harmony_client.testing, name).__doc__ for name in public)


@pytest.mark.parametrize("cls", [harmony_client.testing.Reply, harmony_client.testing.ScriptedServer], ids=lambda cls: cls.__name__)
def test_every_public_method_is_documented(cls: type) -> None:
    names = [name for name in vars(cls) if not name.startswith("_") and callable(getattr(cls, name))]
    assert [name for name in names if not getattr(cls, name).__doc__] == []
    assert names
