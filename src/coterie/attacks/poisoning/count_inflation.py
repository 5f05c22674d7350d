"""Inflated sample counts: a colluder claims so many samples that the average is its own update.

Yi, Wu, Zhu, Yao, Tao, Sun, Xie. UA-FedRec: untargeted attack on federated news recommendation. KDD
2023 (arXiv:2202.06701, 2022): malicious updates, which the quantity perturbation gives the weight.

Deviation: UA-FedRec's updates push similar news and users apart. Here a colluder flips the sign of
its honest update, scaled. With `update=honest` the count alone is inflated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from coterie.attacks.poisoning.contract import AttackKind, AttackSettings, AttackView
from coterie.attacks.poisoning.sign_flip import flipped
from coterie.attacks.poisoning.surface import Surface
from coterie.federated.validation import MOST_SAMPLES
from coterie.types import Updates


class CountInflation(AttackSettings):
    samples: int = Field(MOST_SAMPLES, ge=1, le=MOST_SAMPLES)
    """Sample count that every colluder sends. Validation refuses more than 2^23."""
    update: Literal["flipped", "honest"] = "flipped"
    """What gets the weight: the honest update with the opposite sign, scaled, or as it is."""
    scale: float = Field(10.0, gt=0)
    """Factor of a flipped update."""


def poison(view: AttackView, settings: CountInflation) -> Updates:
    counts = np.full(len(view.honest), settings.samples, np.int64)
    is_flipped = settings.update == "flipped"
    updates = flipped(view.honest, settings.scale) if is_flipped else view.honest
    return replace(updates, samples=counts)


def refusal(surface: Surface) -> str:
    return "" if surface.is_weighted else "its server does not weigh updates by sample counts"


COUNT_INFLATION = AttackKind(
    summary="flipped updates with the largest sample count",
    settings=CountInflation,
    poison=poison,
    paper="Yi et al. 2022",
    refusal=refusal,
)
