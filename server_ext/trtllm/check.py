"""`python -m server_ext.trtllm --check`: will the extension work with the installed TensorRT-LLM, and how is it loaded?

No server is started and nothing is changed. Exit status: 0 it will work, as far as can be seen; 1 it will not, or what is installed beside
TensorRT-LLM is not what TensorRT-LLM requires, or cannot be compared with it; 2 there is no TensorRT-LLM to look at.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from server_ext.trtllm.engine import FUNCTION, PROCESSOR, SERVER
from server_ext.trtllm.inspection import Finding, inspect_server

__all__ = ["MODULE_DIR", "main"]

MODULE_DIR: Final = Path(__file__).parent / "module_dir" / "harmony_token_tap"
"""What `--custom_module_dirs` is given."""
_DISTRIBUTION: Final = "tensorrt-llm"
_SHARED: Final = ("openai", "pydantic")
"""What both TensorRT-LLM and this package use: an ordinary `pip install` of this package may replace them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; see `--help`. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m server_ext.trtllm", description="Token batches for TensorRT-LLM's gpt-oss streams.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="say whether it works with the installed TensorRT-LLM, and how to load it")
    what.add_argument("--module-dir", action="store_true", help="print the directory for trtllm-serve --custom_module_dirs")
    if parser.parse_args(arguments).module_dir:
        print(MODULE_DIR)
        return 0
    return _check()


def _check() -> int:
    try:
        package = importlib.import_module("tensorrt_llm")
        server = importlib.import_module(SERVER)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # besides ImportError: a missing driver or library raises what it likes, and some code exits
        print(_absence(error))
        return 2
    print(f"TensorRT-LLM {getattr(package, '__version__', 'unknown version')}, {_folder(package)}")
    options, unread = _options()
    findings = [*_findings(server), *unread]
    works = not any(finding.blocks for finding in findings)
    print("".join(f"  {finding}\n" for finding in findings) + f"The extension {_manner(server, findings)}.")
    if works:
        print("Start the server with\n  " + "\nor with\n  ".join(_start_lines(options)))
    warnings = [*_version_warnings()]
    print("\n".join(warnings) if warnings else f"What TensorRT-LLM requires of {' and '.join(_SHARED)} is installed.")
    return 0 if works and not warnings else 1


def _absence(error: BaseException) -> str:
    try:
        version = metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        if isinstance(error, ModuleNotFoundError) and error.name == "tensorrt_llm":
            return f"TensorRT-LLM is not installed in this Python ({sys.executable}): run this with the Python that runs trtllm-serve."
        version = "of unknown version"
    return f"TensorRT-LLM {version} is installed but cannot be imported here, so nothing can be said: {error!r}"


def _findings(server: Any) -> list[Finding]:
    try:
        return inspect_server(server)
    except Exception as error:  # then it is not installed either
        return [Finding(SERVER, f"cannot be looked at ({type(error).__name__})")]


def _folder(package: Any) -> str:
    file = getattr(package, "__file__", None)
    return str(Path(file).parent) if isinstance(file, str) else "in an unknown place"


def _manner(server: Any, findings: Sequence[Finding]) -> str:
    if any(finding.blocks for finding in findings):
        return "will not work: the server would run as if it were not there"
    name = PROCESSOR if hasattr(server, PROCESSOR) else FUNCTION
    if not findings:
        return f"will work, by {name}; nothing will be missing"
    if all(finding.seen for finding in findings):
        return f"will work, by {name}; what will be missing stands above"
    return f"should work, by {name}; what could not be looked at, or will be missing, stands above"


def _start_lines(options: set[str]) -> Iterator[str]:
    if "--middleware" in options:
        yield "trtllm-serve … --middleware server_ext.trtllm.TokenTap"
    elif "--custom_module_dirs" in options:
        yield f"trtllm-serve … --custom_module_dirs {MODULE_DIR}"
    yield "harmony-trtllm-serve …"


def _options() -> tuple[set[str], list[Finding]]:
    """The options that `trtllm-serve` knows, of all its subcommands, and what keeps them from being read."""
    name = "tensorrt_llm.commands.serve"
    try:
        command = importlib.import_module(name).main
        commands = [command, *getattr(command, "commands", {}).values()]
        return {option for each in commands for parameter in each.params for option in parameter.opts}, []
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        problem = f"its options cannot be read ({type(error).__name__})"
        return set(), [Finding(f"{name}.main", problem, "the launcher, which needs it, does not start", seen=False)]


def _version_warnings() -> Iterator[str]:
    try:
        requirements = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield f"There is no distribution {_DISTRIBUTION}, so it is not known which {' and '.join(_SHARED)} it requires."
        return
    for requirement in requirements:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()
        if name in _SHARED and (problem := _problem(name, requirement)):
            yield problem


def _problem(name: str, requirement: str) -> str:
    """What is wrong with the installed version of a distribution; `""` if nothing is."""
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed; TensorRT-LLM requires {requirement}."
    try:
        from packaging.requirements import Requirement

        wanted = Requirement(requirement)
        if (wanted.marker and not wanted.marker.evaluate()) or wanted.specifier.contains(installed, prereleases=True):
            return ""
    except (ImportError, ValueError) as error:  # ValueError: a requirement or a version that breaks the rules for them
        why = "`packaging` is not installed" if isinstance(error, ImportError) else "that cannot be read"
        return f"{name} {installed} is installed, TensorRT-LLM requires {requirement}: compare them yourself, {why}."
    return f"{name} {installed} is installed, but TensorRT-LLM requires {requirement}. Install that, and this package with --no-deps."
