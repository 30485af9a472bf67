"""The package as a whole: what imports what, what it costs to import, and what is public."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import harmony_client

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "harmony_client"

#: The floors, lowest first: a module imports from its own floor and from those below.
FLOORS = [
    {"errors", "wire"},
    {"sse", "dump", "vocabulary", "headers", "harmony"},
    {"checker", "checker_items", "checker_rules", "report", "grammar", "output", "writer", "items", "tokens", "verify", "resolve", "reader"}
    | {"endings", "conclusion", "repair", "body"},
    {"client", "_stream", "_events", "_options", "_sdk_errors", "reference", "live", "testing"},
    {"__init__", "cli", "_cli_source", "timeline", "_timeline_sheet", "demo", "_demo_screen", "pytest_plugin"},
]
FLOOR = {module: level for level, modules in enumerate(FLOORS) for module in modules}


def imports(path: Path) -> set[str]:
    """The modules that a file imports when it runs, not only for type checkers."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(names if node.module in ("harmony_client", "server_ext") else {node.module})
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def own(names: set[str], package: str) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith(f"{package}.")}


@pytest.mark.parametrize("path", sorted(CLIENT.glob("*.py")), ids=lambda path: path.stem)
def test_a_module_imports_nothing_from_a_higher_floor(path: Path) -> None:
    assert path.stem in FLOOR, "a new module: give it a floor"
    known = {name for name in own(imports(path), "harmony_client") if name in FLOOR}
    assert {name for name in known if FLOOR[name] > FLOOR[path.stem]} == set()


@pytest.mark.parametrize("path", sorted(CLIENT.glob("*.py")), ids=lambda path: path.stem)
def test_only_the_upper_floors_know_the_sdk_and_only_the_demo_the_server(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    if FLOOR[path.stem] < 3:
        assert roots & {"openai", "httpx", "httpx2", "pydantic"} == set()
        assert roots <= set(sys.stdlib_module_names) | {"harmony_client"}
    if not path.stem.startswith(("demo", "_demo")):
        assert "server_ext" not in roots


@pytest.mark.parametrize("path", sorted((ROOT / "server_ext").rglob("*.py")), ids=lambda path: path.stem)
def test_the_extension_uses_only_words_and_parts_of_the_client(path: Path) -> None:
    assert own(imports(path), "harmony_client") <= FLOORS[0] | FLOORS[1]


@pytest.mark.parametrize("path", sorted([*CLIENT.glob("*.py"), *(ROOT / "server_ext").rglob("*.py")]), ids=lambda path: path.stem)
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: lines for name, lines in long.items() if lines > 50} == {}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


def test_importing_the_package_does_not_import_the_sdk() -> None:
    code = "import sys, harmony_client; from harmony_client import StreamRepairer, check; print(*sys.modules)"
    assert {"openai", "httpx", "httpx2", "pydantic"} & set(run(code).split()) == set()


def test_importing_the_extension_needs_nothing_installed() -> None:
    code = "import sys, server_ext, server_ext.replay; print(*sys.modules)"
    assert {"openai", "uvicorn", "starlette", "tensorrt_llm"} & set(run(code).split()) == set()


def test_every_public_name_can_be_imported_and_no_other_is_public() -> None:
    for name in harmony_client.__all__:
        value = getattr(harmony_client, name)
        assert value.__name__ == name
        assert value.__doc__
    assert len(harmony_client.__all__) <= 25
    assert set(harmony_client.__all__) <= set(dir(harmony_client))
    tree = ast.parse((CLIENT / "__init__.py").read_text(encoding="utf-8"))
    imported = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert {alias.name for alias in imported if alias.asname} == set(harmony_client.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'HarmonyOpenAl'"):
        importlib.import_module("harmony_client").HarmonyOpenAl  # noqa: B018
