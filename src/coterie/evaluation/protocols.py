"""Evaluation protocols by name: the split, the candidates and the cut-offs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from coterie.core.settings import Settings
from coterie.data.splits import Rule
from coterie.errors import UnknownName
from coterie.types import JsonObject

ACCURACY = ("HR", "NDCG", "MRR", "P", "R", "F1", "AUC")
RATING_ERRORS = ("RMSE", "MAE")
"""Lower is better; only with feedback=explicit."""
WITHOUT_CUTOFF = ("AUC", *RATING_ERRORS)
DIVERSITY = ("IC", "Gini", "Pop")


class Protocol(Settings):
    """How a model is evaluated."""

    split: Rule = "leave-one-out"
    """What is held out: leave-one-out, temporal, global-time, random, or own (files)."""
    fraction: float = Field(0.2, gt=0, lt=1)
    """Share held out by temporal, global-time and random."""
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
    category_bias: bool = False
    """Report bias by item category, if the data has categories."""
    validation: bool = False
    """Split a validation part off the training part and measure on it while training."""
    test_file: str | None = None
    """The test part of split=own."""
    validation_file: str | None = None
    """The validation part of split=own."""

    @field_validator("cutoffs", "headline", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        if isinstance(value, str):
            value = value.split(",")
        return value if isinstance(value, (list, tuple)) else (value,)

    @field_validator("cutoffs")
    @classmethod
    def _positive(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if min(value) < 1:
            raise ValueError("expected list lengths of at least 1")
        return tuple(sorted(set(value)))

    @field_validator("headline")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        metrics = (*ACCURACY, *RATING_ERRORS, *DIVERSITY)
        if unknown := set(value) - set(metrics):
            known = ", ".join(metrics)
            raise ValueError(f"{min(unknown)!r} is unknown; expected one of {known}")
        return value

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

    @property
    def followed(self) -> str:
        """The metric that is measured while training."""
        measured = (*ACCURACY, *RATING_ERRORS)
        name = next((name for name in self.headline if name in measured), "NDCG")
        return _at(name, self.cutoffs[0])

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of the metrics shown first, such as HR@10."""
        return tuple(dict.fromkeys(_at(name, k) for k in self.cutoffs for name in self.headline))


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
}


def protocol(name: str, changes: JsonObject) -> Protocol:
    """A named protocol with some of its settings changed."""
    if name not in PROTOCOLS:
        raise UnknownName("protocol", name, PROTOCOLS)
    return Protocol.of(PROTOCOLS[name] | changes)
