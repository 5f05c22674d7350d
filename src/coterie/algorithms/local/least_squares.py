"""Weighted least squares of matrix factorisation: the objective, and one side solved exactly.

Hu, Koren, Volinsky. Collaborative filtering for implicit feedback datasets. ICDM 2008, with the
regularisation of Rendle, Krichene, Zhang, Koren. Revisiting the performance of iALS on item
recommendation benchmarks. RecSys 2022:

    sum_{u,i} c_ui (r_ui - x_u . y_i)^2 + sum_u ridge_u |x_u|^2 + sum_i ridge_i |y_i|^2
    ridge = reg max(count + others / alpha, 1)^reg_exponent

r = 1 and c = 1 + alpha where u interacted with i; r = 0 and c = 1 elsewhere. `count` is the number
of interactions of the row, and `others` the number of rows on the other side. Up to a factor of all
scores this is the objective of Rendle et al. with alpha_0 = 1 / alpha, lambda = reg / alpha and
nu = reg_exponent.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from coterie import kernels
from coterie.core import parallel
from coterie.core.settings import DataSize, SearchSpace, Settings
from coterie.types import Doubles, Floats, Longs, Rows

SHARE_OF_VANISHING = 0.1
"""The regularisation by default, as a share of the one at which all rows become zero. On nine
datasets 0.05 to 0.3 were tried on validation parts; this has the best geometric mean."""
REG_OF_RATINGS = 0.06
"""The regularisation by default where scores predict ratings."""


class LeastSquares(Settings):
    search_space: ClassVar[SearchSpace] = {
        "alpha": (1.0, 100.0),
        "reg": (0.003, 1.0),
        "embedding_size": [32, 64, 128],
    }

    embedding_size: int = Field(64, ge=1, le=512)
    """Length of every user and item row."""
    alpha: float = Field(5.0, ge=0)
    """Extra confidence in observed interactions."""
    reg: float | None = Field(None, gt=0)
    """Regularisation of all rows. By default it follows from the numbers of users, items and
    interactions."""
    reg_exponent: float = Field(1.0, ge=0, le=2)
    """How the regularisation of a row grows with its interactions (nu): 0 is the same for all."""
    block_size: int = Field(0, ge=0, le=512)
    """Coordinates of a row that are solved together; 0 solves all of them at once."""
    start_scale: float = Field(0.1, gt=0)
    """Standard deviation of the initial values."""

    def for_data(self, size: DataSize) -> Self:
        if self.reg is not None:
            return self
        reg = REG_OF_RATINGS if size.rated else SHARE_OF_VANISHING * vanishing_reg(self, size)
        return self.model_copy(update={"reg": round_to(reg, 3)})

    @property
    def known_reg(self) -> float:
        """The regularisation, once it is set or derived."""
        if self.reg is None:
            raise ValueError("reg is unset; expected settings for data: call for_data first")
        return self.reg

    @model_validator(mode="after")
    def _alpha_weighs_the_other_side(self) -> Self:
        if self.reg_exponent and not self.alpha:
            raise ValueError(
                f"setting 'reg_exponent' is {self.reg_exponent!r}, but alpha is 0, and the "
                "regularisation is reg (count + others / alpha)^reg_exponent; expected an alpha "
                "above 0. Raise alpha, or set reg_exponent=0"
            )
        return self


def vanishing_reg(settings: LeastSquares, size: DataSize) -> float:
    """A regularisation at which rows are not zero yet, but would be soon.

    Near zero the objective is -2 x^T C y + sum ridge_u x_u^2 + sum ridge_i y_i^2 in every
    coordinate, where C is 1 + alpha at interactions. So rows grow from zero as long as reg is below
    the largest singular value of C, scaled by the ridges of its rows and columns at reg = 1. Equal
    x and equal y give a lower bound of it, from what everybody knows.
    """
    if not (size.users and size.items and size.interactions):
        return 1.0
    by_user = ridge_sum(size.interactions, size.users, size.items, settings)
    by_item = ridge_sum(size.interactions, size.items, size.users, settings)
    return (1 + settings.alpha) * size.interactions / math.sqrt(by_user * by_item)


def ridge_sum(interactions: int, rows: int, others: int, settings: LeastSquares) -> float:
    """The ridges of one side at reg = 1, as if all its rows had equally many interactions."""
    size = interactions / rows + (others / settings.alpha if settings.reg_exponent else 0.0)
    return rows * float(max(size, 1.0) ** settings.reg_exponent)


def round_to(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def ridges(counts: Longs, others: int, settings: LeastSquares) -> Doubles:
    """The regularisation of rows with these numbers of interactions."""
    if not settings.reg_exponent:
        return np.full(len(counts), settings.known_reg)
    size = np.maximum(counts + others / settings.alpha, 1.0)
    scaled: Doubles = settings.known_reg * size**settings.reg_exponent
    return scaled


def gram(Y: Floats) -> Doubles:
    """Y^T Y"""
    product = np.empty((Y.shape[1], Y.shape[1]))
    kernels.load("als").gram(Y, product)
    return product


class RightSides(NamedTuple):
    """The right sides of linear systems, where they are not those of implicit feedback."""

    targets: Floats
    """What the product of the rows should be, for every interaction; none means 1 + alpha."""
    extra: Doubles
    """(rows, d) a term for every row; no rows mean zeros."""

    @classmethod
    def usual(cls, d: int) -> RightSides:
        return cls(np.empty(0, np.float32), np.empty((0, d)))


def solve_rows(
    history: Rows,
    Y: Floats,
    system: Doubles,
    alpha: float,
    ridge: Doubles,
    right: RightSides | None = None,
) -> Floats:
    """Of every history: (system + ridge I + alpha sum_i y_i y_i^T)^-1 (extra + sum_i t_i y_i)."""
    X = np.empty((len(history.counts), Y.shape[1]), np.float32)
    targets, extra = right or RightSides.usual(Y.shape[1])
    kernel = kernels.load("als").solve_rows
    parallel.over(
        lambda first, last: kernel(
            history.offsets,
            history.items,
            targets,
            Y,
            system,
            extra,
            alpha,
            ridge,
            first,
            last,
            X,
        ),
        history.offsets,
    )
    return X


def solve(history: Rows, Y: Floats, settings: LeastSquares) -> Floats:
    """The rows of one side, with the rows Y of the other fixed."""
    ridge = ridges(history.counts, len(Y), settings)
    return solve_rows(history, Y, gram(Y), settings.alpha, ridge)


def improve(X: Floats, history: Rows, Y: Floats, settings: LeastSquares) -> Floats:
    """Rows that are better than X, a block of coordinates after the other.

    Rendle, Krichene, Zhang, Koren. iALS++: speeding up matrix factorization with subspace
    optimization. arXiv:2110.14044, 2021.
    """
    improved = X.copy()
    ridge = ridges(history.counts, len(Y), settings)
    system = gram(Y)
    kernel = kernels.load("als").improve_rows
    parallel.over(
        lambda first, last: kernel(
            history.offsets,
            history.items,
            Y,
            system,
            settings.alpha,
            ridge,
            settings.block_size,
            first,
            last,
            improved,
        ),
        history.offsets,
    )
    return improved
