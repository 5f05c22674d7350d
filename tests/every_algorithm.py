"""The algorithms that this installation can train, and settings to train one quickly."""

from __future__ import annotations

from importlib.util import find_spec

from coterie.algorithms.registry import ALGORITHMS, algorithm

NEED_PYTORCH = {
    "multivae",
    "lightgcn",
    "dssm",
    "clsm",
    "fl-dssm",
    "fl-clsm",
    "sttfedrec-dssm",
    "sttfedrec-clsm",
}
HERE = [name for name in ALGORITHMS if name not in NEED_PYTORCH or find_spec("torch")]
"""All algorithms, except those that need PyTorch (the extra `neural`) where it is missing."""


def two_steps(name: str) -> dict[str, int]:
    known = algorithm(name).settings.model_fields
    return {key: 2 for key in ("epochs", "rounds") if key in known}
