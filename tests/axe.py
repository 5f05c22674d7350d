"""axe-core: the script that finds faults of accessibility.

It comes from npm into a temporary folder, for the tests that use it alone.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

VERSION = "axe-core@4.10.3"
SERIOUS = ("serious", "critical")


def axe_script(folder: Path) -> str:
    """The text of the script; without npm or its registry, the test is skipped."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not here")
    command = [npm, "install", "--no-save", "--ignore-scripts", "--prefix", str(folder), VERSION]
    try:
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not answer")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if done.returncode or not script.exists():
        pytest.skip(f"npm cannot fetch {VERSION}")
    return script.read_text()


def faults(page: Any, axe: str) -> list[str]:
    """Serious faults of the page that is open. The debugger adds the script: the policy of the
    page would not."""
    page.evaluate(axe)
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:120]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
    ]
