"""Write `docs/api.md` from signatures and docstrings: `python scripts/build_api_docs.py`. A test tells when that is due."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "api.md"

#: Titles and the names below them: of `harmony_client`, or of the module that stands before the colon.
SECTIONS = {
    "Clients": ["HarmonyOpenAI", "AsyncHarmonyOpenAI", "wrap"],
    "After a stream": ["report_of", "outcome_of", "Outcome"],
    "Without the SDK": ["StreamRepairer", "check", "Checker", "Violation"],
    "A second reading by openai-harmony": ["reference:prepare", "reference:compare"],
    "Tests": ["testing:ScriptedServer", "testing:Reply", "testing:Fault", "testing:patch_respx"],
    "Token batches": ["wire:TokenBatch", "wire:decode_batch", "wire:encode_batch"],
}
ERRORS = ["StreamError", "ServerError", "DisconnectedError", "LimitError", "VerificationError", "FrameError"]
#: Explained elsewhere: the page of codes has them.
REPORT = ["Report", "Repair", "Difference", "Dropped"]

_LISTS = {"Args": "argument", "Attributes": "attribute", "Raises": "raises", "Yields": "", "Returns": ""}


def page() -> str:
    """The page."""
    lines = [
        "# The interface",
        "",
        "Made by `python scripts/build_api_docs.py` from signatures and docstrings. Names without a module are those of `harmony_client`.",
        "What is not on this page or on [the page of the report](report.md) is not public and may change at any time.",
    ]
    for title, names in SECTIONS.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += _entry(name)
    lines += ["", "## Errors", "", *_text(_module("errors").__doc__ or "")]
    for name in ERRORS:
        lines += _entry(f"errors:{name}", shown=name)
    lines += ["", "## The wire format of token batches", "", *_text(_module("wire").__doc__ or "")]
    lines += ["", "## The replay server", "", *_text(importlib.import_module("server_ext.replay").__doc__ or ""), *_commands(), ""]
    return "\n".join(lines)


def _module(name: str) -> Any:
    return importlib.import_module(f"harmony_client.{name}")


def _entry(name: str, shown: str = "") -> Iterator[str]:
    module, _, own = name.rpartition(":")
    value = getattr(_module(module) if module else importlib.import_module("harmony_client"), own)
    yield from ("", f"### {shown or f'{module}.{own}'.lstrip('.')}", "")
    if not (inspect.isclass(value) and (issubclass(value, BaseException) or "NamedTuple" in _bases(value))):
        yield from ("```python", f"{own}{_signature(value)}", "```", "")
    yield from _docstring(inspect.getdoc(value) or "")
    if inspect.isclass(value) and value.__module__.startswith("harmony_client"):
        yield from _members(value)


def _bases(cls: type) -> set[str]:
    return {base.__name__ for base in getattr(cls, "__orig_bases__", ())}


def _signature(value: Any) -> str:
    """A signature on one line, or on several if it is long."""
    signature = inspect.signature(value)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    texts = [_parameter(parameter) for parameter in parameters]
    star = next((at for at, parameter in enumerate(parameters) if parameter.kind is parameter.KEYWORD_ONLY), None)
    if star is not None and not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        texts.insert(star, "*")
    returns = (
        "" if inspect.isclass(value) or signature.return_annotation is signature.empty else f" -> {_type(signature.return_annotation)}"
    )
    line = f"({', '.join(texts)}){returns}"
    return line if len(line) <= 110 else "(\n" + "".join(f"    {text},\n" for text in texts) + f"){returns}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
    annotation = "" if parameter.annotation is parameter.empty else f": {_type(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{stars}{parameter.name}{annotation}{default}"


def _default(value: object) -> str:
    return "…" if dataclasses.MISSING is value or repr(value).startswith("<") else repr(value)


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _members(cls: type) -> Iterator[str]:
    """The public methods and properties that a class defines itself."""
    for name, value in vars(cls).items():
        member = value.fget if isinstance(value, property) else value.__func__ if isinstance(value, classmethod) else value
        if name.startswith("_") or not inspect.isfunction(member):
            continue
        doc = inspect.getdoc(member) or ""
        head = f"`.{name}`" if isinstance(value, property) else f"`.{name}{_signature(member)}`".replace("\n    ", " ").replace("\n", "")
        yield from ("", f"**{head}**", "", *_docstring(doc))


def _docstring(doc: str) -> Iterator[str]:
    """A docstring of Google's style as Markdown: its sections become tables."""
    parts = re.split(rf"^({'|'.join(_LISTS)}):\n", doc, flags=re.MULTILINE)
    yield from _text(parts[0])
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if _LISTS[title]:
            yield from ("", f"| {_LISTS[title]} | |", "| --- | --- |")
            for name, text in re.findall(r"^ {4}([\w.*]+): (.*(?:\n {8}.*|\n(?= {8}))*)", body, re.MULTILINE):
                yield f"| `{name}` | {_inline(text)} |"
        else:
            yield from ("", f"{title}: {_inline(body)}")


def _text(text: str) -> Iterator[str]:
    """Paragraphs, and literal blocks (`::`, doctests) as code."""
    paragraphs = re.split(r"\n\n+", text.strip("\n"))
    literal = False
    for number, paragraph in enumerate(paragraphs):
        if number and paragraph.strip() != "::":
            yield ""
        indented = paragraph.startswith((" ", "Example:"))
        if literal and indented:
            yield from ("```text", *inspect.cleandoc("\n" + paragraph).splitlines(), "```")
        elif paragraph.startswith("Example:"):
            yield from ("```text", *inspect.cleandoc("\n" + paragraph.partition("\n")[2]).splitlines(), "```")
        elif paragraph.strip() != "::":
            yield from map(_marked, (paragraph.removesuffix(":") if paragraph.endswith("::") else paragraph).splitlines())
        literal = paragraph.endswith("::")


def _inline(text: str) -> str:
    return _marked(" ".join(text.split())).replace("|", "\\|")


def _marked(text: str) -> str:
    text = re.sub(r":(?:class|func|meth|mod|data|attr):`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`")


def _commands() -> Iterable[str]:
    """The command's options, from its parser: what --help prints depends on Python's version."""
    from harmony_client import cli

    parser = cli._parser()
    yield from ("", "## Commands", "", "[The command line](command-line.md) shows them at work.")
    subparsers = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for name, command in subparsers.choices.items():
        yield from ("", f"### harmony-client {name}", "", *_text(str(command.description)), "", "| | |", "| --- | --- |")
        for action in command._actions:
            flags = "`, `".join(action.option_strings) or action.metavar
            value = f" {action.metavar or action.dest.upper()}" if action.option_strings and action.nargs is None else ""
            if "--help" not in action.option_strings:
                yield f"| `{flags}{value}` | {_inline(str(action.help))} |"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    TARGET.write_text(page(), encoding="utf-8")
