"""A slow LightFR: a round as the authors' code writes it, bit by bit, in whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

Target = tuple[int, int]
"""An item, and what the product of the codes should be."""


def own_code(b: np.ndarray, D: np.ndarray, targets: list[Target], s: Any) -> np.ndarray:
    """The client's code, after passes over its bits until none changes."""
    b = b.copy()
    for _ in range(s.local_sweeps):
        changed = False
        for j in range(len(b)):
            total = 2 * s.inertia * len(targets) * b[j]
            for item, r in targets:
                total += (r - D[item] @ b) * D[item, j]
            if total != 0 and np.sign(total) != b[j]:
                b[j] = np.sign(total)
                changed = True
        if not changed:
            break
    return b


def item_codes(
    D: np.ndarray,
    codes: list[np.ndarray],
    targets: list[list[Target]],
    bits: list[int],
    s: Any,
) -> np.ndarray:
    """D after a round in which these bits change; all sums are those before."""
    after = D.copy()
    for item in range(len(D)):
        raters = [k for k, own in enumerate(targets) if item in dict(own)]
        n = len(raters) if s.inertia_by == "raters" else len(codes)
        for j in bits:
            total = s.item_inertia * n * D[item, j]
            for k in raters:
                total += (dict(targets[k])[item] - D[item] @ codes[k]) * codes[k][j]
            if total != 0:
                after[item, j] = np.sign(total)
    return after


def squared_error(D: np.ndarray, codes: list[np.ndarray], targets: list[list[Target]]) -> int:
    """The objective over the clients of a round."""
    pairs = zip(codes, targets, strict=True)
    return sum(int(r - D[item] @ b) ** 2 for b, own in pairs for item, r in own)
