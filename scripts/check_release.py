"""Check that a tag may be released: `python scripts/check_release.py v1.2.3`. Exit status 0, or 1 and what is wrong.

The tag, the two places that hold the version, and the changelog have to agree.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def faults(tag: str, root: Path = ROOT) -> Iterator[str]:
    """What stands against releasing a tag, in sentences."""
    version = tag.removeprefix("v")
    if not re.fullmatch(r"v\d+\.\d+\.\d+((a|b|rc)\d+)?", tag):
        yield f"the tag {tag} is not v1.2.3"
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    if project != version:
        yield f"pyproject.toml has the version {project}"
    package = re.search(r'^__version__ = "(.*)"$', (root / "harmony_client" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    if package is None or package[1] != version:
        yield f"harmony_client/__init__.py has the version {package and package[1]}"
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        yield f"CHANGELOG.md has no section [{version}] with a date"
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if unreleased is None or unreleased[1].strip():
        yield "CHANGELOG.md should have an empty section [Unreleased]"


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python scripts/check_release.py TAG", file=sys.stderr)
        return 2
    found = list(faults(sys.argv[1]))
    for fault in found:
        print(fault, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
