"""Attackers: what an honest-but-curious server can claim about users, each from one observation.

An attacker has what a server has (`ServerKnowledge`, and the `Observation` of every round) and
scores every user and item; a score above zero claims that the user liked the item. No attacker
knows a disclosure rate or the length of a history.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.attacks.evidence import Attacker, Claims, Evidence, ServerKnowledge
from coterie.attacks.features import RoundFeatures, distance_to_unseen, opposite, sure_sides
from coterie.types import Ints, Longs

MAX_BY_CHANCE = 1.0
"""`frequency` claims items with a count that chance gives to fewer items than this."""
ROUNDING_UNITS = 24.0
"""Distance, in units of fixed point, by which rounding alone may move a row of FCF."""
ROUNDING_SHARE = 1e-3
"""The same as a share of the row's length; both are added."""


# Signs


def note_bias(server: ServerKnowledge, features: RoundFeatures) -> Sequence[Ints]:
    """The sign of bias updates (Eq. 5).

    db_i = e for a liked item and -e for a sampled one, without p_u and without regularisation.
    """
    return (np.sign(features.observation.item_rows[:, -1]),)


def claim_bias(evidence: Evidence) -> Claims:
    """Claim items whose bias rose in more rounds than it fell."""
    return _claims(evidence, evidence.clues[0])


def note_side(server: ServerKnowledge, features: RoundFeatures) -> Sequence[Ints]:
    """The side of a row along its user's line; zero where regularisation may be all of it."""
    return (sure_sides(features, server.reg_positive, server.reg_negative),)


def claim_side(evidence: Evidence) -> Claims:
    """Claim the smaller side; nothing if both sides have the same size.

    Negatives are drawn from nearly the whole catalogue and hardly ever repeat. Liked items come
    from a short history, and only a share of them is sent.
    """
    sides = evidence.clues[0]
    return _claims(evidence, sides * smaller_side(evidence, sides)[evidence.users])


def smaller_side(evidence: Evidence, sides: Ints) -> Longs:
    """+1 or -1 for every user: the side with fewer items over all rounds; zero on a tie."""
    users = evidence.users
    n = evidence.server.n_users
    plus = np.bincount(users[sides > 0], minlength=n)
    minus = np.bincount(users[sides < 0], minlength=n)
    smaller: Longs = np.sign(minus - plus)
    return smaller


# Pairs


def note_pairs(server: ServerKnowledge, features: RoundFeatures) -> Sequence[Ints]:
    """For rows with an exact opposite: +1 if liked, -1 if not, 0 if unknown; and their side.

    The two rows of a triple have different regularisation, and subtracting the right one leaves
    exact opposites. That tells which row is the liked one. If regularisation is equal for both, the
    pairs are known, but not which row is which.
    """
    pairs_if_plus = opposite(features, 1, server.reg_positive, server.reg_negative)
    pairs_if_minus = opposite(features, -1, server.reg_positive, server.reg_negative)
    n_users = len(features.observation.users)
    n_plus = np.bincount(features.owners[pairs_if_plus], minlength=n_users)
    n_minus = np.bincount(features.owners[pairs_if_minus], minlength=n_users)
    liked_side = np.sign(n_plus - n_minus).astype(np.int32)[features.owners]
    paired = np.where(liked_side < 0, pairs_if_minus, pairs_if_plus)
    sides = features.sides * paired
    return sides * liked_side, sides


def claim_pairs(evidence: Evidence) -> Claims:
    """Claim the liked item of every pair; where that is unknown, the smaller side."""
    known = evidence.clues[0]
    sides = evidence.clues[1]
    is_known = np.bincount(evidence.users[known != 0], minlength=evidence.server.n_users) > 0
    guessed = sides * smaller_side(evidence, sides)[evidence.users]
    return _claims(evidence, np.where(is_known[evidence.users], known, guessed))


# Counts


def claim_frequent(evidence: Evidence) -> Claims:
    """Claim items sent in more rounds than an even draw from the catalogue allows."""
    least = rounds_beyond_chance(evidence)
    return Claims(evidence.keys, evidence.times - least[evidence.users] + 1, 1 - least)


def rounds_beyond_chance(evidence: Evidence) -> Longs:
    """For every user the smallest c with n_items * P(Binomial(rounds, chance) >= c) < 1."""
    from scipy.special import bdtrc

    rounds = evidence.rounds_observed
    n_items = evidence.server.n_items
    chance = 1.0 - (1.0 - 1.0 / n_items) ** (evidence.draws / np.maximum(rounds, 1))
    least = np.ones(len(rounds), np.int64)
    while (common := n_items * bdtrc(least - 1, rounds, chance) >= MAX_BY_CHANCE).any():
        least += common
    return least


def claim_complement(evidence: Evidence) -> Claims:
    """Claim items that were never sent.

    Negatives are drawn from everything outside the history, so in the end only the history remains.
    """
    never_sent = np.sign(evidence.rounds_observed)
    return Claims(evidence.keys, -evidence.times.astype(np.int64), never_sent)


def note_pushed_down(server: ServerKnowledge, features: RoundFeatures) -> Sequence[Ints]:
    """Rows whose bias fell."""
    return ((features.observation.item_rows[:, -1] < 0).astype(np.int32),)


def claim_never_down(evidence: Evidence) -> Claims:
    """Claim items that were never sent with a falling bias.

    Unlike `complement`, this includes liked items that were disclosed.
    """
    down = evidence.clues[0].astype(np.int64)
    # An item that was sent and never pushed down is certain, so it gets the highest scores.
    scores = np.where(down > 0, -down, 1 + evidence.times)
    return Claims(evidence.keys, scores, np.sign(evidence.rounds_observed))


# FCF


def note_not_unseen(server: ServerKnowledge, features: RoundFeatures) -> Sequence[Ints]:
    """Rows that differ from the row of an unseen item.

    FCF sends the rows of all items. Those of unseen ones follow from x_u, which the rows reveal.
    """
    distance = distance_to_unseen(features)
    size = np.abs(features.along)
    return ((distance > ROUNDING_UNITS + ROUNDING_SHARE * size).astype(np.int32),)


def claim_not_unseen(evidence: Evidence) -> Claims:
    """Claim items that differ in more than half of the rounds."""
    rounds = evidence.rounds_observed
    scores = 2 * evidence.clues[0].astype(np.int64) - rounds[evidence.users]
    return Claims(evidence.keys, scores, -rounds)


# FedALS, FedEASE, FedSLIM


def claim_sent(evidence: Evidence) -> Claims:
    """Claim all items that were sent: clients send the ids of their items and no others."""
    return _claims(evidence, evidence.times)


def _claims(evidence: Evidence, scores: Ints | Longs) -> Claims:
    """Claims from scores; all items that are not claimed score zero.

    Knowing that an item is certainly not liked is left to another attacker (`never-down`).
    """
    return Claims(
        evidence.keys,
        np.maximum(scores, 0).astype(np.int64),
        np.zeros(evidence.server.n_users, np.int64),
    )


BIAS_SIGN = Attacker(
    name="bias-sign",
    uses="the sign of bias updates",
    claim=claim_bias,
    note=note_bias,
    n_notes=1,
)
FACTOR_SIGN = Attacker(
    name="factor-sign",
    uses="the sides of factor updates; the smaller one is liked",
    claim=claim_side,
    note=note_side,
    n_notes=1,
)
PAIRING = Attacker(
    name="pairing",
    uses="factor updates that are exact opposites: a triple's items",
    claim=claim_pairs,
    note=note_pairs,
    n_notes=2,
)
FREQUENCY = Attacker(
    name="frequency",
    uses="the number of rounds in which an item was sent",
    claim=claim_frequent,
    counts=True,
)
COMPLEMENT = Attacker(
    name="complement",
    uses="items that were never sent",
    claim=claim_complement,
    counts=True,
)
NEVER_DOWN = Attacker(
    name="never-down",
    uses="items that were never sent with a falling bias",
    claim=claim_never_down,
    note=note_pushed_down,
    n_notes=1,
    counts=True,
)
FCF = Attacker(
    name="fcf",
    uses="rows that differ from those of unseen items",
    claim=claim_not_unseen,
    note=note_not_unseen,
    n_notes=1,
)
IDS = Attacker(
    name="ids",
    uses="the item ids that a client sends: its history",
    claim=claim_sent,
    counts=True,
)

ON_FPL = (BIAS_SIGN, FACTOR_SIGN, PAIRING, FREQUENCY, COMPLEMENT, NEVER_DOWN)
ON_FCF = (FCF,)
ON_IDS = (IDS,)
