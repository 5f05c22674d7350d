"""What distributed noise costs a client of FedEASE under `secagg`, MovieLens-100K. Prints JSON.

    python benchmarks/privacy_costs.py

Seconds of one client among 100, from its history to its last message, without noise and with its
share of it. Other clients are on other nodes. Medians of repetitions that take turns.
Use one thread: OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import statistics

import numpy as np
from secagg_costs import Clients

import coterie
from coterie.algorithms import pair_sums
from coterie.algorithms.fedease import FedEASE
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.federated import trainer
from coterie.federated.federation import World
from coterie.federated.privacy.noise import plan_of
from coterie.federated.secagg.group import Group
from coterie.federated.secagg.group_member import GroupMember, GroupTerms
from coterie.federated.secagg.group_node import with_noise
from coterie.federated.secagg.words import Words, to_words
from coterie.types import Longs, Rows

GROUP = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--epsilon", type=float, default=5.0)
    given = parser.parse_args()
    training = split(coterie.load("ml-100k"), "leave-one-out", 0.0, seed=0).training()
    settings = FedEASE(
        epsilon=given.epsilon, noise="distributed", secure_aggregation="secagg", participation=1.0
    )
    world = trainer.world_of(training, settings, 0)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(given.repeat):
        for noisy in seconds:
            seconds[noisy].append(seconds_of_client(world, training, noisy))
    without, with_noise_ = (statistics.median(seconds[noisy]) for noisy in (False, True))
    print(
        json.dumps(
            {
                "client without noise, s": round(without, 3),
                "with its share of noise, s": round(with_noise_, 3),
                "ratio": round(with_noise_ / without, 2),
                "bar": 2.0,
            }
        )
    )


def seconds_of_client(world: World[FedEASE], training: TrainingSet, noisy: bool) -> float:
    plan = plan_of(world, pair_sums.EXCHANGE)
    assert plan is not None
    history = training.positives.of_users(np.zeros(1, np.int32))
    length = len(flat(world, history))
    terms = GroupTerms("a benchmark", tuple(range(GROUP)), 50, 2, length, plan.word, b"")
    clients = Clients(terms)
    zeros = np.zeros(length, np.int64)
    for member in clients.members.values():
        member.vector = lambda: to_words(zeros, plan.word)
    timed = clients.members[0]
    timed.vector = lambda: vector_of(world, training, timed, noisy)
    Group(terms, clients.send, None).aggregate()
    return clients.seconds


def vector_of(
    world: World[FedEASE], training: TrainingSet, member: GroupMember, noisy: bool
) -> Words:
    history = training.positives.of_users(np.zeros(1, np.int32))
    plan = plan_of(world, pair_sums.EXCHANGE)
    assert plan is not None
    vector = to_words(flat(world, history), plan.word)
    return with_noise(world, pair_sums.EXCHANGE, member, vector) if noisy else vector


def flat(world: World[FedEASE], history: Rows) -> Longs:
    sums = pair_sums.sums_of(world, history)
    return np.concatenate([part.ravel() for _, part in sorted(sums.items())])


if __name__ == "__main__":
    main()
