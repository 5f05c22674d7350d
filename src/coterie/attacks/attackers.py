"""Attackers: what a curious server can claim about users, each from one thing that it sees.

An attacker has what a server has (`Server`, and `Overheard` of every round) and answers with a score for every user and item;
a score above zero is a claim that the user liked it. None knows a disclosure rate or the length of a history.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.attacks.evidence import Attacker, Claims, Evidence, Server
from coterie.attacks.features import Reading, off_the_line, opposite, sure_sides
from coterie.types import Ints, Longs

FEW = 1.0
"""A frequency attacker claims what would happen to fewer than so many of a user's items by chance."""
EXACT = 24.0
"""Units of fixed point by which a row of FCF may miss its place by rounding alone."""
CLOSE = 1e-3
"""And the share of its own length."""


# Signs


def note_bias(server: Server, reading: Reading) -> Sequence[Ints]:
    """db_i = e for a liked item and -e for another one, with no p_u in it and no regularisation: the sign tells (Eq. 5)."""
    return (np.sign(reading.heard.item_rows[:, -1]),)


def claim_bias(evidence: Evidence) -> Claims:
    """Pushed up more often than down."""
    return _claims(evidence, evidence.clues[0])


def note_side(server: Server, reading: Reading) -> Sequence[Ints]:
    """On which side of zero a row's factors lie, along the line of its user's rows; nothing where regularisation may be all of it."""
    return (sure_sides(reading, server.reg_positive, server.reg_negative),)


def claim_side(evidence: Evidence) -> Claims:
    """The smaller of the two sides is the liked one: others are drawn from nearly the whole catalogue and hardly ever twice, liked
    items from a short history, and only a share of them is sent. If both are of one size nothing is claimed."""
    return _claims(
        evidence, evidence.clues[0] * smaller_side(evidence, evidence.clues[0])[evidence.users]
    )


def smaller_side(evidence: Evidence, sides: Ints) -> Longs:
    """+1 or -1 for every user: the side with fewer items on it, over all rounds. Zero if there is none."""
    users = evidence.users
    n = evidence.server.n_users
    plus, minus = (np.bincount(users[which], minlength=n) for which in (sides > 0, sides < 0))
    smaller: Longs = np.sign(minus - plus)
    return smaller


# Pairs


def note_pairs(server: Server, reading: Reading) -> Sequence[Ints]:
    """Of rows that have an exact opposite, what they are where it is known (+1 liked, -1 not), and their side.

    Which of the two is liked, regularisation tells: it differs, and taking away the right one leaves exact opposites. With the same
    for both kinds of items the pairs stand, but not who is who.
    """
    suppose = [
        opposite(reading, side, server.reg_positive, server.reg_negative) for side in (1, -1)
    ]
    n_users = len(reading.heard.users)
    plus, minus = (np.bincount(reading.owners[pairs], minlength=n_users) for pairs in suppose)
    liked_side = np.sign(plus - minus).astype(np.int32)[reading.owners]
    paired = np.where(liked_side < 0, suppose[1], suppose[0])
    sides = reading.sides * paired
    return sides * liked_side, sides


def claim_pairs(evidence: Evidence) -> Claims:
    """The liked one of every pair; where that is open, as by sides."""
    known = evidence.clues[0]
    sides = evidence.clues[1]
    told = np.bincount(evidence.users[known != 0], minlength=evidence.server.n_users) > 0
    guessed = sides * smaller_side(evidence, sides)[evidence.users]
    return _claims(evidence, np.where(told[evidence.users], known, guessed))


# Counts


def claim_frequent(evidence: Evidence) -> Claims:
    """Sent in more rounds than chance would have it: fewer than one item of the catalogue would be, were they drawn evenly."""
    least = rounds_beyond_chance(evidence)
    return Claims(evidence.keys, evidence.times - least[evidence.users] + 1, 1 - least)


def rounds_beyond_chance(evidence: Evidence) -> Longs:
    """For every user the smallest c with n_items * P(Binomial(rounds, chance) >= c) < FEW."""
    from scipy.special import bdtrc

    rounds = evidence.rounds_heard
    n_items = evidence.server.n_items
    chance = 1.0 - (1.0 - 1.0 / n_items) ** (evidence.draws / np.maximum(rounds, 1))
    least = np.ones(len(rounds), np.int64)
    while (common := n_items * bdtrc(least - 1, rounds, chance) >= FEW).any():
        least += common
    return least


def claim_complement(evidence: Evidence) -> Claims:
    """Never sent. Others are drawn from everything that a user did not choose, so in the end only the chosen are left."""
    return Claims(evidence.keys, -evidence.times.astype(np.int64), np.sign(evidence.rounds_heard))


def note_pushed_down(server: Server, reading: Reading) -> Sequence[Ints]:
    return ((reading.heard.item_rows[:, -1] < 0).astype(np.int32),)


def claim_never_down(evidence: Evidence) -> Claims:
    """Never sent with a falling bias: the complement of the others alone, so what is shown does not hide what is not."""
    down = evidence.clues[0].astype(np.int64)
    shown = np.where(
        down > 0, -down, 1 + evidence.times
    )  # what was shown and never pushed down is sure
    return Claims(evidence.keys, shown, np.sign(evidence.rounds_heard))


# FCF


def note_off_the_line(server: Server, reading: Reading) -> Sequence[Ints]:
    """Rows of all items are sent; those of unseen ones follow from x_u, which the rows themselves give away."""
    off = off_the_line(reading)
    size = np.abs(reading.along)
    return ((off > EXACT + CLOSE * size).astype(np.int32),)


def claim_off_the_line(evidence: Evidence) -> Claims:
    """Off in more than half of the rounds."""
    rounds = evidence.rounds_heard
    return Claims(
        evidence.keys, 2 * evidence.clues[0].astype(np.int64) - rounds[evidence.users], -rounds
    )


def _claims(evidence: Evidence, scores: Ints | Longs) -> Claims:
    """What is not claimed is all the same; that some of it is certainly not liked is another attacker's to use (`never-down`)."""
    return Claims(
        evidence.keys,
        np.maximum(scores, 0).astype(np.int64),
        np.zeros(evidence.server.n_users, np.int64),
    )


BIAS_SIGN = Attacker("bias-sign", "the sign of bias updates", claim_bias, note_bias, 1)
FACTOR_SIGN = Attacker(
    "factor-sign", "the sides of factor updates; the smaller one is liked", claim_side, note_side, 1
)
PAIRING = Attacker(
    "pairing",
    "factor updates that are exact opposites: a triple's items",
    claim_pairs,
    note_pairs,
    2,
)
FREQUENCY = Attacker(
    "frequency", "in how many rounds an item was sent", claim_frequent, counts=True
)
COMPLEMENT = Attacker("complement", "which items were never sent", claim_complement, counts=True)
NEVER_DOWN = Attacker(
    "never-down",
    "items never sent with a falling bias",
    claim_never_down,
    note_pushed_down,
    1,
    True,
)
FCF = Attacker(
    "fcf",
    "rows that are not what an unseen item's would be",
    claim_off_the_line,
    note_off_the_line,
    1,
)

ON_FPL = (BIAS_SIGN, FACTOR_SIGN, PAIRING, FREQUENCY, COMPLEMENT, NEVER_DOWN)
ON_FCF = (FCF,)
