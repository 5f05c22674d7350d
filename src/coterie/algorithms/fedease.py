"""FedEASE: EASE, computed exactly from one message of every client.

Steck. Embarrassingly shallow autoencoders for sparse data. WWW 2019. The closed form
(`local/cooccurrence.py`) needs the histories in a single sum over users:

    each client sends once              h h^T / n^(2 p), to be added up
    S inverts                           G = sum h h^T / n^(2 p)
                                        P = (G + reg diag(G)^nu)^-1
                                        B = -P / diag(P), zero on the diagonal

`pair_sums.py` has the rounds: who sends when, and what.

What a client receives. All of B, to score for itself: items^2 numbers, and nobody learns anything.
Or only the rows of the items of its history, a fraction of that, which tells the server the
history.
"""

from __future__ import annotations

from coterie.algorithms import pair_sums
from coterie.algorithms.algorithm import Algorithm, score_history
from coterie.algorithms.local.cooccurrence import ItemPairs, gigabytes, item_weights
from coterie.algorithms.pair_sums import PairSums, PairSumSettings
from coterie.core.weak_cache import WeakCache
from coterie.federated.federation import ON_CLIENTS, Federation, World
from coterie.models.linear import PrivateItemWeights


class FedEASE(ItemPairs, PairSumSettings):
    """Settings of FedEASE: those of the closed form, and those of the rounds."""


def init(world: World[FedEASE]) -> PairSums:
    pair_sums.check_sizes(world, "FedEASE", gigabytes(world.n_items))
    return pair_sums.no_sums(world)


# S inverts


def model(world: World[FedEASE], state: PairSums) -> PrivateItemWeights:
    settings = world.settings
    inverted = _inverted.get(state.pairs)
    if inverted is None or inverted[0] != settings:
        scale = pair_sums.precision(world).scale
        inverted = settings, item_weights(state.pairs, world.n_items, scale, settings)
        _inverted.put(state.pairs, inverted)
    return PrivateItemWeights(inverted[1], ON_CLIENTS)


_inverted = WeakCache()
"""(settings, B) of the last sums: an evaluation asks for the model several times."""


ALGORITHM = Algorithm(
    "EASE computed exactly from one message of every client",
    FedEASE,
    Federation(
        init=init,
        sample=pair_sums.sample,
        exchanges=(pair_sums.EXCHANGE,),
        model=model,
        final_solve=lambda world: (
            f"FedEASE: the server inverts a matrix of {world.n_items:,} items on one thread"
        ),
        client_model=pair_sums.own_histories,
        fixed_users=pair_sums.FIXED_USERS,
    ),
    state=PairSums,
    kernels=("cooccurrence", "sums", "clusters"),
    paper="Steck 2019",
    item_based=True,
    score_new_user=score_history,
    in_the_clear="its whole history",
)
