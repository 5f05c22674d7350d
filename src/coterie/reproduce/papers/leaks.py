"""Leaks: methods with honest negatives, and with negatives that avoid the held-out items."""

from __future__ import annotations

from coterie.experiments.config import tuned_settings
from coterie.experiments.plan import Method
from coterie.reproduce.checks import Ahead, All
from coterie.reproduce.items import Claim, Item, Paper, SettingsSearch, Trial
from coterie.reproduce.papers.tuned_settings import WHOLE_COHORT

HR = "HR@10"
NDCG = "NDCG@10"
LABELS = {"fedfast": "FedFast", "fedavg": "FedAvg", "gmf": "GMF"}
NAMES = tuple(LABELS)
LEAKY = ", leaky"


def trial(dataset: str, seeds: int) -> Trial:
    """Every method with honest and with leaky negatives."""
    methods = [
        Method(name + label, name, tuned_settings(dataset, name, WHOLE_COHORT) | settings)
        for name in NAMES
        for label, settings in (("", {}), (LEAKY, {"as_published": True}))
    ]
    return Trial(
        dataset=dataset,
        methods=tuple(methods),
        protocol="loo-99",
        seeds=seeds,
        searches={method.label: searched(dataset, method.algorithm) for method in methods},
    )


TRIALS = {
    "ml-100k": {"fedfast": 30, "fedavg": 30, "gmf": 40},
    "ml-1m": {"fedfast": 27, "fedavg": 8, "gmf": 10},
}


def searched(dataset: str, name: str) -> SettingsSearch:
    """The search behind the dataset's default settings: `benchmarks/tune_all.sh`."""
    note = "the dataset's default settings, found with honest negatives"
    return SettingsSearch(trials=TRIALS[dataset][name], note=note)


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
            f"{LABELS[name]} looks better with negatives that avoid held-out items",
            "ours",
            All(tuple(Ahead(name + LEAKY, name, metric) for metric in (HR, NDCG))),
            ours=True,
        )
        for name in NAMES
    ),
)

PAPER = Paper(
    name="leaks",
    title="What published figures gain from negatives that avoid the test items",
    reference=(
        "Our own study of a habit in published code, such as PFedRec's (Zhang et al. 2023), with "
        "methods of this library."
    ),
    items=(TABLE,),
    quick={"rounds": 100, "epochs": 15},
)
