"""A loaded model that answers requests: ids are looked up at once, and answers are JSON text."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from coterie.algorithms import registry
from coterie.errors import ConfigError, DataError, UserError
from coterie.evaluation.ranking import BLOCK_CELLS, best_items, best_lists, finite
from coterie.experiments.finished_run import NOTHING, Run
from coterie.models.recommender import Recommender
from coterie.types import Floats, Ids, Ints, JsonObject, Rows

RUN = "run"
NODE_STORE = "node store"
QUICK_SECONDS = 0.002
"""A recommendation that takes less is computed in the event loop; a thread would cost more."""
SHOWN = 80
"""Characters of a value that an error message repeats."""


class UnknownId(UserError):
    """A user or item that the model does not have.

    Unlike UnknownName it lists no other ids: they belong to other users, and comparing thousands
    of them would take longer than a recommendation.
    """


@dataclass(frozen=True, slots=True)
class ServedModel:
    run: Run
    recommender: Recommender
    source: str
    """RUN, or NODE_STORE: then only the node's own users are served."""
    version: str
    """Fingerprint of the model's files."""
    trained_at: datetime | None
    """When the model was written; None where a node's store does not tell."""
    loaded_at: datetime
    user_index: dict[str, int]
    item_index: dict[str, int]
    item_json: list[str]
    """The JSON object of every item up to its score."""
    serves_new_users: bool
    quick: bool
    """Whether a recommendation takes less than QUICK_SECONDS."""

    @classmethod
    def of(cls, run: Run, source: str, version: str, trained_at: datetime | None) -> ServedModel:
        """Prepare a run for requests; an error if it cannot recommend."""
        known = run.catalogue
        n_items = len(known.item_ids)
        prefixes = [
            f'{{"item": {json.dumps(known.id_of(k))}, "text": {json.dumps(known.text_of(k))}, '
            '"score": '
            for k in range(n_items)
        ]
        model = cls(
            run=run,
            recommender=run.recommender,
            source=source,
            version=version,
            trained_at=trained_at,
            loaded_at=datetime.now(UTC),
            user_index=_index(known.user_ids),
            item_index=_index(known.item_ids),
            item_json=prefixes,
            serves_new_users=source == RUN and serves_histories(run),
            quick=False,
        )
        return cls._timed(model)

    @classmethod
    def _timed(cls, model: ServedModel) -> ServedModel:
        """The model after a first recommendation: kernels are loaded, and its shape is checked."""
        if not model.user_index or not model.item_index:
            raise DataError(
                f"the model has {len(model.user_index):,} users and {len(model.item_index):,} "
                "items; expected at least one of each. Train on other data."
            )
        first = np.zeros(1, np.int32)
        shape = model.recommender.score(first).shape
        if shape != (1, len(model.item_index)):
            raise DataError(
                f"the model scores {shape[-1]:,} items, but its catalogue has "
                f"{len(model.item_index):,}; expected files of one run. Copy all of them."
            )
        model.for_users(np.zeros(2, np.int32), 1, exclude_seen=True)
        if model.serves_new_users:
            model.for_history(NOTHING, 1, exclude_seen=True)
        began = time.perf_counter()
        model.for_user(0, 10, exclude_seen=True)
        return replace(model, quick=time.perf_counter() - began < QUICK_SECONDS)

    @property
    def algorithm(self) -> str:
        return str(self.run.result["algorithm"])

    def about(self) -> JsonObject:
        """What `GET /model` replies."""
        return {
            "version": self.version,
            "algorithm": self.algorithm,
            "dataset": self.run.result.get("dataset"),
            "source": self.source,
            "trained_at": self.trained_at and self.trained_at.isoformat(timespec="seconds"),
            "loaded_at": self.loaded_at.isoformat(timespec="seconds"),
            "users": len(self.user_index),
            "items": len(self.item_index),
            "serves_new_users": self.serves_new_users,
        }

    # Ids to indices

    def users(self, ids: Iterable[str | int]) -> Ints:
        """The indices of users; UnknownId for the first that the model does not have."""
        remedy = "Check the id."
        if self.serves_new_users:
            remedy = "For a new user, send a history: POST /recommendations."
        return _indices(self.user_index, ids, "user", remedy)

    def items(self, ids: Iterable[str | int]) -> Ints:
        """The indices of items; UnknownId for the first that the model does not have."""
        return _indices(self.item_index, ids, "item", "Leave it out, or check the id.")

    def history(self, ids: Iterable[str | int]) -> Ints:
        """The indices of a new user's items, ascending and distinct."""
        if self.source != RUN:
            raise ConfigError(
                f"the model comes from a {self.source}, which recommends to its own "
                f"{len(self.user_index):,} users only; expected a user. "
                "Send GET /recommendations?user=ID."
            )
        return np.unique(self.items(ids))

    # Recommendations, each a JSON array

    def for_user(self, user: int, n: int, exclude_seen: bool) -> str:
        """The n best items for one user, as `coterie recommend --user`."""
        one = np.array([user], np.int32)
        if not self.recommender.serves(one)[0]:
            return "[]"
        seen = self.run.catalogue.seen.of(user) if exclude_seen else NOTHING
        return self._best(self.recommender.score(one)[0], seen, n)

    def for_users(self, users: Ints, n: int, exclude_seen: bool) -> list[str]:
        """The n best items for each of many users, with one matrix product per block of them."""
        n_items = len(self.item_index)
        step = max(1, BLOCK_CELLS // n_items)
        lists: list[str] = []
        for first in range(0, len(users), step):
            block = users[first : first + step]
            lists += self._block(block, min(n, n_items), exclude_seen)
        return lists

    def _block(self, users: Ints, n: int, exclude_seen: bool) -> list[str]:
        seen = self.run.catalogue.seen
        if not exclude_seen:
            seen = Rows(np.zeros(len(seen.offsets), np.int64), NOTHING)
        items, scores = best_lists(self.recommender, users, seen, n)
        return [
            self._as_json(row[row >= 0].tolist(), its_scores.tolist())
            for row, its_scores in zip(items, scores, strict=True)
        ]

    def for_history(
        self,
        history: Ints,
        n: int,
        exclude_seen: bool,
        features: Mapping[str, object] | None = None,
    ) -> str:
        """The n best items for a new user, as `coterie recommend --history`."""
        scores = self.run.score_history(history, features or {})
        return self._best(scores, history if exclude_seen else NOTHING, n)

    def similar(self, item: int, n: int) -> str:
        """The n items most similar to an item, as `coterie similar-items`."""
        scores = self.run.model.similar_items(item)
        if scores is None:
            raise ConfigError(
                f"the algorithm is {self.algorithm}, whose model does not compare items; expected "
                "one with item rows, such as als, bpr, gmf or fedfast. Serve a run of one."
            )
        return self._best(finite(scores), np.array([item], np.int32), n)

    def _best(self, scores: Floats, seen: Ints, n: int) -> str:
        best = best_items(scores, seen, n)
        return self._as_json(best.tolist(), scores[best].tolist())

    def _as_json(self, items: Sequence[int], scores: Sequence[float]) -> str:
        prefix = self.item_json
        # Lists of users are shorter than their scores where few items are left.
        parts = [f"{prefix[k]}{score!r}}}" for k, score in zip(items, scores, strict=False)]
        return f"[{', '.join(parts)}]"


def serves_histories(run: Run) -> bool:
    explicit = run.result.get("feedback") == "explicit"
    return not explicit and registry.serves_new_users(str(run.result["algorithm"]))


def _index(ids: Ids) -> dict[str, int]:
    """Index by id; a whole number and its text are the same id."""
    return {str(name): k for k, name in enumerate(ids.tolist())}


def _indices(index: Mapping[str, int], ids: Iterable[str | int], kind: str, remedy: str) -> Ints:
    found = []
    for name in ids:
        k = index.get(str(name))
        if k is None:
            raise UnknownId(
                f"unknown {kind} {shown(name)}; expected one of the model's {len(index):,} "
                f"{kind}s. {remedy}"
            )
        found.append(k)
    return np.array(found, np.int32)


def shown(value: object) -> str:
    """A value in an error message, of bounded length."""
    text = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
