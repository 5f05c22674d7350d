"""Features of the rows of one round: the direction of each user's vector, sides and pairs.

Every row that a user trained on is a multiple of the user's vector p_u plus a small regularisation:
dq_i = e p_u - reg_positive q_i for a liked item, dq_j = -e p_u - reg_negative q_j for a sampled one
(FPL, Eqs. 3 to 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.attacks.eavesdropper import Observation
from coterie.types import SCALE, Bools, Doubles, Ints, Longs

POWER_STEPS = 2
"""Steps of power iteration. The rows of a user are nearly collinear, so it converges at once."""
ROUNDING = 2.0
"""Largest difference in an entry, in units of fixed point, between two opposite rows."""


@dataclass(frozen=True, slots=True)
class RoundFeatures:
    """A round with the features of its rows."""

    observation: Observation
    owners: Longs  # (rows,) the sender's place in observation.users
    factors: Doubles  # (rows, d) changes of factors, in units of fixed point
    lines: Doubles  # (n, d) unit vectors along a user's rows: p_u up to its length and sign
    along: Doubles  # (rows,) the component of each row along its user's line
    sent_along: Doubles  # (rows,) the same for the item's row that the server had sent

    @property
    def sides(self) -> Ints:
        """+1 or -1 for every row: its direction along its user's line."""
        return np.sign(self.along).astype(np.int32)


def extract_features(
    observation: Observation, n_factors: int, lines_before: Doubles
) -> RoundFeatures:
    """Compute the features of a round.

    `lines_before` are the users' lines of their last round, zero for a first one. p_u moves slowly,
    so lines are oriented like the previous ones, and sides stay comparable over rounds.
    """
    factors = observation.item_rows[:, :n_factors].astype(np.float64)
    owners = observation.owners
    lines = _lines(factors, owners, observation.offsets[:-1])
    turned = _dot(lines, lines_before) < 0
    lines[turned] *= -1
    line_of_row = lines[owners]
    sent_along = _dot(observation.sent["item_rows"][observation.items], line_of_row)
    along = _dot(factors, line_of_row)
    return RoundFeatures(observation, owners, factors, lines, along, sent_along)


def _lines(factors: Doubles, owners: Longs, starts: Longs) -> Doubles:
    """The first principal direction of every user's rows, by power iteration from the longest."""
    lengths = _dot(factors, factors)
    longest = np.flatnonzero(lengths == np.maximum.reduceat(lengths, starts)[owners])
    lines = _unit(factors[longest[np.unique(owners[longest], return_index=True)[1]]])
    for _ in range(POWER_STEPS):
        along = _dot(factors, lines[owners])
        lines = _unit(np.add.reduceat(factors * along[:, None], starts, axis=0))
    return lines


def _unit(rows: Doubles) -> Doubles:
    lengths = np.sqrt(_dot(rows, rows))[:, None]
    return rows / np.where(lengths > 0, lengths, 1.0)


def _dot(first: np.ndarray, second: np.ndarray) -> Doubles:
    """The dot product of each row with its counterpart."""
    products: Doubles = np.einsum("rf,rf->r", first, second)
    return products


def sure_sides(features: RoundFeatures, *regularisation: float) -> Ints:
    """The sides of rows; zero where regularisation or rounding could account for the whole row."""
    bound = np.abs(features.sent_along) * (max(regularisation, default=0.0) * SCALE) + ROUNDING
    return np.where(np.abs(features.along) > bound, features.sides, np.int32(0))


def opposite(
    features: RoundFeatures, liked_side: int, reg_positive: float, reg_negative: float
) -> Bools:
    """Rows with an exact opposite among their user's rows, if liked items are on that side.

    Such rows belong to one triple. The server knows the item rows that it sent, so it can subtract
    the regularisation; what remains is e p_u and -e p_u.
    """
    liked = features.sides == liked_side
    owners = features.owners
    reg = np.where(liked, reg_positive, reg_negative) * SCALE
    size = np.abs(features.along + reg * features.sent_along)
    order = np.argsort(
        (owners << 40) + (size * 64).astype(np.int64), kind="stable"
    )  # by owner, then by size
    first = order[:-1]
    second = order[1:]
    close = (owners[first] == owners[second]) & (liked[first] != liked[second])
    tolerance = ROUNDING * np.sqrt(features.factors.shape[1])
    close &= np.abs(size[first] - size[second]) <= tolerance
    close &= size[first] > 8 * ROUNDING  # rows near zero are opposite to each other by chance
    first = first[close]
    second = second[close]
    sums = _without_reg(features, first, reg) + _without_reg(features, second, reg)
    exact = (np.abs(sums) <= ROUNDING).all(axis=1)
    paired = np.zeros(len(order), bool)
    paired[first[exact]] = True
    paired[second[exact]] = True
    return paired


def _without_reg(features: RoundFeatures, which: Longs, reg: Doubles) -> Doubles:
    """Some rows without their regularisation."""
    observation = features.observation
    sent = observation.sent["item_rows"][observation.items[which]]
    plain: Doubles = features.factors[which] + reg[which, None] * sent
    return plain


def distance_to_unseen(features: RoundFeatures) -> Doubles:
    """FCF: how far each row is from that of an unseen item, in units of fixed point.

    f(u, i) = c_ui (p_ui - x_u . y_i) x_u. For an unseen item c = 1 and p = 0: along the line of
    x_u = s v that is -s^2 (v . y_i), whatever the sign of s. Most items are unseen, so the median
    of all -f / (v . y_i) is s^2.
    """
    scores = features.sent_along
    ratios = -features.along / np.where(scores == 0, np.inf, scores)
    squares = _lower_medians(ratios, features.observation.offsets)
    distance: Doubles = np.abs(features.along + squares[features.owners] * scores)
    return distance


def _lower_medians(values: Doubles, offsets: Longs) -> Doubles:
    """The median of every user's values; of an even number, the lower middle one."""
    by_user = np.split(values, offsets[1:-1])
    return np.array(
        [np.partition(own, (len(own) - 1) // 2)[(len(own) - 1) // 2] for own in by_user]
    )
