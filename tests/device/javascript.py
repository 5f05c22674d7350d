"""The device's modules, run by Node.js on a batch of cases."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

STATIC = Path(str(resources.files("coterie.device") / "static"))
PROGRAM = Path(__file__).parent / "answer_cases.mjs"
BATCH = 500
"""Cases of one process."""
ORDINARY = 200
MANY = 10_000
T = TypeVar("T")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")


def answers(cases: Iterable[Mapping[str, Any]]) -> list[Any]:
    """The answer to every case, from one process."""
    lines = "\n".join(json.dumps(case) for case in cases)
    done = subprocess.run(
        ["node", str(PROGRAM), str(STATIC)],
        input=lines,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


numbers_of_clients = pytest.mark.parametrize(
    ("n", "seed"), [(ORDINARY, 0), pytest.param(MANY, 1, marks=pytest.mark.long)]
)
"""Few clients in the ordinary tests, and ten thousand others in the long ones."""


def answered(
    cases: Iterable[T], question: Callable[[T], Mapping[str, Any]]
) -> Iterator[tuple[T, Any]]:
    """Every case with its answer, a batch at a time."""
    remaining = iter(cases)
    while batch := list(itertools.islice(remaining, BATCH)):
        yield from zip(batch, answers(map(question, batch)), strict=True)


def packed(array: np.ndarray | bytes) -> str:
    data = array if isinstance(array, bytes) else np.ascontiguousarray(array).tobytes()
    return base64.b64encode(data).decode()


def unpacked(text: str, dtype: type[np.generic]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype)
