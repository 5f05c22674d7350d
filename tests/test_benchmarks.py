"""Every script of `benchmarks/` can be imported: what it uses of the library is still there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
OTHER_ENVIRONMENTS = ("flower_round",)
"""Scripts that run in an environment of their own, with libraries that are not ours."""


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["", "peers"])
def test_scripts_can_be_imported(folder):
    """In one process, since most of the time would be that of importing libraries."""
    pytest.importorskip("torch")
    scripts = sorted(path.stem for path in (BENCHMARKS / folder).glob("*.py"))
    imports = "\n".join(f"import {name}" for name in scripts if name not in OTHER_ENVIRONMENTS)
    path = [str(BENCHMARKS), str(BENCHMARKS / folder), str(BENCHMARKS.parent / "tests")]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path[:0] = {path}\n{imports}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
