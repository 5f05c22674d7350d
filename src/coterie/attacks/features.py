"""What the rows of one round say: where a user's vector points, which side rows are on, and which belong to one triple.

Every row of an item that a user trained on is a multiple of the user's vector p_u, but for a little regularisation:
dq_i = e p_u - reg_positive q_i for a liked item, dq_j = -e p_u - reg_negative q_j for another one (FPL, Eqs. 3 to 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.attacks.eavesdropper import Overheard
from coterie.types import SCALE, Bools, Doubles, Ints, Longs

POWER_STEPS = 2
"""The rows of a user are nearly on a line: it is found almost at once."""
ROUNDING = 2.0
"""Two rows in fixed point that are opposite may miss each other by so many units in an entry."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A round, with what follows from it at once."""

    heard: Overheard
    owners: Longs  # (rows,) place of the sender in heard.users
    factors: Doubles  # (rows, d) changes of factors, in units of fixed point
    lines: Doubles  # (n, d) the unit vector along which a user's rows lie: p_u but for its length and its sign
    along: Doubles  # (rows,) each row's part along its user's line
    sent_along: Doubles  # (rows,) the same of the item's row that the server had sent

    @property
    def sides(self) -> Ints:
        """+1 or -1 for every row: where it points along its user's line."""
        return np.sign(self.along).astype(np.int32)


def read(heard: Overheard, n_factors: int, lines_before: Doubles) -> Reading:
    """`lines_before` are the lines that the users had when last heard, zero if never: p_u moves slowly, so what is one side in
    a round is the same side in the next."""
    factors = heard.item_rows[:, :n_factors].astype(np.float64)
    owners = heard.owners
    lines = _lines(factors, owners, heard.offsets[:-1])
    turned = _dot(lines, lines_before) < 0
    lines[turned] *= -1
    mine = lines[owners]
    sent_along = _dot(heard.sent["item_rows"][heard.items], mine)
    return Reading(heard, owners, factors, lines, _dot(factors, mine), sent_along)


def _lines(factors: Doubles, owners: Longs, starts: Longs) -> Doubles:
    """The first principal direction of every user's rows, by power iteration from the longest of them."""
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


def _dot(one: np.ndarray, other: np.ndarray) -> Doubles:
    """Of each row with its counterpart."""
    products: Doubles = np.einsum("rf,rf->r", one, other)
    return products


def sure_sides(reading: Reading, *regularisation: float) -> Ints:
    """The sides of rows, zero where they hang on regularisation or rounding: a server knows how much of either there may be."""
    most = np.abs(reading.sent_along) * (max(regularisation, default=0.0) * SCALE) + ROUNDING
    return np.where(np.abs(reading.along) > most, reading.sides, np.int32(0))


def opposite(reading: Reading, liked_side: int, reg_positive: float, reg_negative: float) -> Bools:
    """Rows that have an exact opposite among their user's, supposed that liked items are on that side: a triple's two rows.

    A server knows the item rows that it sent, so it can take regularisation away; what is left is e p_u and -e p_u.
    """
    liked = reading.sides == liked_side
    owners = reading.owners
    taken = np.where(liked, reg_positive, reg_negative) * SCALE
    size = np.abs(reading.along + taken * reading.sent_along)
    order = np.argsort((owners << 40) + (size * 64).astype(np.int64))  # by owner, then by size
    one = order[:-1]
    other = order[1:]
    close = (owners[one] == owners[other]) & (liked[one] != liked[other])
    close &= np.abs(size[one] - size[other]) <= ROUNDING * np.sqrt(reading.factors.shape[1])
    close &= size[one] > 8 * ROUNDING  # near zero everything is opposite to everything
    one = one[close]
    other = other[close]
    exact = (np.abs(_plain(reading, one, taken) + _plain(reading, other, taken)) <= ROUNDING).all(
        axis=1
    )
    found = np.zeros(len(order), bool)
    found[one[exact]] = found[other[exact]] = True
    return found


def _plain(reading: Reading, which: Longs, taken: Doubles) -> Doubles:
    """Some rows without their regularisation."""
    sent = reading.heard.sent["item_rows"][reading.heard.items[which]]
    plain: Doubles = reading.factors[which] + taken[which, None] * sent
    return plain


def off_the_line(reading: Reading) -> Doubles:
    """FCF: how far each row is from what it would be if the item were unseen, in units of fixed point.

    f(u, i) = c_ui (p_ui - x_u . y_i) x_u. Of an unseen item c = 1 and p = 0: along the line of x_u = s v that is
    -s^2 (v . y_i), whatever the sign of s. Most items are unseen, so the middle one of all -f / (v . y_i) is s^2.
    """
    scores = reading.sent_along
    ratios = -reading.along / np.where(scores == 0, np.inf, scores)
    squares = _middles(ratios, reading.heard.offsets)
    off: Doubles = np.abs(reading.along + squares[reading.owners] * scores)
    return off


def _middles(values: Doubles, offsets: Longs) -> Doubles:
    """The median of every user's values, the lower one of two."""
    of_users = np.split(values, offsets[1:-1])
    return np.array(
        [np.partition(mine, (len(mine) - 1) // 2)[(len(mine) - 1) // 2] for mine in of_users]
    )
