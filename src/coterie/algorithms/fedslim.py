"""FedSLIM: SLIM, computed exactly from one message of every client.

Ning, Karypis. SLIM: sparse linear methods for top-N recommender systems. ICDM 2011. Coordinate
descent (`local/sparse_weights.py`) needs the histories in a single sum over users:

    each client sends once              h h^T, to be added up
    S descends, from G = sum h h^T      min_w  1/2 |x_j - X w|^2 + reg_l2 / 2 |w|^2 + reg_l1 |w|_1,
                                        w >= 0,  w_j = 0,  for every item j

`pair_sums.py` has the rounds: who sends when, and what.

What a client receives. The weights, to score for itself: 8 bytes for each that is not zero, far
fewer than items^2. Nobody learns anything from that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from coterie.algorithms import pair_sums
from coterie.algorithms.algorithm import Algorithm, score_history
from coterie.algorithms.local.sparse_weights import SparseWeights, counts_from_pairs, solve
from coterie.algorithms.pair_sums import PairSums, PairSumSettings
from coterie.core.weak_cache import WeakCache
from coterie.federated.federation import ON_CLIENTS, Federation, World
from coterie.models.neighbours import PrivateItemNeighbours, transposed
from coterie.types import Floats, Ints, Longs


class FedSLIM(SparseWeights, PairSumSettings):
    length_exponent: ClassVar[float] = 0.0
    """SLIM counts: a history is not divided by its length."""


def init(world: World[FedSLIM]) -> PairSums:
    pair_sums.check_sizes(world, "FedSLIM", gigabytes(world.n_items))
    return pair_sums.no_sums(world)


def gigabytes(n_items: int) -> float:
    """GiB of the sums before a round, of the round and after it, which are there at one time.

    Descent needs less: the sums, and a table of all counts.
    """
    return 3 * 4 * n_items**2 / 2**30


# S descends


def model(world: World[FedSLIM], state: PairSums) -> PrivateItemNeighbours:
    solved = _solved.get(state.pairs)
    if solved is None or solved[0] != world.settings:
        solved = world.settings, item_weights(world, state)
        _solved.put(state.pairs, solved)
    offsets, followers, weights = solved[1]
    return PrivateItemNeighbours(offsets, followers, weights, ON_CLIENTS)


_solved = WeakCache()
"""(settings, weights) of the last sums: an evaluation asks for the model several times."""


def item_weights(world: World[FedSLIM], state: PairSums) -> tuple[Longs, Ints, Floats]:
    """The weights in rows of the items that have one: offsets, the items they are for, weights."""
    counts = counts_from_pairs(state.pairs, world.n_items)
    # A row of counts adds up to the lengths of its users' histories.
    load = np.concatenate([[0], np.cumsum(counts.table.sum(axis=1, dtype=np.int64))])
    return transposed(*solve(counts, load, world.settings))


EXCHANGE = replace(pair_sums.EXCHANGE, private_sum=None)

ALGORITHM = Algorithm(
    "SLIM computed exactly from one message of every client",
    FedSLIM,
    Federation(
        init=init,
        sample=pair_sums.sample,
        exchanges=(EXCHANGE,),
        model=model,
        final_solve=lambda world: (
            f"FedSLIM: the server solves for the weights of {world.n_items:,} items"
        ),
        client_model=pair_sums.own_histories,
        fixed_users=pair_sums.FIXED_USERS,
        not_private=lambda world: (
            "SLIM counts pairs, and a long history adds more to the counts than noise hides"
        ),
    ),
    state=PairSums,
    kernels=("cooccurrence", "slim", "sums", "clusters"),
    paper="Ning and Karypis 2011",
    item_based=True,
    score_new_user=score_history,
    in_the_clear="its whole history",
)
