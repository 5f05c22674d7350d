"""Membership and interaction inference against a run's model, with its noise and without any.

An attacker knows a user's history and asks whether the user was in training (membership), or knows
all of it but one item and asks whether that interaction was (interaction). Two models are trained
on disjoint halves of the data, so that each half is the other's reference:

    loss         membership: half of the user's items, the query, rank the other half. They rank
                 higher in the model that was trained on the user
    gradient     membership: the first released sum of either half, in the direction of what the
                 user adds to it
    rank shift   interaction: the item ranks higher, given the user's other items, in the model
                 that was trained on the interaction

The statistic of a user in one half is positive evidence there and negative evidence in the other
half, so that every user counts as a member once and as a non-member once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np

from coterie.algorithms.algorithm import Algorithm
from coterie.attacks.privacy_audit import contribution, drawn_noise
from coterie.core import streams
from coterie.core.progress import SILENT, Progress
from coterie.core.settings import Settings
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.experiments.training import fit
from coterie.federated.aggregation import Limits, aggregate_on_node
from coterie.federated.federation import (
    AnyExchange,
    AnyFederation,
    AnyWorld,
    Exchange,
    Federation,
)
from coterie.federated.privacy import noise
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context, world_of
from coterie.models.new_user import NewUser
from coterie.models.recommender import Recommender
from coterie.types import Bools, Doubles, Ints, JsonObject, Rows

MOST_TARGETS = 1000
"""Users or interactions that are attacked."""
MOST_GRADIENTS = 200
"""Users whose contribution to a sum is computed."""
FALSE_POSITIVE_RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5)
"""Where the ROC curve is reported."""
WITHOUT_BUDGET = {"epsilon": None, "delta": None, "noise": "central", "sampling": "fixed"}


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """How well an attacker tells members from non-members."""

    attacker: str
    noise: str
    targets: int
    auc: float
    """Area under the ROC curve; 0.5 is a guess."""
    roc: tuple[tuple[float, float], ...]
    """(false positive rate, true positive rate)."""

    @property
    def tpr(self) -> float:
        """True positive rate at a false positive rate of 0.1 %."""
        return self.roc[0][1]

    def as_json(self) -> JsonObject:
        return asdict(self)


def infer(
    chosen: Algorithm, settings: Settings, training: TrainingSet, seed: int, progress: Progress
) -> list[InferenceResult]:
    """All attackers, with the noise of the settings and without any."""
    found = []
    for changes in ({"noise_source": "system"}, WITHOUT_BUDGET):
        known = {key: value for key, value in changes.items() if key in type(settings).model_fields}
        label = "none" if changes is WITHOUT_BUDGET else "as in the run"
        attacks = _attacks(chosen, settings.model_copy(update=known), training, seed)
        for name, attack in attacks.items():
            with progress.task(f"Attacking by {name}, noise: {label}", None):
                found.append(scored(name, label, attack()))
    return found


def _attacks(
    chosen: Algorithm, settings: Settings, training: TrainingSet, seed: int
) -> dict[str, Callable[[], Doubles]]:
    attack = Halves(chosen, settings, training, seed)
    attacks = {"loss": attack.by_loss, "rank shift": attack.by_rank_shift}
    if isinstance(chosen.train, Federation):
        attacks["gradient"] = attack.by_gradient
    return attacks


def scored(attacker: str, label: str, members: Doubles) -> InferenceResult:
    """From the statistics of members; those of non-members are their opposites."""
    non_members = np.sort(-members)
    below = np.searchsorted(non_members, members, side="left")
    not_above = np.searchsorted(non_members, members, side="right")
    auc = float((below + not_above).mean()) / (2 * len(members))
    roc = tuple(
        (rate, _true_positives(members, non_members, rate)) for rate in FALSE_POSITIVE_RATES
    )
    return InferenceResult(attacker, label, len(members), auc, roc)


def _true_positives(members: Doubles, non_members: Doubles, rate: float) -> float:
    """True positive rate at the threshold that no more than a share of the non-members exceeds."""
    threshold = np.quantile(non_members, 1 - rate, method="higher")
    return float(np.mean(members > threshold))


@dataclass(frozen=True, slots=True)
class Halves:
    """Training data that is split in two, and what models of either half show."""

    chosen: Algorithm
    settings: Settings
    training: TrainingSet
    seed: int

    def by_loss(self) -> Doubles:
        """Of each user: how much higher the target items rank where the user was in training."""
        in_first = self._coins("members", self.training.n_users)
        first, second = (self._model(self._of_users(which)) for which in (in_first, ~in_first))
        statistics = []
        for user in self._targets(np.flatnonzero(self.training.positives.counts >= 4)).tolist():
            items = self.training.positives.of(user)
            query = self._coins("query", len(items), user)
            if query.all() or not query.any():
                continue
            shift = self._ranks(first, items[query]) - self._ranks(second, items[query])
            mean = float(shift[items[~query]].mean())
            statistics.append(mean if in_first[user] else -mean)
        return np.array(statistics)

    def by_rank_shift(self) -> Doubles:
        """Of each interaction: how much higher its item ranks where it was in training."""
        n = len(self.training.positives.items)
        in_first = self._coins("interactions", n)
        first, second = (self._model(self._of_rows(which)) for which in (in_first, ~in_first))
        users = self.training.users
        enough = self.training.positives.counts[users] >= 2
        statistics = []
        for place in self._targets(np.flatnonzero(enough)).tolist():
            items = self.training.positives.of(int(users[place]))
            item = int(self.training.positives.items[place])
            others = items[items != item]
            shift = float(self._ranks(first, others)[item] - self._ranks(second, others)[item])
            statistics.append(shift if in_first[place] else -shift)
        return np.array(statistics)

    def by_gradient(self) -> Doubles:
        """Of each user: the difference of released sums, in the direction of what the user adds."""
        in_first = self._coins("members", self.training.n_users)
        difference = self._released(self._of_users(in_first))
        difference -= self._released(self._of_users(~in_first))
        counts = self.training.positives.counts
        targets = self._targets(np.flatnonzero(counts > 0))[:MOST_GRADIENTS]
        federation, exchange, world = self._first_exchange(self.training)
        statistics = []
        for user in targets.tolist():
            items = self.training.positives.of(user)
            added = contribution(federation, exchange, world, self.training, items)
            length = float(np.linalg.norm(added.astype(np.float64)))
            if length:
                along = float(difference @ added) / length
                statistics.append(along if in_first[user] else -along)
        return np.array(statistics)

    def _first_exchange(self, training: TrainingSet) -> tuple[AnyFederation, AnyExchange, AnyWorld]:
        federation = self.chosen.train
        assert isinstance(federation, Federation)
        exchange = federation.exchanges[0]
        assert isinstance(exchange, Exchange)
        world = world_of(training, federation_settings(self.settings), self.seed, federation)
        return federation, exchange, world

    def _released(self, training: TrainingSet) -> Doubles:
        """The first sum over the members of a half, as whoever receives it sees it."""
        federation, exchange, world = self._first_exchange(training)
        engine = LocalEngine.over(world, training, 1)
        node = engine.nodes[0]
        state = federation.init(world)
        members = np.flatnonzero(world.members).astype(np.int32)
        message = exchange.broadcast(world, state, members, 0)
        private = federation.init_clients(world, node)
        rows = {name: column[members] for name, column in private.items()}
        limits = Limits.of(world, exchange, state)
        message = replace(message, private_state=rows)
        sums = aggregate_on_node(world, exchange, message, node, limits).sums
        assert exchange.secure_sum is not None
        table = exchange.secure_sum.to_table(world, sums)
        vector = np.concatenate([part.ravel() for _, part in sorted(table.items())])
        plan = noise.plan_of(world, exchange)
        if plan is not None:
            vector = vector + drawn_noise(world, exchange, plan, 1, len(vector))[0]
        return vector.astype(np.float64)

    def _model(self, training: TrainingSet) -> Recommender:
        return fit(self.chosen, training, self.settings, Context(self.seed, SILENT))

    def _ranks(self, model: Recommender, items: Ints) -> Doubles:
        """(items,) the position of every item among all, from 0 (worst) to 1, given a history."""
        assert self.chosen.score_new_user is not None
        texts = self.training.item_texts
        titles = () if texts is None else [str(title) for title in texts[items]]
        user = NewUser(items=items, titles=titles)
        scores = self.chosen.score_new_user(model, user, self.settings)
        order = np.argsort(scores, kind="stable")
        ranks = np.empty(len(scores))
        ranks[order] = np.arange(len(scores)) / max(len(scores) - 1, 1)
        return ranks

    def _of_users(self, which: Bools) -> TrainingSet:
        return self._of_rows(which[self.training.users])

    def _of_rows(self, which: Bools) -> TrainingSet:
        """Some of the interactions; all users and items stay."""
        before = self.training.positives
        rows = Rows.build(self.training.users[which], before.items[which], self.training.n_users)
        return replace(self.training, positives=rows, excluded=rows, ratings=None)

    def _coins(self, purpose: str, n: int, *indices: int) -> Bools:
        tossed: Bools = streams.at(self.seed, f"inference {purpose}", *indices).random(n) < 0.5
        return tossed

    def _targets(self, candidates: np.ndarray) -> np.ndarray:
        generator = streams.at(self.seed, "inference targets")
        return np.sort(generator.permutation(candidates)[:MOST_TARGETS])
