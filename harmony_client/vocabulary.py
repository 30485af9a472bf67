"""The o200k_harmony vocabulary: which bytes does a token id stand for?

Ids 0…199,997 are the ordinary tokens of o200k_base, 199,998…201,088 are special. The table is package
data (`data/`, with its licence; made by `scripts/build_vocabulary.py`). It is unpacked on first use
(about 30 ms and 4 MB) and tokens are cut out of it as they occur, so importing this module is free.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from array import array
from importlib import resources
from itertools import accumulate
from typing import Final

__all__ = [
    "CALL",
    "CHANNEL",
    "CONSTRAIN",
    "END",
    "MESSAGE",
    "RETURN",
    "START",
    "STOP_TOKENS",
    "VOCABULARY_SIZE",
    "DecodeTable",
    "decode_table",
]

RETURN: Final = 200_002
CONSTRAIN: Final = 200_003
CHANNEL: Final = 200_005
START: Final = 200_006
END: Final = 200_007
MESSAGE: Final = 200_008
CALL: Final = 200_012
STOP_TOKENS: Final = frozenset({RETURN, END, CALL})
VOCABULARY_SIZE: Final = 201_089

_ORDINARY: Final = 199_998
_NAMES: Final = {
    199_998: "startoftext",
    199_999: "endoftext",
    RETURN: "return",
    CONSTRAIN: "constrain",
    CHANNEL: "channel",
    START: "start",
    END: "end",
    MESSAGE: "message",
    CALL: "call",
}
_FILE: Final = "o200k_base.zlib"
_SHA256: Final = "440741350e7cfa1c0f4869ce742d1b043550adbda5187adcac9e787edac6fba9"  # of the unpacked data


class DecodeTable(dict[int, "str | None"]):
    """Token id → the text it spells, `None` for the three stop tokens; filled in as ids are looked up.

    1,562 tokens are not UTF-8 by themselves: they hold parts of characters, as surrogate escapes.
    ``text.encode("utf-8", "surrogateescape")`` gives the bytes of any joined texts. Special tokens
    other than the stops spell their name, which is what they mean inside a message. Only
    ``table[token]`` fills the table in: ``get``, ``in`` and ``len`` see what was looked up before.
    Threads may share it.
    """

    __slots__ = ("_blob", "_offsets")

    def __init__(self, lengths: bytes, blob: bytes) -> None:
        """Keep the tokens unsliced.

        Args:
            lengths: One byte per ordinary token: its length in bytes.
            blob: The bytes of all ordinary tokens, in the order of their ids.
        """
        super().__init__()
        self._blob = blob
        self._offsets = array("I", accumulate(lengths, initial=0))

    def __missing__(self, token: int) -> str | None:
        """Cut a token out of the blob.

        Raises:
            KeyError: No id of the vocabulary equals `token`.
        """
        try:
            number = int(token)
        except (TypeError, ValueError, OverflowError):
            raise KeyError(token) from None
        if number != token or not 0 <= number < VOCABULARY_SIZE:
            raise KeyError(token)
        text = self[number] = self._text(number)
        return text

    def _text(self, number: int) -> str | None:
        if number in STOP_TOKENS:
            return None
        if number >= _ORDINARY:
            return f"<|{_NAMES.get(number, f'reserved_{number}')}|>"
        spelled = self._blob[self._offsets[number] : self._offsets[number + 1]]
        return spelled.decode("utf-8", "surrogateescape")


_lock: Final = threading.Lock()
_loaded: list[DecodeTable] = []


def decode_table() -> DecodeTable:
    """The decode table, one per process.

    The first call reads and unpacks 1 MB (about 30 ms): make it before entering an event loop, or in
    a thread. Later calls cost nothing.

    Raises:
        RuntimeError: The data file is not the one this version was released with.
    """
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.append(_load())
    return _loaded[0]


def _load() -> DecodeTable:
    raw = (resources.files(__package__) / "data" / _FILE).read_bytes()
    try:
        data = zlib.decompress(raw)
    except zlib.error as error:
        raise RuntimeError(f"{__package__}/data/{_FILE} is damaged ({error}): reinstall harmony-stream-client") from error
    if (found := hashlib.sha256(data).hexdigest()) != _SHA256:
        raise RuntimeError(f"{__package__}/data/{_FILE} is damaged (sha256 {found}, expected {_SHA256}): reinstall harmony-stream-client")
    return DecodeTable(data[:_ORDINARY], data[_ORDINARY:])
