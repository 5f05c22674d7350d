"""A finished run: its result, and its model with the ids people know."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coterie.data.ids import find
from coterie.errors import ConfigError
from coterie.evaluation.evaluation import Evaluation
from coterie.evaluation.ranking import best_items, finite
from coterie.experiments import folder as disk
from coterie.experiments.folder import Catalogue
from coterie.models.recommender import Recommender
from coterie.types import Floats, Ints

NOTHING: Ints = np.empty(0, np.int32)
NOT_YET: dict[str, Any] = {"metrics": {}, "full": {}, "headline": []}


class Recommendation(NamedTuple):
    item: object
    score: float
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    result: dict[str, Any]
    model: Recommender
    catalogue: Catalogue
    evaluation: Evaluation | None = None
    curve: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """From a run folder."""
        place = Path(folder)
        result = disk.read_result(place)
        return cls(result, *disk.read_model(place), curve=disk.read_metrics(place))

    @classmethod
    def peek(cls, folder: str | Path) -> Run:
        """From the folder of a run that may still be training: the model of its last checkpoint, no result."""
        place = Path(folder)
        if (place / "result.json").exists() or not (place / "config.yaml").exists():
            return cls.load(place)
        config = disk.read_config(place)
        so_far = {
            key: config[key] for key in ("algorithm", "dataset", "protocol", "seed", "feedback")
        }
        so_far["settings"] = config
        return cls(so_far | NOT_YET, *disk.read_model(place), curve=disk.read_metrics(place))

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name} {self.result['metrics'][name]:.4f}"
            for name in self.result["headline"]
            if name in self.result["metrics"]
        )
        return f"Run({self.result['algorithm']} on {self.result['dataset']}, {self.result['protocol']}: {shown})"

    @property
    def metrics(self) -> dict[str, float]:
        """By the protocol."""
        return dict(self.result["metrics"])

    @property
    def full(self) -> dict[str, float]:
        """By full ranking."""
        return dict(self.result["full"])

    def score(self, user: object, items: list[Any]) -> list[float]:
        """Scores of items for a user, by external ids."""
        u = np.array([find(self.catalogue.user_ids, user, "user")], np.int32)
        wanted = np.array(
            [[find(self.catalogue.item_ids, item, "item") for item in items]], np.int32
        )
        return [float(s) for s in finite(self.model.score(u, wanted))[0]]

    def recommend(
        self, user: object, n: int = 10, exclude_seen: bool = True
    ) -> list[Recommendation]:
        """The n best items for a user, best first; none for somebody whom the model does not serve."""
        number = np.array([find(self.catalogue.user_ids, user, "user")], np.int32)
        seen = self.catalogue.seen.of(number[0]) if exclude_seen else NOTHING
        return (
            self._best(self.model.score(number)[0], seen, n) if self.model.serves(number)[0] else []
        )

    def recommend_new_user(
        self, history: list[Any], n: int = 10, exclude_seen: bool = True
    ) -> list[Recommendation]:
        """The n best items for a person who was not in training, from what they did: made on the spot, without a round."""
        items = np.array(
            sorted({find(self.catalogue.item_ids, item, "item") for item in history}), np.int32
        )
        settings = self.result.get("settings", {})
        if self.result.get("feedback") == "explicit":
            raise ConfigError(
                "the run learned from ratings; a history without them says nothing to it. Train with feedback=implicit."
            )
        try:
            scores = self.model.score_new_user(
                items, settings.get("negatives", 1), settings.get("reg", 0.0)
            )
        except NotImplementedError:
            raise ConfigError(
                f"a run of {self.result['algorithm']} cannot serve people who were not in training. Use fedfast, fedavg, gmf, neumf, ease, userknn, itemknn, multivae or popular."
            ) from None
        return self._best(scores, items if exclude_seen else NOTHING, n)

    def _best(self, scores: Floats, seen: Ints, n: int) -> list[Recommendation]:
        if n < 1:
            raise ConfigError(f"n is {n}; expected at least one item. Ask for 1 or more.")
        texts = self.catalogue.item_texts
        ids = self.catalogue.item_ids
        return [
            Recommendation(
                ids[i].item() if ids.dtype.kind in "iu" else str(ids[i]),
                float(scores[i]),
                "" if texts is None else str(texts[i]),
            )
            for i in best_items(scores, seen, n)
        ]
