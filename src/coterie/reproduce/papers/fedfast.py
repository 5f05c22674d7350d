"""FedFast, Sections 3 to 5: accuracy, number of clusters, its two parts, absence and load."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from coterie.experiments.config import tuned_settings
from coterie.experiments.plan import Method
from coterie.reproduce.checks import Ahead, All, AtMost, Level, ShareOf, Untestable
from coterie.reproduce.curve_checks import NeverBelow, Reaches, Settles, Sooner, TimesSooner
from coterie.reproduce.items import Claim, Item, Measurement, Paper, Trial
from coterie.reproduce.papers.tuned_settings import paper_settings
from coterie.reproduce.selection_counts import selection_spread
from coterie.reproduce.sweep_checks import Flat
from coterie.types import JsonObject

PaperFigures: TypeAlias = dict[str, tuple[float, float]]
"""Method -> (HR, NDCG) as the paper prints them."""

HR = "HR@10"
NDCG = "NDCG@10"
BOTH = (HR, NDCG)
LITERAL = "fedavg, FedFast's settings"
"""The paper's comparison: the same hyper-parameters for both."""
ANYTIME = "fedfast, constant step"
"""FedFast without learning-rate decay, for claims about every round."""
SIZE = {"embedding_size": 10}
STRONG = ("als", "ease", "popular")
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
    """The settings tuned for a method, at the paper's embedding size."""
    return paper_settings("fedfast", dataset, name) | SIZE


def accuracy(
    dataset: str,
    seeds: int,
    rounds: int,
    strong: tuple[str, ...] = STRONG,
    sample_users: int | None = None,
) -> Trial:
    """All methods of Table 2 on one dataset, and strong baselines of their own best size."""
    fedfast = settings(dataset, "fedfast")
    fedavg = settings(dataset, "fedavg")
    every_five = {"evaluate_every": 5}
    longest = {"rounds": rounds, "evaluate_every": 5}
    constant = {"final_rate": 1.0}
    methods = (
        Method("fedfast", "fedfast", fedfast | every_five),
        Method(ANYTIME, "fedfast", fedfast | longest | constant),
        Method("fedavg", "fedavg", fedavg | longest),
        Method(LITERAL, "fedavg", fedfast | longest | constant),
        Method("fedavg, touched", "fedavg", fedfast | every_five | {"average": "touched"}),
        Method("gmf", "gmf", settings(dataset, "gmf")),
        Method("bpr", "bpr", settings(dataset, "bpr")),
        *(Method(name, name, paper_settings("fedfast", dataset, name)) for name in strong),
    )
    return Trial(
        dataset=dataset,
        methods=methods,
        settings={} if sample_users is None else {"sample_users": sample_users},
        protocol="loo-50",
        seeds=seeds,
        paper=TABLE2_FIGURES[dataset],
    )


def significantly_ahead(first: str, other: str) -> All:
    """Ahead in HR and in NDCG with p < 0.01, the paper's level."""
    return All(tuple(Ahead(first, other, metric, p=0.01) for metric in BOTH))


TABLE2 = Item(
    key="table2",
    title="Table 2 and Figure 3: accuracy and convergence",
    about=(
        "Embedding size 10, a tenth of the users per round, 20 clusters. Every method has "
        f"settings tuned on the validation part. `{LITERAL}` is the paper's comparison: the same "
        "settings for both. `fedavg` has its own tuned settings. `fedavg, touched` averages each "
        f"row over the clients that changed it. `{ANYTIME}` is for claims about every round. ALS "
        "and EASE have their own best size, so that no baseline is weak."
    ),
    metrics=BOTH,
    trials=(
        accuracy("ml-100k", seeds=5, rounds=1000),
        accuracy("ml-1m", seeds=3, rounds=300),
        accuracy("tripadvisor", seeds=3, rounds=200),
        accuracy("yelp", seeds=3, rounds=200, strong=("als", "popular"), sample_users=7975),
    ),
    claims=(
        Claim(
            "ahead-of-fedavg",
            "FedFast is significantly ahead of FedAvg in HR and NDCG (p < 0.01), with the same "
            "settings for both",
            "4.1, 6",
            significantly_ahead("fedfast", LITERAL),
        ),
        Claim(
            "ahead-of-tuned-fedavg",
            "the same against FedAvg with its own tuned settings (our addition)",
            "4.1",
            significantly_ahead("fedfast", "fedavg"),
        ),
        Claim(
            "similar-to-central",
            "FedFast performs like centralised GMF (threshold: 0.97 of its HR, 0.96 of its NDCG)",
            "6",
            All((ShareOf("fedfast", "gmf", HR, 0.97), ShareOf("fedfast", "gmf", NDCG, 0.96))),
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
            "FedFast reaches FedAvg's best HR on ML-100K by round 30",
            "4.2",
            Reaches(ANYTIME, LITERAL, HR, 30),
            ("ml-100k",),
        ),
        Claim(
            "round-30-tuned",
            "the same against FedAvg with its own tuned settings",
            "4.2",
            Reaches(ANYTIME, "fedavg", HR, 30),
            ("ml-100k",),
        ),
        Claim(
            "ndcg-4-times-sooner",
            "FedFast reaches FedAvg's best NDCG at least 4 times sooner on ML-100K",
            "6",
            TimesSooner(ANYTIME, LITERAL, NDCG, 4),
            ("ml-100k",),
        ),
        Claim(
            "ndcg-20-times-sooner",
            "and more than 20 times sooner on TripAdvisor",
            "6",
            TimesSooner(ANYTIME, LITERAL, NDCG, 20),
            ("tripadvisor",),
        ),
        Claim(
            "settles",
            "FedFast soon stays within 5 % of its best (threshold: in the first half of the "
            "rounds)",
            "4.2",
            All(tuple(Settles(ANYTIME, metric, 0.95, 0.5) for metric in BOTH)),
        ),
        Claim(
            "anytime",
            "FedFast's model is better than FedAvg's in every round, with the same settings "
            "(after the fifth round)",
            "4.2, abstract",
            NeverBelow(ANYTIME, LITERAL, BOTH, after=5),
        ),
        Claim(
            "anytime-tuned",
            "the same against FedAvg with its own tuned settings",
            "4.2",
            NeverBelow(ANYTIME, "fedavg", BOTH, after=5),
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
        "NCF: the paper announces it and prints no number.",
        "EASE on Yelp: 18,102 items would need 7 GiB and an hour.",
    ),
)


def on_ml_100k(
    *methods: Method, seeds: int = 5, paper: dict[str, tuple[float]] | None = None
) -> Trial:
    """A trial on ML-100K with the paper's protocol."""
    return Trial(
        dataset="ml-100k", protocol="loo-50", seeds=seeds, methods=methods, paper=paper or {}
    )


def tuned(name: str, **changes: object) -> JsonObject:
    """The settings tuned for a method on ML-100K, with changes."""
    return tuned_settings("ml-100k", name) | changes


FIGURE4 = Item(
    key="figure4",
    title="Figure 4: number of clusters",
    about=(
        "ML-100K. The paper plots the rounds to the best HR and NDCG. We report the figures at "
        "the end and the rounds to 95 % of the best."
    ),
    metrics=BOTH,
    by="clusters",
    trials=(
        on_ml_100k(
            *(
                Method(f"p = {p}", "fedfast", tuned("fedfast", clusters=p, evaluate_every=5))
                for p in (5, 10, 20, 30, 40, 60, 100)
            )
        ),
    ),
    claims=(
        Claim(
            "same-quality",
            "HR and NDCG are similar for every p (threshold: a range of 2 points)",
            "4.3",
            All((Flat(HR, 0.02), Flat(NDCG, 0.02))),
        ),
        Claim(
            "more-clusters-later-best",
            "the rounds to the best HR grow with p",
            "4.3",
            Sooner("p = 5", "p = 60", HR),
        ),
        Claim(
            "p100-sooner-than-p5",
            "p = 100 needs far fewer rounds than p = 5",
            "4.3",
            Sooner("p = 100", "p = 5", HR),
        ),
        Claim(
            "best-near-30",
            "the best p is about the 30 groups that metadata suggests",
            "4.3",
            Untestable("the paper does not say how it found the 30 groups"),
        ),
    ),
)

FIGURE5 = Item(
    key="figure5",
    title="Figure 5: the two parts alone",
    about=(
        "ML-100K, 1,000 rounds with a constant learning rate, FedFast's settings for all. "
        "ActvSAMP alone samples from clusters of the averaged user rows."
    ),
    metrics=BOTH,
    trials=(
        on_ml_100k(
            *(
                Method(name, name, tuned("fedfast", rounds=1000, final_rate=1.0, evaluate_every=5))
                for name in ("fedfast", "fedavg+actvagg", "fedavg+actvsamp", "fedavg")
            ),
            paper={"fedfast": (0.89,), "fedavg": (0.79,)},
        ),
    ),
    claims=(
        Claim(
            "sampling-alone-does-nothing",
            "FedAvg with ActvSAMP is almost identical to FedAvg (threshold: 2 points of HR)",
            "Figure 5",
            Level("fedavg+actvsamp", "fedavg", HR, 0.02),
        ),
        Claim(
            "aggregation-is-most-of-it",
            "ActvAGG contributes the most, in quality and speed",
            "4.4",
            Ahead("fedavg+actvagg", "fedavg+actvsamp", HR),
        ),
        Claim(
            "both-are-best",
            "FedFast is ahead of ActvAGG alone",
            "4.4",
            Ahead("fedfast", "fedavg+actvagg", HR),
        ),
    ),
)

SIZES = Item(
    key="section31",
    title="Section 3.1: embedding size",
    about="ML-100K. At size 8 the model has 21,009 parameters, as the paper says.",
    metrics=BOTH,
    by="embedding_size",
    trials=(
        on_ml_100k(
            *(
                Method(f"d = {d}", "fedfast", tuned("fedfast", embedding_size=d))
                for d in (4, 8, 9, 10, 16, 32, 64)
            ),
            seeds=3,
        ),
    ),
    claims=(
        Claim(
            "twelve-percent-more",
            "12 % more parameters (size 9 instead of 8) give 5.6 % more accuracy",
            "3.1",
            ShareOf("d = 9", "d = 8", HR, 1.056),
        ),
    ),
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
            *(
                Method(f"{name}, {share:.0%} dropout", name, tuned(name, client_dropout=share))
                for name in ("fedfast", "fedavg")
                for share in (0.0, 0.3, 0.6)
            )
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
    trials=(
        on_ml_100k(
            *(
                Method(name + label, name, tuned(name, **availability))
                for name in ("fedfast", "fedavg")
                for label, availability in AVAILABILITY.items()
            )
        ),
    ),
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
            measure=partial(selection_spread, ("fedfast", "fedavg"), "ml-100k", tuned("fedfast")),
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
    items=(TABLE2, FIGURE4, FIGURE5, SIZES, DROPOUT, ABSENCE, LOAD),
    quick={"rounds": 100, "epochs": 15},
)
