"""The documentation: every block runs, what it is said to print is what it prints, and generated pages are up to date."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.stem)
def test_lines_of_prose_are_not_too_long(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$|^\|.*$|^- .*$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > 140] == []


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (pages.DOCS / "README.md").read_text("utf-8")
    assert [page.name for page in pages.DOCS.glob("*.md") if page.name != "README.md" and f"]({page.name})" not in contents] == []
