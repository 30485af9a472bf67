"""Does what a page of documentation says, from top to bottom, and puts in what it prints.

    python -m tests.pages            # which pages are not up to date
    python -m tests.pages --write    # bring them up to date

A `python` block runs in the names of those before it, and so do its tests; a `text` block right after it is what it prints. Of a
`console` block the lines with `$ ` run in a shell, the others are their output. A `sh` block is what the
reader is asked to do at the beginning; here that is done already.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from server_ext.replay import ReplayServer

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
#: Pages that other test files run, and pages that commands make.
ELSEWHERE = {"server.md", "frameworks.md", "testing.md"}
GENERATED = {"api.md", "report.md", "violations.md"}
PAGES = sorted(path for path in DOCS.glob("*.md") if path.name not in ELSEWHERE | GENERATED)

_SERVERS = ("http://localhost:8000/v1", "http://gpu:8000/v1")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n(?:(?!\$ ).*\n)*", re.MULTILINE)
_PREPARATION = re.compile(r"python -m venv .*|pip install .*|python -m server_ext\.replay --port 8000 &|#.*|")


class UnknownBlockError(ValueError):
    """A block that nothing can be done with."""


class Reader:
    """Follows pages.

    Args:
        base_url: The replay server that stands for the one in the page.
        folder: Where the commands that a page uses are put.
    """

    def __init__(self, base_url: str, folder: Path) -> None:
        self._base_url = base_url
        self._shown = _SERVERS[0]
        for name, arguments in (("harmony-client", " -m harmony_client.cli"), ("python", "")):
            script = folder / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n', "utf-8")
            script.chmod(0o755)
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "COLUMNS": "80"}

    def follow(self, page: Path) -> str:
        """Do what a page says, in the current folder.

        Returns:
            The page with the outputs there are.
        """
        names: dict[str, object] = {"__name__": page.stem}
        printed: str | None = None
        text = page.read_text("utf-8")
        self._shown = next((server for server in _SERVERS if server in text), _SERVERS[0])

        def done(match: re.Match[str]) -> str:
            nonlocal printed
            where = f"{page.name}:{text[: match.start()].count(chr(10)) + 1}"
            language, body = match.groups()
            if language == "text" and printed is not None:
                body, printed = printed, None
            elif language == "python":
                printed = self._python(body, where, names)
            elif language == "console":
                body = _COMMAND.sub(lambda command: f"$ {command[1]}\n{self.command(command[1])}", body)
            elif language != "sh" or not all(map(_PREPARATION.fullmatch, body.splitlines())):
                raise UnknownBlockError(where)
            return f"```{language}\n{body}```"

        return _BLOCK.sub(done, text)

    def _python(self, code: str, where: str, names: dict[str, object]) -> str:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(self._there(code), where, "exec"), names)
            for name in re.findall(r"^def (test_\w+)\(\)", code, re.MULTILINE):
                names[name]()  # type: ignore[operator]
        return self._here(output.getvalue())

    def command(self, line: str) -> str:
        """Run a line in a shell; what it prints, errors included."""
        shell = ["sh", "-c", f"exec 2>&1\n{self._there(line)}"]
        done = subprocess.run(shell, env=self._environment, stdout=subprocess.PIPE, timeout=60, check=False)
        return self._here(done.stdout.decode())

    def _there(self, text: str) -> str:
        for server in _SERVERS:
            text = text.replace(server, self._base_url)
        return text

    def _here(self, text: str) -> str:
        return text.replace(self._base_url, self._shown)


@contextlib.contextmanager
def reader() -> Iterator[Reader]:
    """A reader, in an empty folder, with a server that runs."""
    before = Path.cwd()
    with ReplayServer() as server, tempfile.TemporaryDirectory() as folder:
        scripts, empty = Path(folder, "bin"), Path(folder, "empty")
        scripts.mkdir()
        empty.mkdir()
        os.chdir(empty)
        try:
            yield Reader(server.base_url, scripts)
        finally:
            os.chdir(before)


def main() -> int:
    stale = 0
    for page in PAGES:
        with reader() as following:
            text = following.follow(page)
        if text != page.read_text("utf-8"):
            stale += 1
            print(page.relative_to(ROOT))
            if "--write" in sys.argv:
                page.write_text(text, "utf-8")
    return int(bool(stale) and "--write" not in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
