"""Run the client's tests on several releases of the OpenAI SDK, each in an environment of its own.

``python scripts/test_sdks.py`` takes the oldest supported release, the last of 2.x, the first on httpx2,
the first with the strict accumulator, and the newest; ``python scripts/test_sdks.py 2.50.0`` takes those named.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASES = ("2.45.0", "2.54.0", "3.0.0", "3.31.0", "newest")
TESTS = ("tests/test_client*.py", "tests/test_testing*.py", "tests/test_recorded*.py")


def run(release: str, folder: Path) -> bool:
    """Install one release and run the tests on it."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    wanted = "openai<4" if release == "newest" else f"openai=={release}"
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{ROOT}[test]", wanted], check=True)
    tests = sorted(str(path) for pattern in TESTS for path in ROOT.glob(pattern))
    return subprocess.run([python, "-m", "pytest", "-q", *tests], cwd=ROOT, check=False).returncode == 0


def main() -> int:
    passed: dict[str, bool] = {}
    for release in sys.argv[1:] or RELEASES:
        print(f"== openai {release}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            passed[release] = run(release, Path(folder))
    for release, good in passed.items():
        print(f"openai {release:8} {'passed' if good else 'FAILED'}")
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
