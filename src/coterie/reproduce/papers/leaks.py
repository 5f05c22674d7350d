"""Leaks: methods with honest negatives, and with negatives that avoid the held-out items."""

from __future__ import annotations

from coterie.experiments.config import tuned_settings
from coterie.experiments.plan import Method
from coterie.reproduce.checks import Ahead, All
from coterie.reproduce.items import Claim, Item, Paper, Trial
from coterie.reproduce.papers.tuned_settings import WHOLE_COHORT

HR = "HR@10"
NDCG = "NDCG@10"
NAMES = ("fedfast", "fedavg", "gmf")
LEAKY = ", as published"


def trial(dataset: str, seeds: int) -> Trial:
    """Every method with honest and with leaky negatives."""
    methods = [
        Method(name + label, name, tuned_settings(dataset, name, WHOLE_COHORT) | settings)
        for name in NAMES
        for label, settings in (("", {}), (LEAKY, {"as_published": True}))
    ]
    return Trial(dataset=dataset, methods=tuple(methods), protocol="loo-99", seeds=seeds)


TABLE = Item(
    key="negatives",
    title="Negatives that avoid the test items",
    about=(
        "Leave-one-out with 99 candidates. Published code of the PFedRec line samples negatives "
        "from the items that a user has in neither training nor test. Training then pushes down "
        "every item that the user does not have, except the test item. The model learns which "
        "items are held out. Both variants use the settings tuned for honest negatives."
    ),
    metrics=(HR, NDCG),
    trials=(trial("ml-100k", 5), trial("ml-1m", 3)),
    claims=tuple(
        Claim(
            f"{name}-gains-by-leaking",
            f"{name} looks better with negatives that avoid held-out items",
            "ours",
            All(tuple(Ahead(name + LEAKY, name, metric) for metric in (HR, NDCG))),
            ours=True,
        )
        for name in NAMES
    ),
)

PAPER = Paper(
    name="leaks",
    title="Why figures in the literature are not comparable",
    reference=(
        "Our own study of published code of the PFedRec line "
        "(Zhang et al. 2023 and its successors)."
    ),
    items=(TABLE,),
    quick={"rounds": 100, "epochs": 15},
)
