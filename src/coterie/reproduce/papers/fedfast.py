"""FedFast, Sections 3 to 5: accuracy, clusters, its two parts, absence, load, NCF and ratings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from coterie.experiments.plan import Method
from coterie.reproduce.checks import Ahead, All, AtMost, Fewer, Level, ShareOf, Untestable
from coterie.reproduce.curve_checks import NeverBelow, Reaches, Settles, Sooner, TimesSooner
from coterie.reproduce.findings import ROUNDS_TO_BEST
from coterie.reproduce.items import Check, Claim, Item, Measurement, Paper, SettingsSearch, Trial
from coterie.reproduce.papers.tuned_settings import (
    WHOLE_COHORT,
    found_search,
    found_settings,
    was_searched,
)
from coterie.reproduce.selection_counts import selection_spread
from coterie.reproduce.sweep_checks import (
    AllBelow,
    Correlates,
    ExtremesAbove,
    Flat,
    SmallestWithin,
)
from coterie.types import JsonObject

PaperFigures: TypeAlias = dict[str, tuple[float, float]]
"""Method -> (HR, NDCG) as the paper prints them."""

HR = "HR@10"
NDCG = "NDCG@10"
BOTH = (HR, NDCG)
FAST = "fedfast, constant"
AVG = "fedavg, constant"
"""Tuned with a constant learning rate. The paper speaks of no decay, and a curve whose learning
rate decays is best at its end by design, so claims about rounds need these."""
AVG_AS_FAST = "fedavg, FedFast's settings"
FAST_AS_AVG = "fedfast, FedAvg's settings"
"""The paper's comparison, the same hyper-parameters for both, in its two directions."""
TOUCHED = "fedavg, touched"
EVERY_FIVE = {"evaluate_every": 5}
STRONG = ("als", "ease", "popular")
MOST_ROUNDS = {"ml-100k": 500, "ml-1m": 300, "tripadvisor": 400, "yelp": 300}
"""The limits of the searches (benchmarks/paper_search.py)."""
TABLE2_FIGURES: dict[str, PaperFigures] = {
    "ml-100k": {
        "fedfast": (0.89, 0.62), "fedavg": (0.79, 0.51), "gmf": (0.91, 0.42), "bpr": (0.92, 0.30),
    },
    "ml-1m": {
        "fedfast": (0.71, 0.44), "fedavg": (0.60, 0.35), "gmf": (0.61, 0.34), "bpr": (0.86, 0.29),
    },
    "tripadvisor": {
        "fedfast": (0.50, 0.26), "fedavg": (0.42, 0.22), "gmf": (0.45, 0.24), "bpr": (0.51, 0.20),
    },
    "yelp": {
        "fedfast": (0.62, 0.36), "fedavg": (0.23, 0.11), "gmf": (0.71, 0.45), "bpr": (0.81, 0.28),
    },
}  # fmt: skip


def settings(dataset: str, name: str) -> JsonObject:
    """The settings found for a method, at the paper's embedding size."""
    return found_settings("fedfast", dataset, name)


def search(dataset: str, name: str) -> SettingsSearch:
    """How they were found."""
    return found_search("fedfast", dataset, name, MOST_ROUNDS[dataset])


def taken_from(dataset: str, owner: str) -> SettingsSearch:
    """The search of a method that has another one's settings."""
    found = search(dataset, owner)
    note = f"Taken from {owner}; not searched for this method."
    return SettingsSearch(trials=found.trials, space=found.space, note=note)


def shared_settings(dataset: str, owner: str) -> JsonObject:
    """One method's settings for the other, with as many rounds as either search found best."""
    rounds = max(settings(dataset, name)["rounds"] for name in (FAST, AVG))
    return hyper_parameters(settings(dataset, owner)) | EVERY_FIVE | {"rounds": rounds}


def hyper_parameters(found: JsonObject) -> JsonObject:
    """What FedFast and FedAvg both have: all settings but FedAvg's reading of Eq. 1."""
    return {key: value for key, value in found.items() if key not in WHOLE_COHORT}


def accuracy(
    dataset: str,
    seeds: int,
    strong: tuple[str, ...] = STRONG,
    sample_users: int | None = None,
) -> Trial:
    """All methods of Table 2 on one dataset, and strong baselines of their own best size."""
    federated = {
        "fedfast": "fedfast", FAST: "fedfast", "fedavg": "fedavg", AVG: "fedavg",
        TOUCHED: "fedavg",
    }  # fmt: skip
    searched = ("gmf", "bpr", *(name for name in strong if name != "popular"))
    methods = (
        *(
            Method(label, algorithm, settings(dataset, label) | EVERY_FIVE)
            for label, algorithm in federated.items()
        ),
        Method(AVG_AS_FAST, "fedavg", shared_settings(dataset, FAST) | WHOLE_COHORT),
        Method(FAST_AS_AVG, "fedfast", shared_settings(dataset, AVG)),
        *(Method(name, name, settings(dataset, name)) for name in searched),
        Method("popular", "popular"),
    )
    return Trial(
        dataset=dataset,
        methods=methods,
        settings={} if sample_users is None else {"sample_users": sample_users},
        protocol="loo-50",
        seeds=seeds,
        paper=TABLE2_FIGURES[dataset],
        searches={
            **{name: search(dataset, name) for name in (*federated, *searched)},
            AVG_AS_FAST: taken_from(dataset, FAST),
            FAST_AS_AVG: taken_from(dataset, AVG),
        },
    )


def significantly_ahead(first: str, other: str) -> tuple[Ahead, ...]:
    """Ahead in HR and in NDCG with p < 0.01, the paper's level."""
    return tuple(Ahead(first, other, metric, p=0.01) for metric in BOTH)


def lowest_ratio(other: str, metric: str) -> float:
    """FedFast's lowest share of another method's figure in the paper's own Table 2."""
    number = BOTH.index(metric)
    return round(
        min(
            figures["fedfast"][number] / figures[other][number]
            for figures in TABLE2_FIGURES.values()
        ),
        2,
    )


def times_sooner(times: float) -> All:
    """FedFast reaches FedAvg's best NDCG sooner, with the same settings, in both directions."""
    return All(
        (
            TimesSooner(FAST, AVG_AS_FAST, NDCG, times),
            TimesSooner(FAST_AS_AVG, AVG, NDCG, times),
        )
    )


GMF_HR = lowest_ratio("gmf", HR)
GMF_NDCG = lowest_ratio("gmf", NDCG)
BPR_HR = lowest_ratio("bpr", HR)

TABLE2 = Item(
    key="table2",
    title="Table 2 and Figure 3: accuracy and convergence",
    about=(
        "Embedding size 10, a tenth of the users per round, 20 clusters. Every method has its own "
        "settings, found with equal trials on the validation part. The paper compares FedFast and "
        f"FedAvg with the same settings and names no decay, so we do it with a constant learning "
        f"rate and in both directions: `{FAST}` and `{AVG_AS_FAST}`, `{FAST_AS_AVG}` and `{AVG}`. "
        "The rows with another method's settings have as many rounds as either search found best. "
        "Without `constant` the learning rate may decay. `fedavg, touched` averages each row over "
        "the clients that changed it. ALS and EASE have their own best size, so that no baseline "
        "is weak."
    ),
    metrics=BOTH,
    trials=(
        accuracy("ml-100k", seeds=5),
        accuracy("ml-1m", seeds=3),
        accuracy("tripadvisor", seeds=3),
        accuracy("yelp", seeds=3, strong=("als", "popular"), sample_users=7975),
    ),
    claims=(
        Claim(
            "ahead-of-fedavg",
            "FedFast is significantly ahead of FedAvg in HR and NDCG (p < 0.01), with the same "
            "settings for both: FedFast's, and FedAvg's",
            "4.1, 6",
            All((*significantly_ahead(FAST, AVG_AS_FAST), *significantly_ahead(FAST_AS_AVG, AVG))),
        ),
        Claim(
            "ahead-of-tuned-fedavg",
            "the same with each method's own settings, with and without decay",
            "4.1",
            All((*significantly_ahead("fedfast", "fedavg"), *significantly_ahead(FAST, AVG))),
            ours=True,
        ),
        Claim(
            "ahead-of-touched",
            "the same against FedAvg over touched rows, each with its own settings",
            "4.1",
            All(significantly_ahead("fedfast", TOUCHED)),
            ours=True,
        ),
        Claim(
            "similar-to-central",
            "FedFast performs like centralised GMF (threshold: the lowest ratios of the paper's "
            f"own Table 2, those of Yelp: {GMF_HR:.2f} of its HR, {GMF_NDCG:.2f} of its NDCG)",
            "6",
            All(
                (
                    ShareOf("fedfast", "gmf", HR, GMF_HR),
                    ShareOf("fedfast", "gmf", NDCG, GMF_NDCG),
                )
            ),
        ),
        Claim(
            "comparable-to-bpr",
            "in most cases FedFast is comparable to BPR (threshold: the lowest HR ratio of the "
            f"paper's own Table 2, {BPR_HR:.2f})",
            "6",
            ShareOf("fedfast", "bpr", HR, BPR_HR),
        ),
        Claim(
            "ahead-of-gmf-sometimes",
            "in some cases FedFast is ahead of centralised GMF (in the paper: NDCG on ML-100K, "
            "both on ML-1M and TripAdvisor)",
            "4.1",
            All(tuple(Ahead("fedfast", "gmf", metric) for metric in BOTH)),
            ("ml-100k", "ml-1m", "tripadvisor"),
        ),
        Claim(
            "ahead-of-bpr-in-ndcg",
            "FedFast is ahead of BPR in NDCG on ML-1M and TripAdvisor",
            "4.1",
            Ahead("fedfast", "bpr", NDCG),
            ("ml-1m", "tripadvisor"),
        ),
        Claim(
            "round-30",
            "FedFast reaches FedAvg's best HR on ML-100K by round 30, with the same settings",
            "4.2",
            All((Reaches(FAST, AVG_AS_FAST, HR, 30), Reaches(FAST_AS_AVG, AVG, HR, 30))),
            ("ml-100k",),
        ),
        Claim(
            "round-30-tuned",
            "the same with each method's own settings",
            "4.2",
            Reaches(FAST, AVG, HR, 30),
            ("ml-100k",),
            ours=True,
        ),
        Claim(
            "ndcg-4-times-sooner",
            "FedFast reaches FedAvg's best NDCG at least 4 times sooner on ML-100K, with the same "
            "settings",
            "6",
            times_sooner(4),
            ("ml-100k",),
        ),
        Claim(
            "ndcg-20-times-sooner",
            "and more than 20 times sooner on TripAdvisor",
            "6",
            times_sooner(20),
            ("tripadvisor",),
        ),
        Claim(
            "settles",
            "FedFast soon stays within 5 % of its best (threshold: in the first half of the "
            "rounds)",
            "4.2",
            All(tuple(Settles(FAST, metric, 0.95, 0.5) for metric in BOTH)),
        ),
        Claim(
            "anytime",
            "FedFast's model is better than FedAvg's in every round, with the same settings "
            "(after the fifth round)",
            "4.2, abstract",
            All(
                (
                    NeverBelow(FAST, AVG_AS_FAST, BOTH, after=5),
                    NeverBelow(FAST_AS_AVG, AVG, BOTH, after=5),
                )
            ),
        ),
        Claim(
            "anytime-tuned",
            "the same with each method's own settings",
            "4.2",
            NeverBelow(FAST, AVG, BOTH, after=5),
            ours=True,
        ),
        Claim(
            "same-start",
            "FedFast and FedAvg start at the same HR and NDCG",
            "4.2",
            Untestable(
                "true by construction: both start with the same weights, and the first "
                "evaluation is after five rounds"
            ),
        ),
    ),
    absent=(
        "The paper's Yelp and TripAdvisor are not available. Our Yelp is 7,975 users sampled by "
        "seed from another release. Our TripAdvisor is another, smaller scrape; its test items "
        "are held out at random.",
        "EASE on Yelp: 18,102 items would need 7 GiB and an hour.",
    ),
)


# ML-100K only


def on_ml_100k(
    *methods: Method,
    searches: dict[str, SettingsSearch],
    seeds: int = 5,
    paper: dict[str, tuple[float]] | None = None,
) -> Trial:
    """A trial on ML-100K with the paper's protocol."""
    return Trial(
        dataset="ml-100k",
        protocol="loo-50",
        seeds=seeds,
        methods=methods,
        searches=searches,
        paper=paper or {},
    )


def tuned(name: str, **changes: object) -> JsonObject:
    """The settings found for a method on ML-100K, with changes."""
    return settings("ml-100k", name) | changes


def same_search(owner: str, methods: Sequence[Method]) -> dict[str, SettingsSearch]:
    """The search of methods that all have one method's settings but for the setting in question."""
    return dict.fromkeys((method.label for method in methods), search("ml-100k", owner))


CLUSTERS = (5, 10, 20, 30, 40, 60, 100)
"""The paper's values, and the 30 groups it speaks of."""
BEST_HR = ROUNDS_TO_BEST + HR
BEST_NDCG = ROUNDS_TO_BEST + NDCG
LONG = EVERY_FIVE | {"rounds": MOST_ROUNDS["ml-100k"]}
BY_CLUSTERS = tuple(Method(f"p = {p}", "fedfast", tuned(FAST, clusters=p) | LONG) for p in CLUSTERS)


def faster_than(other: str) -> All:
    """Fewer rounds to the best HR and NDCG than another method, whatever p."""
    return All(tuple(AllBelow("fedfast", other, metric) for metric in (BEST_HR, BEST_NDCG)))


FIGURE4 = Item(
    key="figure4",
    title="Figure 4: number of clusters",
    about=(
        "ML-100K, 500 rounds with a constant learning rate, measured every five rounds. The "
        "rounds to the best HR and NDCG, as the paper plots them, and the figures at the end. "
        f"`{AVG_AS_FAST}` has the settings of all p; `{AVG}` has its own."
    ),
    metrics=(*BOTH, BEST_HR, BEST_NDCG),
    by="clusters",
    quick_at=(5, 20, 100),
    trials=(
        on_ml_100k(
            *BY_CLUSTERS,
            Method(AVG_AS_FAST, "fedavg", tuned(FAST) | LONG | WHOLE_COHORT),
            Method(AVG, "fedavg", tuned(AVG) | LONG),
            searches={
                **same_search(FAST, BY_CLUSTERS),
                AVG_AS_FAST: taken_from("ml-100k", FAST),
                AVG: search("ml-100k", AVG),
            },
        ),
    ),
    claims=(
        Claim(
            "same-quality",
            "HR and NDCG are similar for every p (threshold: a range of 2 points)",
            "4.3",
            All((Flat(HR, 0.02, "fedfast"), Flat(NDCG, 0.02, "fedfast"))),
        ),
        Claim(
            "more-clusters-later-best",
            "the rounds to the best HR are proportional to p, up to p = 60 (threshold: a "
            "correlation of 0.8)",
            "4.3",
            Correlates("fedfast", BEST_HR, 0.8, below=100),
        ),
        Claim(
            "p100-sooner-than-p5",
            "p = 100 needs far fewer rounds to the best HR than p = 5 (threshold: half)",
            "4.3",
            Fewer("p = 100", "p = 5", BEST_HR, 0.5),
        ),
        Claim(
            "ndcg-extremes-slower",
            "the rounds to the best NDCG follow no pattern (threshold: a correlation below 0.8), "
            "but the extreme values of p are slower",
            "4.3",
            All((Correlates("fedfast", BEST_NDCG, -0.8, 0.8), ExtremesAbove("fedfast", BEST_NDCG))),
        ),
        Claim(
            "best-near-30",
            "the best p is near 30, the groups that metadata suggests (threshold: 20 to 40)",
            "4.3",
            All(
                tuple(SmallestWithin("fedfast", metric, 20, 40) for metric in (BEST_HR, BEST_NDCG))
            ),
        ),
        Claim(
            "faster-than-fedavg",
            "FedFast converges faster than FedAvg whatever p, with the same settings",
            "4.3",
            faster_than(AVG_AS_FAST),
        ),
        Claim(
            "faster-than-tuned-fedavg",
            "the same against FedAvg with its own settings",
            "4.3",
            faster_than(AVG),
            ours=True,
        ),
    ),
)

# Figure 5: ablations with FedFast's settings, then with FedAvg's
ABLATIONS: dict[str, tuple[str, JsonObject]] = {
    "fedfast": ("fedfast", {}),
    "fedavg+actvagg": ("fedavg+actvagg", {}),
    "fedavg+actvsamp": ("fedavg+actvsamp", WHOLE_COHORT),
    "fedavg+actvsamp, profiles": (
        "fedavg+actvsamp",
        WHOLE_COHORT | {"clusters_follow": "profiles"},
    ),
    "fedavg": ("fedavg", WHOLE_COHORT),
}
"""Label -> algorithm and settings that differ."""
OF_FEDAVG = ", FedAvg's settings"
"""The ending of the labels of the second direction."""


def ablation(owner: str, ending: str = "") -> tuple[Method, ...]:
    """Figure 5 with one method's settings for all, and the paper's 1,000 rounds."""
    shared = hyper_parameters(tuned(owner, rounds=1000, **EVERY_FIVE))
    return tuple(
        Method(label + ending, algorithm, shared | own)
        for label, (algorithm, own) in ABLATIONS.items()
    )


def in_both_directions(checks: Callable[[str], tuple[Check, ...]]) -> All:
    """Checks of Figure 5 with FedFast's settings and with FedAvg's, by the ending of labels."""
    return All((*checks(""), *checks(OF_FEDAVG)))


FIGURE5 = Item(
    key="figure5",
    title="Figure 5: the two parts alone",
    about=(
        "ML-100K, 1,000 rounds with a constant learning rate: with FedFast's settings for all, "
        "and with FedAvg's for all. ActvSAMP alone samples from clusters of the averaged user "
        "rows, or (`profiles`) from the first clusters for ever."
    ),
    metrics=BOTH,
    trials=(
        on_ml_100k(
            *ablation(FAST),
            *ablation(AVG, OF_FEDAVG),
            paper={"fedfast": (0.89,), "fedavg": (0.79,)},
            searches={
                **{
                    method.label: search("ml-100k", FAST)
                    if method.algorithm == "fedfast"
                    else taken_from("ml-100k", FAST)
                    for method in ablation(FAST)
                },
                **{
                    method.label: search("ml-100k", AVG)
                    if method.algorithm == "fedavg"
                    else taken_from("ml-100k", AVG)
                    for method in ablation(AVG, OF_FEDAVG)
                },
            },
        ),
    ),
    claims=(
        Claim(
            "sampling-alone-does-nothing",
            "FedAvg with ActvSAMP is almost identical to FedAvg (threshold: 2 points of HR)",
            "Figure 5",
            in_both_directions(
                lambda ending: (
                    Level(f"fedavg+actvsamp{ending}", f"fedavg{ending}", HR, 0.02),
                    Level(f"fedavg+actvsamp, profiles{ending}", f"fedavg{ending}", HR, 0.02),
                )
            ),
        ),
        Claim(
            "aggregation-is-most-of-it",
            "ActvAGG contributes the most, in quality and speed",
            "4.4",
            in_both_directions(
                lambda ending: (
                    Ahead(f"fedavg+actvagg{ending}", f"fedavg+actvsamp{ending}", HR),
                    TimesSooner(f"fedavg+actvagg{ending}", f"fedavg+actvsamp{ending}", HR, 1),
                )
            ),
        ),
        Claim(
            "both-are-best",
            "FedFast is ahead of ActvAGG alone, and faster (threshold: 95 % of its best sooner)",
            "4.4",
            in_both_directions(
                lambda ending: (
                    Ahead(f"fedfast{ending}", f"fedavg+actvagg{ending}", HR),
                    Sooner(f"fedfast{ending}", f"fedavg+actvagg{ending}", HR),
                )
            ),
        ),
    ),
)

BY_SIZE = tuple(
    Method(f"d = {d}", "fedfast", tuned("fedfast", embedding_size=d))
    for d in (4, 8, 9, 10, 16, 32, 64)
)
SIZES = Item(
    key="section31",
    title="Section 3.1: embedding size",
    about="ML-100K. At size 8 the model has 21,009 parameters, as the paper says.",
    metrics=BOTH,
    by="embedding_size",
    quick_at=(8, 9),
    trials=(on_ml_100k(*BY_SIZE, searches=same_search("fedfast", BY_SIZE), seeds=3),),
    claims=(
        Claim(
            "twelve-percent-more",
            "12 % more parameters (size 9 instead of 8) give 5.6 % more accuracy",
            "3.1",
            ShareOf("d = 9", "d = 8", HR, 1.056),
        ),
    ),
)

FEDERATED = ("fedfast", "fedavg")


def both_searches(labels: Sequence[str]) -> dict[str, SettingsSearch]:
    """The searches of variants of FedFast and FedAvg, which have those methods' settings."""
    return {label: search("ml-100k", label.partition(",")[0]) for label in labels}


WITH_DROPOUT = tuple(
    Method(f"{name}, {share:.0%} dropout", name, tuned(name, client_dropout=share))
    for name in FEDERATED
    for share in (0.0, 0.3, 0.6)
)
DROPOUT = Item(
    key="section5",
    title="Section 5, dropout: clients that never reply",
    about=(
        "ML-100K. A share of each round's clients never replies. The paper makes the claim "
        "without an experiment."
    ),
    metrics=BOTH,
    by="client_dropout",
    trials=(
        on_ml_100k(
            *WITH_DROPOUT, searches=both_searches([method.label for method in WITH_DROPOUT])
        ),
    ),
    claims=(
        Claim(
            "drop-out-does-no-harm",
            "dropout does not change FedFast's performance (threshold: 2 points of HR)",
            "5",
            All(
                tuple(
                    Level(f"fedfast, {share} dropout", "fedfast, 0% dropout", HR, 0.02)
                    for share in ("30%", "60%")
                )
            ),
        ),
    ),
)

AVAILABILITY: dict[str, JsonObject] = {
    "": {},
    ", stretches": {"availability": "stretches"},
    ", diurnal": {"availability": "diurnal"},
}
"""Label -> setting of client availability."""


def under(patterns: dict[str, JsonObject]) -> Trial:
    """FedFast and FedAvg with each pattern of availability."""
    methods = tuple(
        Method(name + label, name, tuned(name, **pattern))
        for name in FEDERATED
        for label, pattern in patterns.items()
    )
    return on_ml_100k(*methods, searches=both_searches([method.label for method in methods]))


ABSENCE = Item(
    key="absence",
    title="Section 5, absence: clients that are not available",
    about=(
        "ML-100K. `stretches`: every client is unavailable for a third of the rounds, in one "
        "stretch. `diurnal`: availability follows the time of day, 40 % of the clients on "
        "average. The cohort is sampled from the available clients. The paper makes the claim "
        "without an experiment."
    ),
    metrics=BOTH,
    trials=(under(AVAILABILITY),),
    claims=(
        Claim(
            "absence-does-no-harm",
            "periods of absence do not change performance (threshold: 2 points of HR)",
            "5",
            All(
                tuple(
                    Level(f"fedfast{label}", "fedfast", HR, 0.02)
                    for label in (", stretches", ", diurnal")
                )
            ),
        ),
        Claim(
            "similar-users-stand-in",
            "because similar users stand in for unavailable ones (threshold: FedAvg, which has "
            "no clusters, loses 2 points)",
            "5",
            All(
                tuple(
                    Ahead("fedavg", f"fedavg{label}", HR, by=0.02)
                    for label in (", stretches", ", diurnal")
                )
            ),
            ours=True,
        ),
    ),
)

HEAVY = ", heavy users away"
SPORADIC = Item(
    key="sporadic",
    title="Section 5, sporadic users: heavy contributors are away",
    about=(
        "ML-100K. The tenth of the clients with the most training interactions is away, each once "
        "for two thirds of the run; in every round about two thirds of them are. The paper makes "
        "the claim without an experiment."
    ),
    metrics=BOTH,
    trials=(under({"": {}, HEAVY: {"availability": "heavy_away"}}),),
    claims=(
        Claim(
            "baseline-suffers",
            "without its heavy contributors FedAvg is significantly worse",
            "5",
            All(tuple(Ahead("fedavg", f"fedavg{HEAVY}", metric) for metric in BOTH)),
        ),
        Claim(
            "fedfast-unaffected",
            "FedFast's performance remains unaffected (threshold: 2 points of HR)",
            "5",
            Level(f"fedfast{HEAVY}", "fedfast", HR, 0.02),
        ),
    ),
)

NCF: JsonObject = {"model": "neumf", "embedding_size": 8, "layers": [32, 16, 8]}
METHODS = {"fedfast": "fedfast", "fedavg": "fedavg", TOUCHED: "fedavg"}
"""Label -> algorithm, for the items with another model or other feedback."""


def elsewhere(kind: str, name: str, model: JsonObject) -> JsonObject:
    """The settings searched for another model or feedback; GMF's where there are none."""
    if was_searched(kind, "ml-100k", name):
        return found_settings(kind, "ml-100k", name)
    return tuned(name) | model


def search_elsewhere(kind: str, name: str, most_rounds: int = 300) -> SettingsSearch:
    """How they were found."""
    if was_searched(kind, "ml-100k", name):
        return found_search(kind, "ml-100k", name, most_rounds)
    found = search("ml-100k", name)
    note = "Found with GMF and implicit feedback; not searched here."
    return SettingsSearch(trials=found.trials, space=found.space, note=note)


NCF_TABLE = Item(
    key="ncf",
    title="Section 4, NCF: another model",
    about=(
        "ML-100K, NeuMF with embeddings of 8 and a tower of 32, 16 and 8. The paper announces a "
        "comparison with NCF in Section 4, prints no figure, and says in Section 5 that FedFast "
        "can be used with it."
    ),
    metrics=BOTH,
    trials=(
        on_ml_100k(
            *(
                Method(label, algorithm, elsewhere("ncf", label, NCF) | EVERY_FIVE)
                for label, algorithm in METHODS.items()
            ),
            searches={label: search_elsewhere("ncf", label) for label in METHODS},
        ),
    ),
    claims=(
        Claim(
            "ahead-with-ncf",
            "FedFast can be used with NCF (threshold: significantly ahead of FedAvg in HR and "
            "NDCG, as with GMF, p < 0.01)",
            "4, 5",
            All(significantly_ahead("fedfast", "fedavg")),
        ),
        Claim(
            "ahead-of-touched-with-ncf",
            "the same against FedAvg over touched rows",
            "5",
            All(significantly_ahead("fedfast", TOUCHED)),
            ours=True,
        ),
    ),
)

ERRORS = ("RMSE", "MAE")


def smaller_errors(first: str, other: str) -> All:
    """At most the other's RMSE and MAE."""
    return All(tuple(AtMost(first, other, metric) for metric in ERRORS))


EXPLICIT = Item(
    key="explicit",
    title="Section 3.1, explicit ratings: errors of predicted ratings",
    about=(
        "ML-100K with its ratings and squared error. The errors are those of the held-out "
        "ratings; less is better. The paper gives the loss and prints no figure."
    ),
    metrics=ERRORS,
    trials=(
        Trial(
            dataset="ml-100k",
            protocol="loo-50",
            seeds=5,
            settings={"feedback": "explicit"},
            methods=tuple(
                Method(label, algorithm, elsewhere("explicit", label, {}))
                for label, algorithm in METHODS.items()
            ),
            searches={label: search_elsewhere("explicit", label) for label in METHODS},
        ),
    ),
    claims=(
        Claim(
            "smaller-errors",
            "FedFast's errors are at most FedAvg's",
            "3.1",
            smaller_errors("fedfast", "fedavg"),
            ours=True,
        ),
        Claim(
            "smaller-errors-than-touched",
            "FedFast's errors are at most those of FedAvg over touched rows",
            "3.1",
            smaller_errors("fedfast", TOUCHED),
            ours=True,
        ),
    ),
)

LOAD = Item(
    key="load",
    title="Section 5, load: how often users are selected",
    about=(
        "ML-100K, one seed. Smallest and largest number of selections of a user over a run, and "
        "the standard deviation over users. FedAvg samples at random."
    ),
    metrics=("minimum", "maximum", "deviation"),
    trials=(
        Measurement(
            dataset="ml-100k",
            measure=partial(selection_spread, FEDERATED, "ml-100k", tuned("fedfast")),
        ),
    ),
    claims=(
        Claim(
            "even-load",
            "ActvSAMP distributes the load evenly (threshold: as evenly as random sampling)",
            "5",
            AtMost("fedfast", "fedavg", "deviation"),
        ),
    ),
)

PAPER = Paper(
    name="fedfast",
    title="FedFast: going beyond average for faster training of federated recommender systems",
    reference=("Muhammad, Wang, O'Reilly-Morgan, Tragos, Smyth, Hurley, Geraci, Lawlor. KDD 2020."),
    items=(
        TABLE2,
        FIGURE4,
        FIGURE5,
        SIZES,
        DROPOUT,
        ABSENCE,
        SPORADIC,
        LOAD,
        NCF_TABLE,
        EXPLICIT,
    ),
    quick={"rounds": 100, "epochs": 15},
)
