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

import math

from threadpoolctl import threadpool_limits

from coterie.algorithms import pair_sums, private_pairs
from coterie.algorithms.algorithm import Algorithm, score_history
from coterie.algorithms.local.batched import find_device
from coterie.algorithms.local.cooccurrence import ItemPairs, gigabytes, item_weights
from coterie.algorithms.pair_sums import PairSums, PairSumSettings
from coterie.core.weak_cache import WeakCache
from coterie.errors import ConfigError
from coterie.federated.federation import ON_CLIENTS, Federation, World
from coterie.federated.privacy.plan import plan_for
from coterie.federated.privacy.settings import noise_kernels
from coterie.models.linear import PrivateItemWeights
from coterie.types import Floats


class FedEASE(ItemPairs, PairSumSettings):
    """Settings of FedEASE: those of the closed form, and those of the rounds."""


def init(world: World[FedEASE]) -> PairSums:
    check_private(world.settings)
    if world.settings.device == "cuda":
        find_device("cuda")
    pair_sums.check_sizes(world, "FedEASE", gigabytes(world.n_items))
    return pair_sums.no_sums(world)


def check_private(settings: FedEASE) -> None:
    """Refuse settings that a privacy budget rules out."""
    if settings.epsilon is None:
        return
    if settings.length_exponent < 0.5:
        raise ConfigError(
            f"setting 'length_exponent' is {settings.length_exponent:g}; under a privacy budget "
            "(epsilon) expected 0.5 or more: below it, long histories add more to the sum than "
            "noise hides. Set length_exponent=0.5."
        )
    for name in ("reg_exponent", "popularity_exponent"):
        if getattr(settings, name):
            raise ConfigError(
                f"setting {name!r} is {getattr(settings, name):g}; under a privacy budget "
                f"(epsilon) expected 0: the popularity of rare items is noise. Set {name}=0."
            )


# S inverts


def model(world: World[FedEASE], state: PairSums) -> PrivateItemWeights:
    settings = world.settings
    inverted = _inverted.get(state.pairs)
    if inverted is None or inverted[0] != settings:
        inverted = settings, weights_of(world, state)
        _inverted.put(state.pairs, inverted)
    return PrivateItemWeights(inverted[1], ON_CLIENTS)


def weights_of(world: World[FedEASE], state: PairSums) -> Floats:
    """B; from noisy sums, of what noise does not explain."""
    plan = plan_for(world, pair_sums.PRIVATE_SUM)
    if plan is None:
        scale = pair_sums.precision(world).scale
        return item_weights(state.pairs, world.n_items, scale, world.settings)
    scales = private_pairs.scales(plan, world.n_users, world.n_items)
    # At least the noise of one draw: before the first round there is none, and no model either.
    sigma = math.sqrt(max(int(state.noise[0]), 1)) * (1 << plan.log2_sigma)
    noisy = private_pairs.noisy_sums(state.pairs, state.items, scales, sigma)
    with threadpool_limits(1, "blas"):
        return private_pairs.item_weights(noisy, world.settings.reg, world.settings.device)


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
            f"FedEASE: the server inverts a matrix of {world.n_items:,} items on "
            + ("one thread" if world.settings.device == "cpu" else "the GPU")
        ),
        client_model=pair_sums.own_histories,
        fixed_users=pair_sums.FIXED_USERS,
    ),
    state=PairSums,
    kernels=lambda settings: ("cooccurrence", "sums", "clusters", *noise_kernels(settings)),
    paper="Steck 2019",
    item_based=True,
    score_new_user=score_history,
    in_the_clear="its whole history",
)
