"""Write `docs/report.md` from the tables in the code: `python scripts/build_report_docs.py`. A test tells when that is due."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "report.md"


def page() -> str:
    """The page."""
    from harmony_client.checker import CODES
    from harmony_client.report import DIFFERENCES, REPAIRS, Difference, Dropped, Reference, ReferenceDifference, Repair, Report

    return "\n".join(
        [
            "# The report, and all codes",
            "",
            "Made by `python scripts/build_report_docs.py` from the docstrings and tables in `harmony_client/report.py` and",
            "`harmony_client/checker_rules.py`. Codes are stable: they are only ever added.",
            *_section("The fields of a report", "field", _attributes(Report)),
            *_section("A repair: what was done", "field", _attributes(Repair)),
            *_section("Repair codes", "code", REPAIRS),
            *_section("A difference: what was streamed and what the server's final response says", "field", _attributes(Difference)),
            *_section("The fields that can differ", "field", DIFFERENCES),
            *_section("Dropped text: what the model wrote that is part of no item", "field", _attributes(Dropped)),
            *_section("What openai-harmony says of the same tokens (option `reference=True`)", "field", _attributes(Reference)),
            *_section("A message that openai-harmony reads otherwise", "field", _attributes(ReferenceDifference)),
            *_section("Violation codes, which `check` and `harmony-client check` report", "code", CODES),
            "",
        ]
    )


def _section(title: str, key: str, entries: Mapping[str, str]) -> Iterable[str]:
    yield from ("", f"## {title}", "", f"| {key} | |", "| --- | --- |")
    for name, text in entries.items():
        yield f"| `{name}` | {text.replace('|', chr(92) + '|')} |"


def _attributes(cls: type) -> dict[str, str]:
    """The attributes in a docstring of Google's style, double backquotes made single, line breaks gone."""
    section = (inspect.getdoc(cls) or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: re.sub(r":data:`(\w+)`", r"`\1`", " ".join(text.split()).replace("``", "`")) for name, text in entries}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(page(), encoding="utf-8")
