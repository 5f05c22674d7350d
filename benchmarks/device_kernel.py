"""How fast the device page computes: random words, a round of FPL, the attackers, a list.

    python benchmarks/device_kernel.py

Needs Node.js. Each figure is the fastest of some repeats in one process.
"""

from __future__ import annotations

import json
import subprocess
from importlib import resources
from pathlib import Path


def main() -> None:
    folder = resources.files("coterie.device") / "static"
    program = Path(__file__).with_suffix(".mjs")
    done = subprocess.run(
        ["node", str(program), str(folder)], capture_output=True, text=True, check=True
    )
    for name, figure in json.loads(done.stdout).items():
        print(f"{figure:>10,.2f} {name}")


if __name__ == "__main__":
    main()
