"""A finished run: its result and its model, addressed by external ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coterie.algorithms import registry
from coterie.core import plugins
from coterie.core.progress import SILENT, Progress
from coterie.core.settings import Settings
from coterie.data.ids import find
from coterie.data.item_titles import read_titles
from coterie.errors import ConfigError
from coterie.evaluation.evaluation import Evaluation
from coterie.evaluation.metric_names import MetricValues
from coterie.evaluation.ranking import best_items, finite
from coterie.experiments import reasons, recommendations, run_folder
from coterie.experiments.reasons import Explainer, Reason
from coterie.experiments.run_folder import Catalogue
from coterie.models.new_user import NewUser
from coterie.models.popularity_prior import PopularityPrior, recommender
from coterie.models.recommender import Recommender
from coterie.types import Floats, Ints, JsonObject

if TYPE_CHECKING:
    import pandas as pd

NOTHING: Ints = np.empty(0, np.int32)
UNEVALUATED: JsonObject = {"metrics": {}, "full": {}, "headline": []}
"""The part of a result that an unfinished run lacks."""


class Recommendation(NamedTuple):
    item: object
    score: float
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run with its model."""

    result: JsonObject
    model: Recommender
    catalogue: Catalogue
    evaluation: Evaluation | None = None
    curve: list[JsonObject] = field(default_factory=list)
    prior: PopularityPrior | None = None
    """Popularity, where it counts in the scores that the model's become."""

    @classmethod
    def load(cls, folder: str | Path, models: Sequence[type[Recommender]] = ()) -> Run:
        """Load a finished run, also one that an earlier version wrote.

        `models` are classes of your own that no installed package adds.
        """
        place = Path(folder)
        result = run_folder.read_result(place)
        with plugins.provided(plugins.MODELS, {model.kind: model for model in models}):
            model, catalogue = run_folder.read_model(place)
        curve = run_folder.read_metrics(place)
        return cls(result, model, catalogue, curve=curve, prior=run_folder.read_prior(place))

    @classmethod
    def peek(cls, folder: str | Path) -> Run:
        """Load a run that may still be training: the model of its last checkpoint, no result."""
        place = Path(folder)
        if (place / "result.json").exists() or not (place / "config.yaml").exists():
            return cls.load(place)
        config = run_folder.read_config(place)
        known = ("algorithm", "dataset", "protocol", "seed", "feedback")
        result = {key: config[key] for key in known} | {"settings": config} | UNEVALUATED
        result["dataset"] = config.get("dataset_name") or config["dataset"]
        model, catalogue = run_folder.read_model(place)
        curve = run_folder.read_metrics(place)
        return cls(result, model, catalogue, curve=curve, prior=run_folder.read_prior(place))

    def __repr__(self) -> str:
        r = self.result
        metrics = ", ".join(
            f"{name} {r['metrics'][name]:.4f}" for name in r["headline"] if name in r["metrics"]
        )
        return f"Run({r['algorithm']} on {r['dataset']}, {r['protocol']}: {metrics})"

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics under the protocol."""
        return MetricValues(self.result["metrics"])

    @property
    def full(self) -> dict[str, float]:
        """Metrics under full ranking."""
        return MetricValues(self.result["full"])

    @property
    def recommender(self) -> Recommender:
        """What recommends: the model, with popularity where it counts."""
        return recommender(self.model, self.prior)

    @property
    def settings(self) -> Settings:
        """The settings of the algorithm."""
        kind = registry.algorithm(self.result["algorithm"]).settings
        # A config holds every setting of a run; those of the algorithm are picked out.
        known = kind.model_fields
        return kind.of({k: v for k, v in self.result.get("settings", {}).items() if k in known})

    def score(self, user: object, items: Sequence[object]) -> list[float]:
        """Scores of items for a user, by external ids."""
        users = np.array([find(self.catalogue.user_ids, user, "user")], np.int32)
        scores = finite(self.recommender.score(users, self._indices(items)[None]))
        return [float(score) for score in scores[0]]

    def recommend(
        self, user: object, n: int = 10, exclude_seen: bool = True
    ) -> list[Recommendation]:
        """The n best items for a user, best first; empty for a user the model does not serve."""
        users = np.array([find(self.catalogue.user_ids, user, "user")], np.int32)
        if not self.recommender.serves(users)[0]:
            return []
        seen = self.catalogue.seen.of(users[0]) if exclude_seen else NOTHING
        return self._best(self.recommender.score(users)[0], seen, n)

    def recommend_new_user(
        self,
        history: Sequence[object],
        n: int = 10,
        exclude_seen: bool = True,
        features: Mapping[str, object] | None = None,
    ) -> list[Recommendation]:
        """The n best items for a user who was not in training, from a history, without training.

        `features`, such as {"age": 25}, are for two-tower models whose users had features.
        """
        items = self._history(history)
        scores = self.score_history(items, features or {})
        return self._best(scores, items if exclude_seen else NOTHING, n)

    def score_history(self, items: Ints, features: Mapping[str, object]) -> Floats:
        """(items,) scores for a new user with these item indices, ascending and distinct.

        By the algorithm's own fit, with the settings of the run.
        """
        self._refuse_ratings()
        name = self.result["algorithm"]
        algorithm = registry.algorithm(name)
        if algorithm.score_new_user is None:
            able = [other for other in registry.names() if registry.serves_new_users(other)]
            raise ConfigError(
                f"the run's algorithm is {name}, which cannot serve users who were not in "
                f"training; expected one of {', '.join(able)}. Train one of them."
            )
        texts = self.catalogue.item_texts
        titles = [] if texts is None else [str(text) for text in texts[items]]
        user = NewUser(
            items=items,
            titles=titles,
            features=features,
            known_features=tuple(self.result.get("user_features", ())),
        )
        scores = finite(algorithm.score_new_user(self.model, user, self.settings))
        return scores if self.prior is None else self.prior.for_new_user(scores, len(items))

    def why(
        self, user: object, items: Sequence[object], n: int = reasons.REASONS
    ) -> list[list[Reason]]:
        """For each of `items`: the up to n items of the user's history that add most to its score.

        Only item-based models, such as EASE and Item-kNN, have reasons.
        """
        explainer = self._explainer(n)
        index = find(self.catalogue.user_ids, user, "user")
        return explainer.for_user(index, self._indices(items))

    def why_new_user(
        self, history: Sequence[object], items: Sequence[object], n: int = reasons.REASONS
    ) -> list[list[Reason]]:
        """`why` for a user who was not in training, from a history."""
        explainer = self._explainer(n)
        return explainer.for_history(self._history(history), self._indices(items))

    def similar_items(self, item: object, n: int = 10) -> list[Recommendation]:
        """The n items most similar to an item, most similar first: by the cosine of item rows.

        EASE and SLIM have weights instead of rows, and nearest neighbours have similarities.
        """
        index = find(self.catalogue.item_ids, item, "item")
        similar = self.model.similar_items(index)
        if similar is None:
            raise ConfigError(
                f"the run's algorithm is {self.result['algorithm']}, whose model does not compare "
                "items; expected one with item rows, such as als, bpr, gmf or fedfast. Train one."
            )
        return self._best(similar, np.array([index], np.int32), n)

    def recommend_all(
        self, n: int = 10, exclude_seen: bool = True, why: bool = False
    ) -> pd.DataFrame:
        """The n best items of all users: user_id, rank, item_id, score and, if known, title.

        With `why` there is a column of that name with the list of reasons.
        """
        import pandas as pd

        explainer = self._explainer() if why else None
        blocks = recommendations.list_blocks(
            self.recommender, self.catalogue, n, exclude_seen, explainer
        )
        return pd.concat(blocks, ignore_index=True)

    def write_recommendations(
        self,
        path: str | Path,
        n: int = 10,
        exclude_seen: bool = True,
        progress: Progress = SILENT,
        why: bool = False,
    ) -> int:
        """Write the n best items of all users as csv or parquet, block by block.

        With `why` there is a column of that name with the list of reasons as JSON. Only the owner
        can read the file. Returns the number of its rows.
        """
        explainer = self._explainer() if why else None
        return recommendations.write_lists(
            Path(path), self.recommender, self.catalogue, n, exclude_seen, progress, explainer
        )

    def with_titles(
        self, path: str | Path, item_column: str | None = None, title_column: str | None = None
    ) -> Run:
        """The same run with titles from a file of items; columns are guessed unless named."""
        titles = read_titles(Path(path), self.catalogue.item_ids, item_column, title_column)
        return replace(self, catalogue=replace(self.catalogue, item_texts=titles))

    def _indices(self, items: Sequence[object]) -> Ints:
        found = [find(self.catalogue.item_ids, item, "item") for item in items]
        return np.array(found, np.int32)

    def _history(self, items: Sequence[object]) -> Ints:
        """The items of a new user, ascending and distinct."""
        self._refuse_ratings()
        return np.unique(self._indices(items))

    def _refuse_ratings(self) -> None:
        if self.result.get("feedback") == "explicit":
            raise ConfigError(
                "the run learned from ratings, which a history of items does not have; "
                "expected a run with implicit feedback. Train with feedback=implicit."
            )

    def _explainer(self, n: int = reasons.REASONS) -> Explainer:
        return Explainer.of(self.model, self.catalogue, self.result["algorithm"], n)

    def _best(self, scores: Floats, seen: Ints, n: int) -> list[Recommendation]:
        if n < 1:
            raise ConfigError(f"n is {n}; expected at least one item. Pass 1 or more.")
        known = self.catalogue
        return [
            Recommendation(known.id_of(i), float(scores[i]), known.text_of(i))
            for i in best_items(scores, seen, n)
        ]
