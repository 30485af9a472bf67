"""The documentation: every block runs, what it is said to print is what it prints, and generated pages are up to date."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import shutil
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import harmony_client
import harmony_client.testing
from harmony_client import _timeline_sheet, report
from server_ext.replay import load
from tests import pages

MARKDOWN = sorted([*pages.DOCS.glob("*.md"), *pages.ROOT.glob("*.md")])


@pytest.mark.skipif(sys.platform == "win32" or shutil.which("curl") is None, reason="the commands are for a POSIX shell, with curl")
@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.stem)
def test_a_page_that_is_followed_from_top_to_bottom_shows_what_is_printed(page: Path) -> None:
    with pages.reader() as reader:
        assert reader.follow(page) == page.read_text("utf-8"), "run: python -m tests.pages --write"


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.stem)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name}: {link}"


@pytest.mark.parametrize("page", [*pages.PAGES, *pages.ROOT.glob("*.md")], ids=lambda page: page.stem)
def test_lines_of_prose_are_not_too_long(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$|^\|[^\n]*$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > 140] == []


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (pages.DOCS / "README.md").read_text("utf-8")
    assert [page.name for page in pages.DOCS.glob("*.md") if page.name != "README.md" and f"]({page.name})" not in contents] == []


def test_the_codes_of_all_errors_are_explained() -> None:
    sources = "".join(path.read_text("utf-8") for path in (pages.ROOT / "harmony_client").glob("*.py"))
    codes = set(re.findall(r'\bcode="([a-z-]+)"', sources)) | set(re.findall(r'code="timeout" if \w+ else "([a-z-]+)"', sources))
    page = (pages.DOCS / "errors.md").read_text("utf-8")
    assert len(codes) > 8
    assert sorted(code for code in codes if f"`{code}`" not in page) == []


def test_the_endings_are_explained() -> None:
    page = (pages.DOCS / "errors.md").read_text("utf-8")
    assert [ending for ending in get_args(report.Ending) if f"| `{ending}` |" not in page] == []


def test_the_signs_of_the_timeline_are_explained() -> None:
    page = (pages.DOCS / "command-line.md").read_text("utf-8")
    assert [sign for sign in _timeline_sheet._LEGEND if f"| `{sign}` |" not in page] == []


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are for a POSIX shell")
def test_the_commands_of_the_readme_work() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", (pages.ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    commands = [line.partition("  #")[0].rstrip() for line in "".join(blocks).splitlines() if line.startswith("harmony-client")]
    recording = load()[0]
    with pages.reader() as reader:
        Path("stream.sse").write_bytes(b"".join(recording.chunks(tokens=True)))
        printed = [reader.command(command) for command in commands]
        assert Path("whole.sse").read_bytes().startswith(b"event: response.created\n")
    assert "stock stream" in printed[0]
    assert printed[1].startswith("verdict: match (made from tokens)\n")


# --- the reference ----------------------------------------------------------------------------------


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, pages.ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_up_to_date() -> None:
    build = script("build_api_docs")
    assert build.TARGET.read_text("utf-8") == build.page(), "run: python scripts/build_api_docs.py"


def test_the_reference_has_every_public_name() -> None:
    build = script("build_api_docs")
    named = {name for names in build.SECTIONS.values() for name in names} | set(build.ERRORS) | set(build.REPORT)
    assert set(harmony_client.__all__) <= named
    assert {f"testing:{name}" for name in harmony_client.testing.__all__ if name[1].islower()} <= named


def test_every_argument_and_error_of_a_public_function_is_explained() -> None:
    build = script("build_api_docs")
    for name in [name for names in build.SECTIONS.values() for name in names]:
        module, _, own = name.rpartition(":")
        value = getattr(importlib.import_module(f"harmony_client.{module}".rstrip(".")), own)
        if own == "AsyncHarmonyOpenAI":  # takes the arguments of HarmonyOpenAI, and says so
            continue
        functions = [value, *(member for key, member in vars(value).items() if key[0] != "_" and inspect.isfunction(member))]
        for function in functions if inspect.isclass(value) else [value]:
            doc = inspect.getdoc(function) or ""
            parameters = [] if isinstance(value, type) and issubclass(value, tuple) else inspect.signature(function).parameters
            missing = [parameter for parameter in parameters if parameter != "self" and f"    {parameter}: " not in doc]
            assert not missing or (len(parameters) - len(missing) <= 1 and len(doc.splitlines()) == 1), f"{function}: {missing}"
            if inspect.isfunction(function) and re.search(r"^ +raise \w+Error", inspect.getsource(function), re.MULTILINE):
                assert "Raises:" in doc, function


# --- releases ---------------------------------------------------------------------------------------


def release(root: Path, changelog: str, version: str = "1.2.3") -> Path:
    (root / "harmony_client").mkdir()
    (root / "harmony_client" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (root / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (root / "CHANGELOG.md").write_text(changelog)
    return root


def test_a_release_needs_its_section_in_the_changelog(tmp_path: Path) -> None:
    root = release(tmp_path, "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-12-01\n\n- All.\n")
    faults = script("check_release").faults
    assert list(faults("v1.2.3", root)) == []
    assert list(faults("v1.2.4", root)) == [
        "pyproject.toml has the version 1.2.3",
        "harmony_client/__init__.py has the version 1.2.3",
        "CHANGELOG.md has no section [1.2.4] with a date",
    ]
    assert list(faults("1.2.3", root)) == ["the tag 1.2.3 is not v1.2.3"]


def test_a_release_leaves_nothing_unreleased(tmp_path: Path) -> None:
    root = release(tmp_path, "## [Unreleased]\n\n- This.\n\n## [1.2.3] - 2026-12-01\n")
    assert list(script("check_release").faults("v1.2.3", root)) == ["CHANGELOG.md should have an empty section [Unreleased]"]


def test_the_version_is_the_same_everywhere() -> None:
    assert f'\nversion = "{harmony_client.__version__}"\n' in (pages.ROOT / "pyproject.toml").read_text("utf-8")


def test_the_changelog_names_every_option_and_every_command() -> None:
    text = (pages.ROOT / "CHANGELOG.md").read_text("utf-8")
    options = inspect.signature(harmony_client.HarmonyOpenAI).parameters.keys() - {"sdk_options"}
    assert [name for name in (*options, "demo", "check", "repair", "--url", "--timeline") if f"`{name}" not in text] == []


def test_the_commands_of_the_contributing_page_exist() -> None:
    text = (pages.ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert text.split("```sh\n")[1].split("```")[0].count("\n") == 5
    for name in re.findall(r"python (scripts/\S+)", text):
        assert (pages.ROOT / name).is_file()
    for name in re.findall(r"python -m (\S+)", text):
        assert name == "venv" or importlib.util.find_spec(name) is not None
