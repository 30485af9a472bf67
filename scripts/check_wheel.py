"""Check the installed distribution: run it by a Python of an environment that has only the wheel, from outside the checkout.

    cd /somewhere/else && /path/to/environment/bin/python -I /path/to/check_wheel.py

It imports the packages, looks for what a wheel can lack (type marker, package data, licences, the command), and runs the demo.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

DISTRIBUTION = "harmony-stream-client"
FILES = {
    "harmony_client": ["py.typed", "data/o200k_base.zlib"],
    "server_ext": ["py.typed", "recordings/trtllm.jsonl"],
}


def main() -> int:
    """Run the checks. Returns 0; a failed check raises."""
    environment = Path(sys.prefix).resolve()
    for package, files in FILES.items():
        root = resources.files(package)
        assert environment in Path(str(root)).resolve().parents, f"{package} comes from {root}, not from the wheel"
        for file in files:
            assert (root / file).is_file(), f"{package}/{file} is not in the wheel"
    licences = metadata.metadata(DISTRIBUTION).get_all("License-File") or []
    assert {"LICENSE", "NOTICE"} <= set(licences), f"licence files in the wheel: {licences}"

    command = environment / ("Scripts" if sys.platform == "win32" else "bin") / "harmony-client"
    demo = subprocess.run([command, "demo", "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert demo.returncode == 0, f"harmony-client demo exited with {demo.returncode}\n{demo.stdout}\n{demo.stderr}"
    rows = [json.loads(line) for line in demo.stdout.splitlines()]
    assert rows, "harmony-client demo --json printed nothing"
    print(f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)}: wheel complete, the demo printed {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
