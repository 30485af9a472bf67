"""Pack JSON Lines files for the tests: `python tests/data/pack.py FILE.jsonl …` writes `FILE.jsonl.xz` beside this script.

The bytes are kept as they are. The long response objects that every stream repeats cost next to nothing after the first.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path


def pack(source: Path, folder: Path) -> Path:
    target = folder / f"{source.name}.xz"
    target.write_bytes(lzma.compress(source.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    return target


if __name__ == "__main__":
    for name in sys.argv[1:]:
        pack(Path(name), Path(__file__).parent)
