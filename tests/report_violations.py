"""What a stock SDK and this package do with every violation the checker knows: makes ``docs/violations.md``.

Run ``python -m tests.report_violations > docs/violations.md``. Every fault of ``tests/faults.py`` is put
into a correct stream, given to the SDK's ``responses.stream()``, and repaired.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import openai

from harmony_client.checker import check
from harmony_client.checker_rules import CODES
from tests.faults import FAULTS
from tests.judge import play
from tests.sdk_oracle import see
from tests.streams import sample

_HEAD = """# Violations

Every code of `harmony-client check`, what the stock OpenAI SDK's `responses.stream()` does with a stream that has it (openai {version}),
and what comes out of this package for the same stream without token batches. *Silent*: no exception, and whatever was lost stays lost.
Made by `python -m tests.report_violations` from the faults of `tests/faults.py`.

| code | example | stock SDK | repaired |
| --- | --- | --- | --- |
"""


def rows() -> list[tuple[str, str, str, str]]:
    """One row per code: code, example, what the SDK does, what we do."""
    return [(code, example(code), stock(code), ours(code)) for code in CODES]


def _streams(code: str) -> list[list[Any]]:
    return [injector(sample()) for injector in FAULTS[code]]


def example(code: str) -> str:
    """What the checker says of the first fault."""
    message = next(violation.message for violation in check(_streams(code)[0]) if violation.code == code)
    return message if len(message) <= 160 else message[:157] + "…"


def stock(code: str) -> str:
    """What the SDK does with the faults."""
    seen: Counter[str] = Counter()
    for events in _streams(code):
        error = see([event for event in events if isinstance(event, dict)]).error
        seen["silent" if error is None else f"raises {type(error).__name__}"] += 1
    total = sum(seen.values())
    return ", ".join(what if count == total else f"{what} ({count} of {total})" for what, count in seen.most_common())


def ours(code: str) -> str:
    """What comes out after repair."""
    repairs: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    for events in _streams(code):
        stream = play([event for event in events if isinstance(event, dict)])
        repairs.update(stream.report.repair_codes)
        endings["well-formed" if stream.failure is None else type(stream.failure).__name__] += 1
    ending = " or ".join(what for what, _ in endings.most_common())
    codes = ", ".join(f"`{name}`" for name, _ in repairs.most_common(4))
    return f"{ending}: {codes}" if codes else ending


def main() -> int:
    sys.stdout.write(_HEAD.format(version=openai.VERSION))
    for row in rows():
        code, *rest = (cell.replace("|", "\\|").replace("\n", " ") for cell in row)
        sys.stdout.write(f"| `{code}` | {' | '.join(rest)} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
