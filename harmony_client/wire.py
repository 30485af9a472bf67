"""The token batch: the one SSE frame that `server_ext` adds to a server's own Responses events.

Before the frames that a server sends for one engine response, it sends the raw token ids of that response::

    event: harmony:token_batch
    data: {"type":"harmony:token_batch","v":1,"batch":0,"start":0,"token_ids":[200005,35644],"vocab":"o200k_harmony","done":false}

Rules of version 1:

* `batch` counts the frames of a response from 0, `start` the ids sent before this one. Together they show gaps, repeats and disorder.
* The last frame has `done: true`, `finish_reason`, `stop_reason` (the id of a stop token that the engine trimmed, or null) and `total`.
  It carries the last ids or none. It names in `snapshot_error` the exception that kept the server from building its terminal response.
* `turn` (absent: 0) rises when the server starts a new engine request within one response. `batch` and `start` run on.
* The first frame names the `server` (`"tensorrt-llm/1.2.1"`).
* Unknown fields are ignored. There is no `sequence_number`, so that the server's numbering stays contiguous, and no `error`, which the
  OpenAI SDK would turn into an exception.

Both ends use this module: it imports nothing but the standard library and `harmony_client.errors`.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from harmony_client.errors import FrameError

__all__ = [
    "EVENT_TYPE",
    "HEADER",
    "HEADER_VALUE",
    "MAX_BATCH_IDS",
    "MAX_FRAME_BYTES",
    "MAX_TOKEN_ID",
    "VOCABULARY",
    "WIRE_VERSION",
    "TokenBatch",
    "decode_batch",
    "encode_batch",
]

EVENT_TYPE: Final = "harmony:token_batch"
HEADER: Final = "x-harmony-tokens"
"""A request that carries this header asks for token batches; a response that carries it has them."""
HEADER_VALUE: Final = "1"
WIRE_VERSION: Final = 1
VOCABULARY: Final = "o200k_harmony"
MAX_TOKEN_ID: Final = 201_088
"""The last id of o200k_harmony."""
MAX_BATCH_IDS: Final = 65_536
"""Ids in one frame. A batch is `stream_interval` ids, or a few more by speculation; this is half a context window."""
MAX_FRAME_BYTES: Final = 1 << 20
"""Bytes of one encoded frame: MAX_BATCH_IDS ids of six digits are less than half of it."""

_BOOLS: Final = frozenset((False, True))
_PLAIN_FIELDS: Final = 7  # type, v, batch, start, token_ids, vocab, done: all that most frames have
_OPTIONAL_FIELDS: Final = ("finish_reason", "stop_reason", "total", "snapshot_error", "turn", "server")  # in the order of TokenBatch
_to_json: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class TokenBatch(NamedTuple):
    """The tokens of one engine response. A named tuple because building one costs a fifth of a frozen dataclass.

    Attributes:
        batch: Position of this batch in the response, from 0.
        start: Number of ids sent in earlier batches.
        token_ids: The ids, 0…`MAX_TOKEN_ID`; may be empty.
        done: Whether this is the last batch.
        finish_reason: Why generation ended ("stop", "length", "cancelled", …), on the last batch.
        stop_reason: Id of a trimmed stop token, or the stop string of the request, on the last batch.
        total: Number of ids in the whole response, on the last batch. `encode_batch` fills it in.
        snapshot_error: Type name of the exception that kept the server from building its terminal response.
        turn: Number of the engine request within the response, from 0.
        server: Name and version of the server, `"tensorrt-llm/1.2.1"`, on the first batch.
    """

    batch: int
    start: int
    token_ids: Sequence[int]
    done: bool = False
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    total: int | None = None
    snapshot_error: str | None = None
    turn: int = 0
    server: str | None = None


def decode_batch(event: Mapping[str, Any]) -> TokenBatch:
    """Read the payload of a token frame, which the caller has recognised by its `type`.

    Gaps and repeats between frames are for the caller to find.

    Args:
        event: The JSON object of the frame's `data`.

    Returns:
        The batch. `token_ids` is the list of the event itself, not a copy.

    Raises:
        FrameError: With the code `bad-version`, `bad-vocabulary`, `bad-ids`, `bad-field` (a field of the wrong type, missing or below 0)
            or `bad-total` (`total` is not `start` plus the number of ids).
    """
    get = event.get
    version, ids, batch, start, done = get("v"), get("token_ids"), get("batch"), get("start"), get("done")
    if version != WIRE_VERSION or type(version) is not int:
        raise FrameError("bad-version", f"token frame of version {version!r:.60}, this is version {WIRE_VERSION}")
    if get("vocab") != VOCABULARY:
        raise FrameError("bad-vocabulary", f"token frame with the vocabulary {get('vocab')!r:.60}, known is {VOCABULARY!r}")
    if type(ids) is not list or not _are_ids(ids):
        raise FrameError("bad-ids", f"token_ids of batch {batch!r:.60} is not a list of at most {MAX_BATCH_IDS} ids of 0…{MAX_TOKEN_ID}")
    if type(batch) is not int or batch < 0 or type(start) is not int or start < 0 or type(done) is not bool:
        raise FrameError("bad-field", f"batch {batch!r:.60}, start {start!r:.60}, done {done!r:.60} are not two counts and a bool")
    plain = TokenBatch(batch, start, ids, done)
    if len(event) == _PLAIN_FIELDS and "type" in event:
        return plain
    return _with_optional_fields(plain, get)


def encode_batch(batch: TokenBatch) -> bytes:
    r"""Write one whole SSE frame, `event: …\ndata: …\n\n`.

    Args:
        batch: The batch. The `total` of a last batch may be left out.

    Raises:
        FrameError: For what `decode_batch` would refuse, with its codes, and `too-large` for a frame over `MAX_FRAME_BYTES`.
    """
    payload: dict[str, object] = {
        "type": EVENT_TYPE,
        "v": WIRE_VERSION,
        "batch": batch.batch,
        "start": batch.start,
        "token_ids": list(batch.token_ids),
        "vocab": VOCABULARY,
        "done": batch.done,
    }
    payload |= {name: value for name, value in zip(_OPTIONAL_FIELDS, batch[4:], strict=True) if value is not None}
    decode_batch(payload)
    if not batch.turn:
        payload.pop("turn", None)
    if batch.done:
        payload.update(finish_reason=batch.finish_reason, stop_reason=batch.stop_reason, total=batch.start + len(batch.token_ids))
    frame = f"event: {EVENT_TYPE}\ndata: {_to_json(payload)}\n\n".encode("ascii")
    if len(frame) > MAX_FRAME_BYTES:
        raise FrameError("too-large", f"token frame of {len(frame)} bytes, at most {MAX_FRAME_BYTES} are allowed")
    return frame


def _with_optional_fields(plain: TokenBatch, get: Callable[[str], Any]) -> TokenBatch:
    finish_reason, stop_reason, total, snapshot_error, turn, server = map(get, _OPTIONAL_FIELDS)
    for name, value in (("finish_reason", finish_reason), ("snapshot_error", snapshot_error), ("server", server)):
        if value is not None and type(value) is not str:
            raise FrameError("bad-field", f"{name} of batch {plain.batch} is {value!r:.60}, not a string or null")
    if stop_reason is not None and type(stop_reason) not in (int, str):
        raise FrameError("bad-field", f"stop_reason of batch {plain.batch} is {stop_reason!r:.60}, not an id, a string or null")
    if turn is not None and (type(turn) is not int or turn < 0):
        raise FrameError("bad-field", f"turn of batch {plain.batch} is {turn!r:.60}, not a count")
    sent = plain.start + len(plain.token_ids)
    if total is not None and (type(total) is not int or total != sent):
        raise FrameError("bad-total", f"total of batch {plain.batch} is {total!r:.60}, but {sent} ids were sent")
    return TokenBatch(*plain[:4], finish_reason, stop_reason, total, snapshot_error, turn or 0, server)


def _are_ids(ids: list[int]) -> bool:
    if len(ids) == 1:
        return type(ids[0]) is int and 0 <= ids[0] <= MAX_TOKEN_ID
    if not ids or len(ids) > MAX_BATCH_IDS:
        return not ids
    try:
        array("I", ids)  # refuses, at the speed of C, all but ints and bools of 0…2³²-1
    except (TypeError, OverflowError):
        return False
    if not _BOOLS.isdisjoint(ids) and bool in map(type, ids):  # True == 1, so only ids 0 and 1 call for the closer look
        return False
    return max(ids) <= MAX_TOKEN_ID
