"""The examples and the README's Python code run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem
)
def test_examples_are_short_and_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(path.read_text().splitlines()) < 80
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_the_python_of_the_readme_runs(real_data, capsys: pytest.CaptureFixture[str]) -> None:
    real_data("ml-100k", "u.data", "ml-100k.inter")
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    exec(code[1], {})
    hit_rate, by_full_ranking = map(float, capsys.readouterr().out.splitlines()[0].split())
    assert 0 < by_full_ranking < hit_rate < 1
