"""What an attack did, in numbers: by hand, on a small synthetic dataset, and on MovieLens-100K."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from coterie.attacks.poisoning import Colluders, attack
from coterie.attacks.poisoning.measures import measure, target_ranks, thirds
from coterie.attacks.poisoning.replay import Outcome, attack_prepared
from coterie.attacks.poisoning.report import NOT_SELECTED, notes, page, rows
from coterie.core.progress import SILENT
from coterie.errors import ConfigError
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import Prepared, prepare
from coterie.models.recommender import Recommender, pick
from coterie.types import Floats, Ints

SMALL = {
    "n_users": 120,
    "n_items": 100,
    "mean_interactions": 25,
    "n_groups": 3,
    "popularity_prior": 0,
}
LEARNING = {"rounds": 40, "participation": 0.5}


def prepared(algorithm: str, dataset: str = "synthetic", **settings: Any) -> Prepared:
    small = SMALL if dataset == "synthetic" else {}
    chosen = {"algorithm": algorithm, "dataset": dataset}
    return prepare(Experiment.of(chosen | small | settings), None, SILENT)


def outcome(
    ready: Prepared, name: str, share: float = 0.01, target: str | None = None, **settings: Any
) -> Outcome:
    return attack_prepared(ready, attack(name, settings), share=share, target=target)


@dataclass(frozen=True, slots=True)
class FixedOrder(Recommender):
    """Scores every item by its index: the last item is everybody's first."""

    kind: ClassVar[str] = "fixed order"
    n_items: int

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        scores = np.tile(np.arange(self.n_items, dtype=np.float32), (len(users), 1))
        return pick(scores, items)


# ---- by hand


def test_the_target_is_ranked_among_unseen_items():
    parts = prepared("fedavg").parts
    n_items = parts.train.n_items
    model = FixedOrder(n_items)
    target = n_items - 5
    nobody = np.empty(0, np.int32)
    ranks = target_ranks(model, parts, nobody, target)
    seen = parts.seen()
    expected = [
        5 - np.count_nonzero(seen.of(user) > target)
        for user in range(parts.train.n_users)
        if len(parts.train.rows.of(user)) and target not in seen.of(user)
    ]
    assert ranks.tolist() == expected


def test_exposure_leaves_out_colluders_and_those_who_know_the_target():
    ready = prepared("fedavg")
    model = FixedOrder(ready.training.n_items)
    first = ready.training.n_items - 1
    colluders = Colluders.of(ready.training, share=0.1, target=first)
    everybody = measure(model, ready.parts, ready.candidates, colluders.users, first)
    assert everybody.exposure == 1
    assert everybody.target_rank == 1
    nobody = measure(model, ready.parts, ready.candidates, colluders.users, 0)
    assert nobody.exposure == 0


def test_thirds_have_the_same_size():
    groups = thirds(np.array([5, 1, 9, 1, 7, 3]))
    assert [np.flatnonzero(group).tolist() for group in groups] == [[1, 3], [0, 5], [2, 4]]


# ---- on a small synthetic dataset


def test_noise_of_one_user_ruins_fedfast():
    found = outcome(prepared("fedfast", **LEARNING), "noise")
    assert found.about["attackers"] == 1
    assert found.clean.hr - found.attacked.hr > 0.2


def test_one_user_promotes_a_cold_item_in_fedfast():
    found = outcome(prepared("fedfast", **LEARNING), "pieck")
    assert found.about["attackers"] == 1
    assert found.clean.exposure < 0.05
    assert found.attacked.exposure > 0.2
    assert found.attacked.target_rank < found.clean.target_rank


def test_the_largest_sample_count_takes_over_fedavg():
    found = outcome(prepared("fedavg", **LEARNING), "count-inflation", share=0.03)
    assert found.clean.hr - found.attacked.hr > 0.05


def test_a_takeover_is_selected_in_every_round():
    found = outcome(prepared("fedfast", **LEARNING), "takeover", share=0.03)
    clean, attacked = found.selected
    assert clean < 100
    assert attacked == found.about["attackers"] * LEARNING["rounds"]


def test_an_outcome_is_a_table_and_a_page():
    found = outcome(prepared("fedavg", rounds=3), "free-rider", share=0.05)
    table = rows(found)
    assert table[0][0] == "HR@10"
    assert table[0][1] == f"{found.clean.hr:.4f}"
    assert "least active, attacked" in page(found)


def test_an_attack_that_never_happened_says_so():
    found = outcome(prepared("fedavg", rounds=3), "free-rider", share=0.05)
    assert found.selected[1] > 0
    assert NOT_SELECTED not in notes(found)
    assert notes(replace(found, selected=(0, 0)))[0] == NOT_SELECTED


def test_centralised_runs_have_no_clients():
    with pytest.raises(ConfigError, match="centralised; expected a federated one"):
        outcome(prepared("popular"), "noise")


# ---- on MovieLens-100K


@pytest.mark.long
def test_noise_of_one_user_of_943_ruins_fedfast(real_data):
    real_data("ml-100k", "u.data", "ml-100k.inter")
    found = outcome(prepared("fedfast", "ml-100k"), "noise", share=1 / 943)
    assert found.about["attackers"] == 1
    assert found.clean.hr > 0.77
    assert found.attacked.hr < 0.5


@pytest.mark.long
def test_a_sample_count_of_one_user_wrecks_fedavg(real_data):
    real_data("ml-100k", "u.data", "ml-100k.inter")
    found = outcome(prepared("fedavg", "ml-100k"), "count-inflation", share=1 / 943)
    assert found.clean.hr > 0.77
    assert found.attacked.hr < 0.5


@pytest.mark.long
def test_one_user_of_943_promotes_a_cold_item_in_fedfast(real_data):
    real_data("ml-100k", "u.data", "ml-100k.inter")
    found = outcome(prepared("fedfast", "ml-100k"), "pieck", share=1 / 943)
    assert found.clean.exposure == 0
    assert found.attacked.exposure > 0.5
