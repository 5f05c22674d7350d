"""Inflated sample counts: a colluder claims so many samples that the average is its own update.

Yi, Wu, Zhu, Yao, Tao, Sun, Xie. UA-FedRec: untargeted attack on federated news recommendation. KDD
2023 (arXiv:2202.06701, 2022), its quantity perturbation.

Deviation: UA-FedRec also perturbs what user and news encoders learn. Here updates are honest, and
the count alone does the damage.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field

from coterie.attacks.poisoning.contract import AttackKind, AttackSettings, AttackView
from coterie.attacks.poisoning.surface import Surface
from coterie.federated.validation import MOST_SAMPLES
from coterie.types import Updates


class CountInflation(AttackSettings):
    samples: int = Field(MOST_SAMPLES, ge=1, le=MOST_SAMPLES)
    """Sample count that every colluder sends. Validation refuses more than 2^23."""


def poison(view: AttackView, settings: CountInflation) -> Updates:
    counts = np.full(len(view.honest), settings.samples, np.int64)
    return replace(view.honest, samples=counts)


def refusal(surface: Surface) -> str:
    return "" if surface.is_weighted else "its server does not weigh updates by sample counts"


COUNT_INFLATION = AttackKind(
    summary="honest updates with the largest sample count",
    settings=CountInflation,
    poison=poison,
    paper="Yi et al. 2022",
    refusal=refusal,
)
