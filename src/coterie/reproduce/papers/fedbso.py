"""FedBSO, chapter 4 of the thesis: accuracy (Table 2), convergence (Figure 3), and their cause."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.experiments.plan import Method
from coterie.reproduce.checks import Ahead, All, ShareOf, Untestable
from coterie.reproduce.curve_checks import Reaches, Sooner, Stalls, Steadier
from coterie.reproduce.items import Claim, Item, Paper, SettingsSearch, Trial
from coterie.reproduce.papers.tuned_settings import paper_settings
from coterie.types import JsonObject

HR = "HR@20"
NDCG = "NDCG@20"
BOTH = (HR, NDCG)
# Section 4.2, with 20 clusters. The thesis does not give the values of the last two lines.
# Adam's moments survive the round: otherwise Adam learns little.
THESIS: JsonObject = {
    "embedding_size": 16, "optimizer": "adam", "learning_rate": 0.1, "batch_size": 256,
    "participation": 0.1, "moments": "averaged",
    "reg": 0.0, "negatives": 4, "local_epochs": 1, "start_scale": 0.1, "final_rate": 1.0,
    "evaluate_every": 10,
}  # fmt: skip
TABLE2_FIGURES = {
    "ml-100k": {
        "fedbso": (0.8204, 0.4335), "fedavg": (0.7328, 0.3565), "fedfast": (0.8091, 0.4237),
        "gmf": (0.8378, 0.4442),
    },
    "ml-1m": {
        "fedbso": (0.8534, 0.4489), "fedavg": (0.6917, 0.3195), "fedfast": (0.8346, 0.4325),
        "gmf": (0.8577, 0.4560),
    },
    "pinterest": {
        "fedbso": (0.9529, 0.5603), "fedavg": (0.4604, 0.1946), "fedfast": (0.9481, 0.5512),
        "gmf": (0.9632, 0.5814),
    },
}  # fmt: skip
NO_PERTURBATION = {"replacement_rate": 0.0, "swap_rate": 0.0}
BY_CHANGE = "fedfast, moments by change"
ONE_ROW = "fedbso, one row per cluster"
GMF_THESIS = "gmf, thesis' settings"
TOUCHED = "fedavg touched"
"""The name of FedAvg's own search with average=touched in tuned_settings.yaml."""

# Trials of each search on the validation part, by dataset and method (benchmarks/tune_all.sh).
FEDERATED_TRIALS = {"ml-100k": 20, "ml-1m": 10, "pinterest": 6}
ALS_TRIALS = {"ml-100k": 25, "ml-1m": 10, "pinterest": 12}
EASE_TRIALS = {"ml-100k": 40, "ml-1m": 10, "pinterest": 10}
BY_HAND = {"fedbso": 2, "fedfast": 2}
"""Trials on ML-1M after the search."""
SPACE: JsonObject = {
    "learning_rate": (0.005, 0.5), "reg": (1e-4, 0.1), "negatives": [2, 4, 8],
    "start_scale": [0.03, 0.1, 0.3], "local_epochs": [1, 2, 5], "final_rate": [0.03, 0.1, 1.0],
}  # fmt: skip
"""What `coterie tune` searches for a federated method."""
GIVEN = SettingsSearch(
    trials=0, note="Section 4.2; regularisation, negatives, local epochs and start values are ours"
)


def tuned(dataset: str, name: str) -> JsonObject:
    """The settings tuned for a method."""
    return paper_settings("fedbso", dataset, name)


def touched_settings(dataset: str) -> JsonObject:
    """FedAvg's settings with average=touched: its own where it was searched, else FedBSO's."""
    return tuned(dataset, TOUCHED) or tuned(dataset, "fedbso")


def gmf_thesis(rounds: int) -> JsonObject:
    """Section 4.2 for centralised GMF, with as many passes over the data as the rounds make."""
    federated_only = ("participation", "moments", "local_epochs")
    shared = {key: value for key, value in THESIS.items() if key not in federated_only}
    return shared | {"epochs": round(rounds * 0.1)}


def trial(dataset: str, seeds: int, rounds: int, paper: Mapping[str, tuple[float, float]]) -> Trial:
    """All methods of Table 2 on one dataset, with the thesis' settings and tuned."""
    thesis = THESIS | {"rounds": rounds}
    every_ten = {"evaluate_every": 10}
    touched = {"average": "touched"}
    methods = (
        Method("fedbso", "fedbso", thesis),
        Method("fedbso, no perturbation", "fedbso", thesis | NO_PERTURBATION),
        Method(ONE_ROW, "fedbso", thesis | {"user_rows": "cluster"}),
        Method("fedfast", "fedfast", thesis),
        Method(BY_CHANGE, "fedfast", thesis | {"moment_weights": "change"}),
        Method("fedavg", "fedavg", thesis),
        Method("fedavg, touched", "fedavg", thesis | touched),
        Method(GMF_THESIS, "gmf", gmf_thesis(rounds)),
        *(
            Method(f"{name}, tuned", name, tuned(dataset, name) | every_ten)
            for name in ("fedbso", "fedfast", "fedavg")
        ),
        Method("fedavg, touched, tuned", "fedavg", touched_settings(dataset) | every_ten | touched),
        Method("gmf", "gmf", tuned(dataset, "gmf")),
        *(Method(name, name, tuned(dataset, name)) for name in ("als", "ease", "popular")),
    )
    return Trial(
        dataset=dataset,
        methods=methods,
        protocol="loo-100",
        seeds=seeds,
        paper=paper,
        searches=searches(dataset),
    )


def searches(dataset: str) -> dict[str, SettingsSearch]:
    """How the settings of each method were found."""
    trials = FEDERATED_TRIALS[dataset]
    given = dict.fromkeys(
        (
            "fedbso",
            "fedbso, no perturbation",
            ONE_ROW,
            "fedfast",
            BY_CHANGE,
            "fedavg",
            "fedavg, touched",
        ),
        GIVEN,
    )
    of_gmf = SettingsSearch(
        trials=0, note=f"{GIVEN.note}; the thesis does not say whether GMF had these settings"
    )
    federated = {
        f"{name}, tuned": SettingsSearch(
            trials=trials + by_hand(dataset, name), space=space(dataset)
        )
        for name in ("fedbso", "fedfast", "fedavg")
    }
    return {
        **given,
        GMF_THESIS: of_gmf,
        **federated,
        "fedavg, touched, tuned": search_of_touched(dataset),
        "gmf": SettingsSearch(trials=trials),
        "als": SettingsSearch(trials=ALS_TRIALS[dataset]),
        "ease": SettingsSearch(trials=EASE_TRIALS[dataset]),
    }


def space(dataset: str) -> JsonObject:
    """What was searched on a dataset: on the large ones, with one local epoch."""
    return SPACE if dataset == "ml-100k" else SPACE | {"local_epochs": [1]}


def by_hand(dataset: str, name: str) -> int:
    """Trials that were made after the search."""
    return BY_HAND.get(name, 0) if dataset == "ml-1m" else 0


def search_of_touched(dataset: str) -> SettingsSearch:
    """The search behind `touched_settings`."""
    if tuned(dataset, TOUCHED):
        return SettingsSearch(trials=FEDERATED_TRIALS[dataset], space=space(dataset))
    trials = FEDERATED_TRIALS[dataset] + by_hand(dataset, "fedbso")
    note = "chosen for FedBSO, not for FedAvg"
    return SettingsSearch(trials=trials, space=space(dataset), note=note)


def ahead(first: str, other: str) -> All:
    """Ahead in HR and in NDCG."""
    return All(tuple(Ahead(first, other, metric) for metric in BOTH))


def steadier(first: str, other: str) -> All:
    """Steadier over the last 200 rounds, in HR and in NDCG."""
    return All(tuple(Steadier(first, other, metric, 200) for metric in BOTH))


TABLE2 = Item(
    key="table2",
    title="Table 2 and Figure 3: accuracy and convergence",
    about=(
        "Rows without `tuned` use the thesis' settings: embedding size 16, Adam with learning "
        "rate 0.1, batches of 256, a tenth of the users per round. Adam's moments survive the "
        "round; the thesis does not say whether they do. FedFast averages them by n_k; "
        "`moments by change` weighs them by |change|, as it weighs item rows. `tuned` rows use "
        "settings tuned on the validation part for each method. `no perturbation` never replaces "
        "or swaps centres. `one row per cluster` reads line 21 as an average of user rows too. "
        "`touched` averages each row over the clients that changed it, without clusters. GMF is "
        "tuned unless its row says otherwise, and its curve is by epochs; with the thesis' "
        "settings it makes as many passes over the data as the rounds do."
    ),
    metrics=BOTH,
    trials=(
        trial("ml-100k", 5, 1000, TABLE2_FIGURES["ml-100k"]),
        trial("ml-1m", 3, 1000, TABLE2_FIGURES["ml-1m"]),
        trial("pinterest", 3, 360, TABLE2_FIGURES["pinterest"]),
    ),
    claims=(
        Claim(
            "ahead-of-fedfast",
            "FedBSO is consistently ahead of FedFast in HR and NDCG",
            "abstract, 4.3.2, 5.1.1",
            ahead("fedbso", "fedfast"),
        ),
        Claim(
            "ahead-of-fedfast-tuned",
            "the same with settings tuned for each method",
            "4.3.2",
            ahead("fedbso, tuned", "fedfast, tuned"),
            ours=True,
        ),
        Claim(
            "ahead-of-fedfast-by-change",
            "the same where FedFast weighs Adam's moments by |change|, as neither paper asks for",
            "4.3.2",
            ahead("fedbso", BY_CHANGE),
            ours=True,
        ),
        Claim(
            "moments-by-samples",
            "FedFast is better where Adam's moments are averaged by n_k and not by |change|",
            "4.2",
            ahead("fedfast", BY_CHANGE),
            ours=True,
        ),
        Claim(
            "ahead-of-fedavg",
            "FedBSO is ahead of FedAvg in HR and NDCG",
            "5.1.1",
            ahead("fedbso", "fedavg"),
        ),
        Claim(
            "fedfast-ahead-of-fedavg",
            "FedFast is ahead of FedAvg after the same number of rounds",
            "4.3.1",
            ahead("fedfast", "fedavg"),
        ),
        Claim(
            "gmf-is-the-ceiling",
            "no federated method is ahead of centralised GMF",
            "4.1.3, 4.3.1",
            All(
                tuple(
                    ShareOf("gmf", name, metric, 1.0)
                    for name in ("fedbso, tuned", "fedfast, tuned")
                    for metric in BOTH
                )
            ),
        ),
        Claim(
            "gmf-is-the-ceiling-thesis-settings",
            "the same with the thesis' settings for all methods, GMF included",
            "4.1.3, 4.2",
            All(
                tuple(
                    ShareOf(GMF_THESIS, name, metric, 1.0)
                    for name in ("fedbso", "fedfast")
                    for metric in BOTH
                )
            ),
            ours=True,
        ),
        Claim(
            "close-to-gmf",
            "FedBSO comes close to centralised GMF (threshold: 0.98 of its HR)",
            "1.3, 4.3.2",
            ShareOf("fedbso, tuned", "gmf", HR, 0.98),
        ),
        Claim(
            "perturbation-is-the-cause",
            "the lead comes from replacing and swapping centres",
            "abstract, 4.3.1, 5",
            ahead("fedbso", "fedbso, no perturbation"),
        ),
        Claim(
            "clusters-are-the-cause",
            "similarity between users makes FedBSO better than averaging "
            "(threshold: averaging the touched rows without clusters is behind)",
            "4.3.1",
            Ahead("fedbso", "fedavg, touched", HR),
        ),
        Claim(
            "users-need-their-own-rows",
            "FedBSO is better where every user has a row of its own, and not one per cluster",
            "Algorithm 2, line 21",
            ahead("fedbso", ONE_ROW),
            ours=True,
        ),
        Claim(
            "sooner-than-fedfast",
            "FedBSO converges faster than FedFast (4.3.2, 5.1.2); 1.3 says slightly slower",
            "4.3.2, 5.1.2",
            Sooner("fedbso", "fedfast", HR),
        ),
        Claim(
            "sooner-than-fedfast-tuned",
            "the same with tuned settings",
            "4.3.2",
            Sooner("fedbso, tuned", "fedfast, tuned", HR),
            ours=True,
        ),
        Claim(
            "fedfast-accelerates",
            "FedFast reaches FedAvg's best far sooner (threshold: in a fifth of the rounds)",
            "4.3.1",
            Reaches("fedfast", "fedavg", HR, 200),
            ("ml-100k", "ml-1m"),
        ),
        Claim(
            "steadier-late",
            "late in training FedBSO varies less than FedFast",
            "4.3.2, 5.1.3",
            steadier("fedbso", "fedfast"),
        ),
        Claim(
            "steadier-late-tuned",
            "the same with tuned settings",
            "5.1.3",
            steadier("fedbso, tuned", "fedfast, tuned"),
            ours=True,
        ),
        Claim(
            "plateau",
            "FedBSO has a small plateau before it converges "
            "(threshold: 30 rounds without a better model)",
            "5.1.4",
            All(tuple(Stalls("fedbso", metric, 30) for metric in BOTH)),
        ),
        Claim(
            "fedavg-cannot-learn",
            "FedAvg does not learn enough in any number of rounds (threshold: with touched-row "
            "averaging and tuned settings it stays 2 points behind FedBSO)",
            "4.3.2",
            Ahead("fedbso, tuned", "fedavg, touched, tuned", HR, by=0.02),
        ),
        Claim(
            "local-optima",
            "FedBSO escapes local optima and reaches the global optimum",
            "abstract, 1.2, 5.1.3",
            Untestable("the thesis defines neither and gives no loss"),
        ),
        Claim(
            "sparse-data",
            "its GMF base makes FedBSO robust on sparse data",
            "1.3",
            Untestable("the thesis has no experiment, and all methods share that base"),
        ),
    ),
    absent=(
        "Pinterest as in the thesis (55,187 users, 1,500,809 pins) is not available. Ours has "
        "37,326 users, 9,832 items and 996,983 pins. It has no timestamps, so that test items "
        "are held out at random.",
    ),
)

PAPER = Paper(
    name="fedbso",
    title="Decentralized recommendation system based on BSO",
    reference="Liu. Undergraduate thesis, Southern University of Science and Technology, 2024.",
    items=(TABLE2,),
    quick={"rounds": 100, "epochs": 20},
)
