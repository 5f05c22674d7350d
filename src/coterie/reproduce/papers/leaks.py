"""Leaks: the same methods with honest negatives, and with those of much published code, which avoid held-out items."""

from __future__ import annotations

from coterie.experiments.config import tuned_settings
from coterie.experiments.plan import Method
from coterie.reproduce.checks import Ahead, All
from coterie.reproduce.items import Claim, Item, Paper, Trial

HR = "HR@10"
NDCG = "NDCG@10"
NAMES = ("fedfast", "fedavg", "gmf")
LEAKY = ", as published"


def trial(dataset: str, seeds: int) -> Trial:
    methods = [
        Method(name + way, name, tuned_settings(dataset, name) | settings)
        for name in NAMES
        for way, settings in (("", {}), (LEAKY, {"as_published": True}))
    ]
    return Trial(dataset=dataset, methods=tuple(methods), protocol="loo-99", seeds=seeds)


TABLE = Item(
    key="negatives",
    title="Negatives that know the test items",
    about="Leave one out, 99 candidates. A model that is never told that a held-out item is a negative learns by that which items are held out: every other item that a user does not "
    "have is pushed down, and the test item is not. Published code of the PFedRec line samples negatives from what a user has in neither training nor test. Settings are those tuned for "
    "honest negatives, for both.",
    metrics=(HR, NDCG),
    trials=(trial("ml-100k", 5), trial("ml-1m", 3)),
    claims=tuple(
        Claim(f"{name}-gains-by-leaking", f"{name} looks better with negatives that avoid held-out items", "ours", All(tuple(Ahead(name + LEAKY, name, m) for m in (HR, NDCG))))
        for name in NAMES
    ),
)  # fmt: skip

PAPER = Paper(
    name="leaks",
    title="Why numbers in the literature do not compare",
    reference="Our own, about published code of the PFedRec line (Zhang et al. 2023 and what follows it).",
    items=(TABLE,),
    quick={"rounds": 100, "epochs": 15},
)
