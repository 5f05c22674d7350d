"""Ridge systems of implicit ALS; every row is solved independently of the others."""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64, int32, int64, types

from coterie.kernels.common import kernel, readonly
from coterie.types import Doubles, Floats, Ints, Longs


@kernel(types.void(readonly(float32, 2), float64[:, ::1]))
def gram(Y: Floats, G: Doubles) -> None:
    """G = Y^T Y for Y (n, d), adding rows in order and in double precision. Writes G."""
    n, d = Y.shape
    G[:] = 0.0
    for r in range(n):
        for a in range(d):
            y = float64(Y[r, a])
            for c in range(a + 1):
                G[a, c] += y * Y[r, c]
    for a in range(d):
        for c in range(a):
            G[c, a] = G[a, c]


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(float32, 2),
        readonly(float64, 2),
        readonly(float64, 2),
        float64,
        float64,
        int64,
        int64,
        float32[:, ::1],
    ),
)
def solve_rows(
    offsets: Longs,
    columns: Ints,
    Y: Floats,
    G: Doubles,
    extra: Doubles,
    alpha: float,
    reg: float,
    first: int,
    last: int,
    X: Floats,
) -> None:
    """Solve rows first..last by Cholesky and write them to X:

        x = (G + reg I + alpha sum_i y_i y_i^T)^-1 (extra + (1 + alpha) sum_i y_i)

    The sums run over columns[offsets[r]:offsets[r + 1]]. `extra` has a row for every row of X, or
    no rows, which means zeros.
    """
    d = Y.shape[1]
    A = np.empty((d, d))
    v = np.empty(d)
    for r in range(first, last):
        for a in range(d):
            v[a] = extra[r, a] if len(extra) else 0.0
            for c in range(a + 1):
                A[a, c] = G[a, c]
            A[a, a] += reg
        for e in range(offsets[r], offsets[r + 1]):
            y = Y[columns[e]]
            for a in range(d):
                w = alpha * y[a]
                for c in range(a + 1):
                    A[a, c] += w * y[c]
                v[a] += (1.0 + alpha) * y[a]
        # Factor A = L L^T in place and solve L z = v along the way.
        for a in range(d):
            for c in range(a):
                s = A[a, c]
                for f in range(c):
                    s -= A[a, f] * A[c, f]
                A[a, c] = s / A[c, c]
            s = A[a, a]
            z = v[a]
            for f in range(a):
                s -= A[a, f] * A[a, f]
                z -= A[a, f] * v[f]
            A[a, a] = math.sqrt(s)
            v[a] = z / A[a, a]
        # Solve L^T x = z.
        for a in range(d - 1, -1, -1):
            z = v[a]
            for f in range(a + 1, d):
                z -= A[f, a] * v[f]
            v[a] = z / A[a, a]
            X[r, a] = v[a]
