"""Evaluation protocols by name: the split, the candidates and the cut-offs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from coterie.core.settings import Settings
from coterie.data.splits import Draw, Rule
from coterie.errors import UnknownName
from coterie.evaluation.list_metrics import Metric
from coterie.evaluation.metric_names import (
    ACCURACY,
    RATING_ERRORS,
    WITHOUT_CUTOFF,
    list_metric,
    parse,
)
from coterie.types import JsonObject


class Protocol(Settings):
    """How a model is evaluated."""

    split: Rule = "leave-one-out"
    """What is held out: leave-one-out, temporal, global-time, random, k-fold, own (files), or given
    (data frames, from Python)."""
    fraction: float = Field(0.2, gt=0, lt=1)
    """Share held out by temporal, global-time and random."""
    folds: int = Field(0, ge=0)
    """Number of folds of split=k-fold: 2 or more."""
    fold: int = Field(0, ge=0)
    """The fold that is tested, from 0; coterie compare --folds tests all of them."""
    repeat: int = Field(0, ge=0)
    """Number of a repetition of split=random or k-fold: others hold out other interactions."""
    candidates: int = Field(0, ge=0)
    """Sampled negatives a test item is ranked against; 0 ranks all items."""
    candidates_for: Literal["user", "item"] = "user"
    """Whether candidates are sampled per user or per test item of a user."""
    candidates_file: str | None = None
    """Published test pairs and negatives in NCF's format, instead of sampled ones."""
    cutoffs: tuple[int, ...] = Field((10,), min_length=1)
    """Lengths of the recommendation list."""
    headline: tuple[str, ...] = Field(("HR", "NDCG"), min_length=1)
    """The metrics shown first; RMSE and MAE need feedback=explicit. The first accuracy metric or
    error is the one that early stopping, the target and tuning follow."""
    metrics: tuple[str, ...] = ()
    """Further metrics to show, such as MAP, Nov, Tail, ILD, CatILD, Calib or your own. A cut-off
    (Recall@20) replaces cutoffs."""
    category_bias: bool = False
    """Report bias by item category, if the data has categories."""
    validation: bool = False
    """Split a validation part off the training part and measure on it while training."""
    test_file: str | None = None
    """The test part of split=own."""
    validation_file: str | None = None
    """The validation part of split=own."""

    @field_validator("cutoffs", "headline", "metrics", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return _listed(value)

    @field_validator("cutoffs")
    @classmethod
    def _positive(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if min(value) < 1:
            raise ValueError("expected list lengths of at least 1")
        return tuple(sorted(set(value)))

    @field_validator("headline", "metrics")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(parse(name).name for name in value))

    @model_validator(mode="after")
    def _files_belong_to_their_split(self) -> Protocol:
        if self.split == "own" and self.candidates_file:
            raise ValueError(
                "split=own and candidates_file both name the test interactions; "
                "expected one of them. Remove one"
            )
        if self.split == "own" and not self.test_file:
            raise ValueError(
                "split=own needs a test part, but test_file is not set. Pass --set test_file=PATH"
            )
        if self.split != "own" and (self.test_file or self.validation_file):
            raise ValueError(
                f"test_file and validation_file need split=own; split is {self.split}. "
                "Pass --set split=own"
            )
        return self

    @model_validator(mode="after")
    def _folds_and_repeats_belong_to_their_split(self) -> Protocol:
        if self.split == "k-fold" and self.folds < 2:
            raise ValueError(
                f"split=k-fold needs at least two folds; folds is {self.folds}. Pass --set folds=5"
            )
        if self.split != "k-fold" and (self.folds or self.fold):
            raise ValueError(
                f"folds is {self.folds} and fold is {self.fold}, but split is {self.split}; "
                "expected split=k-fold. Pass --set split=k-fold, or leave them out"
            )
        if self.split == "k-fold" and self.fold >= self.folds:
            raise ValueError(
                f"fold is {self.fold}, but there are {self.folds} folds; "
                f"expected 0 to {self.folds - 1}. Change it with --set fold=0"
            )
        if self.repeat and self.split not in ("random", "k-fold"):
            raise ValueError(
                f"repeat is {self.repeat}, but split={self.split} holds out the same interactions "
                "every time; expected split=random or k-fold. Pass --set split=random"
            )
        return self

    @property
    def draw(self) -> Draw:
        """Which of several random held-out parts is tested."""
        return Draw(folds=self.folds, fold=self.fold, repeat=self.repeat)

    @property
    def followed(self) -> str:
        """The metric that is measured while training."""
        measured = (*ACCURACY, *RATING_ERRORS)
        name = next((name for name in self.headline if name in measured), "NDCG")
        return _at(name, self.cutoffs[0])

    @property
    def named(self) -> tuple[str, ...]:
        """The metrics of the headline and the further ones."""
        return tuple(dict.fromkeys((*self.headline, *self.metrics)))

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of the metrics shown first, such as HR@10."""
        return tuple(dict.fromkeys(_at(name, k) for k in self.cutoffs for name in self.named))

    @property
    def list_metrics(self) -> tuple[Metric, ...]:
        """The metrics of ranked lists that are to be computed."""
        found = (list_metric(name) for name in self.named)
        return tuple(metric for metric in found if metric is not None)


def _at(name: str, k: int) -> str:
    return name if name in WITHOUT_CUTOFF else f"{name}@{k}"


PROTOCOLS: dict[str, JsonObject] = {
    # FedFast, Section 4.
    "loo-50": {"split": "leave-one-out", "candidates": 50},
    # NCF.
    "loo-99": {"split": "leave-one-out", "candidates": 99},
    # FedBSO.
    "loo-100": {"split": "leave-one-out", "candidates": 100, "cutoffs": (20,)},
    # FPL, Section 5.
    "holdout": {
        "split": "temporal",
        "fraction": 0.2,
        "headline": ("P", "R", "IC", "Gini"),
        "category_bias": True,
    },
    # STTFedRec, Section 4.1: ten items without a click of the user for every held-out item.
    "holdout-10": {
        "split": "temporal",
        "fraction": 0.2,
        "candidates": 10,
        "candidates_for": "item",
        "headline": ("AUC", "P", "NDCG"),
    },
    "full": {"split": "leave-one-out", "candidates": 0},
    # Cross-validation; a single run tests the first fold.
    "kfold-5": {"split": "k-fold", "folds": 5, "headline": ("R", "NDCG")},
    "kfold-10": {"split": "k-fold", "folds": 10, "headline": ("R", "NDCG")},
}


def protocol(name: str, changes: JsonObject) -> Protocol:
    """A named protocol with some of its settings changed."""
    if name not in PROTOCOLS:
        raise UnknownName("protocol", name, PROTOCOLS)
    usual = dict(PROTOCOLS[name])
    if changes.get("split", "k-fold") != "k-fold":
        # Another split drops the folds of the protocol, as another protocol would.
        usual.pop("folds", None)
    return Protocol.of(usual | changes | named_cutoffs(changes))


def named_cutoffs(changes: JsonObject) -> JsonObject:
    """The cut-offs that metrics are named with: headline=Recall@20 evaluates lists of 20."""
    words = [*_listed(changes.get("headline")), *_listed(changes.get("metrics"))]
    ends = [str(word).partition("@")[2] for word in words]
    # Another ending is an error of the metric's name, which its own check reports.
    named = [k for k in ends if k.isdecimal() and int(k)]
    return {"cutoffs": [*_listed(changes.get("cutoffs")), *named]} if named else {}


def _listed(value: object) -> list[object]:
    """The values of a setting that may be written as a list or with commas."""
    if isinstance(value, str):
        return list(value.split(","))
    if isinstance(value, (list, tuple)):
        return list(value)
    return [] if value is None else [value]
