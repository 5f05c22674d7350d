"""FedFast, Section 4: accuracy (Table 2, Figure 3), number of clusters (Figure 4), the two parts alone (Figure 5)."""

from __future__ import annotations

from functools import partial
from typing import Any

from coterie.experiments.config import tuned_settings
from coterie.experiments.plan import Method
from coterie.reproduce.checks import Ahead, All, AtMost, Level, ShareOf, Untestable
from coterie.reproduce.curve_checks import NeverBelow, Reaches, Settles, Sooner, TimesSooner
from coterie.reproduce.items import Claim, Item, Measurement, Paper, Trial
from coterie.reproduce.papers.tuned_settings import found
from coterie.reproduce.selection_counts import how_often
from coterie.reproduce.sweep_checks import Flat

HR = "HR@10"
NDCG = "NDCG@10"
BOTH = (HR, NDCG)
LITERAL = "fedavg, FedFast's settings"
"""The paper's comparison: the same hyper-parameters for both."""
ANYTIME = "fedfast, constant step"
"""Without a falling step size, for what is said of every round."""
SIZE = {"embedding_size": 10}
Figures = dict[str, tuple[float, float]]


def settings(dataset: str, name: str) -> dict[str, Any]:
    return found("fedfast", dataset, name) | SIZE


STRONG = ("als", "ease", "popular")


def accuracy(
    dataset: str,
    seeds: int,
    rounds: int,
    paper: Figures,
    strong: tuple[str, ...] = STRONG,
    **cut: Any,
) -> Trial:
    ours = settings(dataset, "fedfast")
    theirs = settings(dataset, "fedavg")
    often = {"evaluate_every": 5}
    longest = {"rounds": rounds, "evaluate_every": 5}
    methods = (
        Method("fedfast", "fedfast", ours | often),
        Method(ANYTIME, "fedfast", ours | longest | {"final_rate": 1.0}),
        Method("fedavg", "fedavg", theirs | longest),
        Method(LITERAL, "fedavg", ours | longest | {"final_rate": 1.0}),
        Method("fedavg, touched", "fedavg", ours | often | {"average": "touched"}),
        Method("gmf", "gmf", settings(dataset, "gmf")),
        Method("bpr", "bpr", settings(dataset, "bpr")),
        *(Method(name, name, found("fedfast", dataset, name)) for name in strong),
    )
    return Trial(
        dataset=dataset, methods=methods, settings=cut, protocol="loo-50", seeds=seeds, paper=paper
    )


TABLE2 = Item(
    key="table2",
    title="Table 2 and Figure 3: accuracy and convergence",
    about=f"Embedding size 10, a tenth of the users a round, 20 clusters. Every method has settings found on validation; `{LITERAL}` is the "
    "paper's comparison, the same settings for both, and `fedavg` is tuned for itself. `fedavg, touched` averages rows over those who touched "
    f"them. `{ANYTIME}` is for claims about every round. ALS and EASE are of their own best size: nobody should be fooled by weak baselines.",
    metrics=BOTH,
    trials=(
        accuracy("ml-100k", 5, 1000, {"fedfast": (0.89, 0.62), "fedavg": (0.79, 0.51), "gmf": (0.91, 0.42), "bpr": (0.92, 0.30)}),
        accuracy("ml-1m", 3, 300, {"fedfast": (0.71, 0.44), "fedavg": (0.60, 0.35), "gmf": (0.61, 0.34), "bpr": (0.86, 0.29)}),
        accuracy("tripadvisor", 3, 200, {"fedfast": (0.50, 0.26), "fedavg": (0.42, 0.22), "gmf": (0.45, 0.24), "bpr": (0.51, 0.20)}),
        accuracy("yelp", 3, 200, {"fedfast": (0.62, 0.36), "fedavg": (0.23, 0.11), "gmf": (0.71, 0.45), "bpr": (0.81, 0.28)}, strong=("als", "popular"), sample_users=7975),
    ),
    claims=(
        Claim("ahead-of-fedavg", "FedFast is ahead of FedAvg in HR and NDCG, significantly (p < 0.01), with the same settings for both", "4.1, 6",
              All(tuple(Ahead("fedfast", LITERAL, m, p=0.01) for m in BOTH))),
        Claim("ahead-of-tuned-fedavg", "the same against a FedAvg that is tuned for itself, which the paper does not have", "4.1",
              All(tuple(Ahead("fedfast", "fedavg", m, p=0.01) for m in BOTH))),
        Claim("similar-to-central", "FedFast performs like the centrally trained GMF (bar: 0.97 of its HR, 0.96 of its NDCG)", "6",
              All((ShareOf("fedfast", "gmf", HR, 0.97), ShareOf("fedfast", "gmf", NDCG, 0.96)))),
        Claim("ahead-of-gmf-sometimes", "in some cases FedFast is ahead of centralised GMF (in the paper: NDCG on ML-100K, both on ML-1M and TripAdvisor)", "4.1",
              All(tuple(Ahead("fedfast", "gmf", m) for m in BOTH)), ("ml-100k", "ml-1m", "tripadvisor")),
        Claim("ahead-of-bpr-in-ndcg", "FedFast is ahead of BPR in NDCG on ML-1M and TripAdvisor", "4.1", Ahead("fedfast", "bpr", NDCG), ("ml-1m", "tripadvisor")),
        Claim("round-30", "FedAvg's best HR on ML-100K is reached by round 30", "4.2", Reaches(ANYTIME, LITERAL, HR, 30), ("ml-100k",)),
        Claim("round-30-tuned", "the same with FedAvg tuned for itself", "4.2", Reaches(ANYTIME, "fedavg", HR, 30), ("ml-100k",)),
        Claim("ndcg-4-times-sooner", "FedAvg's best NDCG is reached at least 4 times sooner, on ML-100K", "6", TimesSooner(ANYTIME, LITERAL, NDCG, 4), ("ml-100k",)),
        Claim("ndcg-20-times-sooner", "more than 20 times sooner on TripAdvisor", "6", TimesSooner(ANYTIME, LITERAL, NDCG, 20), ("tripadvisor",)),
        Claim("settles", "FedFast soon settles within 5 % of its best (bar: in the first half of the rounds)", "4.2",
              All(tuple(Settles(ANYTIME, m, 0.95, 0.5) for m in BOTH))),
        Claim("anytime", "across all rounds FedFast has the better model than FedAvg with the same settings (after the fifth)", "4.2, abstract",
              NeverBelow(ANYTIME, LITERAL, BOTH, after=5)),
        Claim("anytime-tuned", "the same with FedAvg tuned for itself", "4.2", NeverBelow(ANYTIME, "fedavg", BOTH, after=5)),
        Claim("same-start", "FedFast and FedAvg begin at the same HR and NDCG", "4.2", Untestable("true by construction: both begin with the same weights, and what is measured begins after five rounds")),
    ),
    absent=(
        "The paper's Yelp and TripAdvisor are not to be had. Yelp is 7,975 users drawn by seed from another release, TripAdvisor another, smaller scrape whose test items are held out at random.",
        "NCF: the paper announces it and prints no number.",
        "EASE on Yelp: 18,102 items would need 7 GiB and an hour.",
    ),
)  # fmt: skip

FIGURE4 = Item(
    key="figure4",
    title="Figure 4: number of clusters",
    about="ML-100K. The paper draws rounds to the best HR and NDCG; ours are the figures at the end and rounds to 95 % of the best.",
    metrics=BOTH,
    by="clusters",
    trials=(
        Trial(dataset="ml-100k", protocol="loo-50", seeds=5, methods=tuple(
            Method(f"p = {p}", "fedfast", tuned_settings("ml-100k", "fedfast") | {"clusters": p, "evaluate_every": 5}) for p in (5, 10, 20, 30, 40, 60, 100)
        )),
    ),
    claims=(
        Claim("same-quality", "HR and NDCG are similar whatever p (bar: 2 points from least to most)", "4.3", All((Flat(HR, 0.02), Flat(NDCG, 0.02)))),
        Claim("more-clusters-later-best", "rounds to the best HR grow with p", "4.3", Sooner("p = 5", "p = 60", HR)),
        Claim("p100-sooner-than-p5", "p = 100 needs far fewer rounds than p = 5", "4.3", Sooner("p = 100", "p = 5", HR)),
        Claim("best-near-30", "the best p is about the 30 groups that metadata suggests", "4.3", Untestable("how the 30 groups were found is not said")),
    ),
)  # fmt: skip

FIGURE5 = Item(
    key="figure5",
    title="Figure 5: the two parts alone",
    about="ML-100K, 1,000 rounds at a constant step, FedFast's settings for all. ActvSAMP alone draws from clusters of the averaged user rows.",
    metrics=BOTH,
    trials=(
        Trial(dataset="ml-100k", protocol="loo-50", seeds=5, methods=tuple(
            Method(name, name, tuned_settings("ml-100k", "fedfast") | {"rounds": 1000, "final_rate": 1.0, "evaluate_every": 5})
            for name in ("fedfast", "fedavg+actvagg", "fedavg+actvsamp", "fedavg")
        ), paper={"fedfast": (0.89,), "fedavg": (0.79,)}),
    ),
    claims=(
        Claim("sampling-alone-does-nothing", "FedAvg with ActvSAMP is almost identical to FedAvg (bar: 2 points of HR)", "Figure 5", Level("fedavg+actvsamp", "fedavg", HR, 0.02)),
        Claim("aggregation-is-most-of-it", "ActvAGG contributes the most, in quality and speed", "4.4", Ahead("fedavg+actvagg", "fedavg+actvsamp", HR)),
        Claim("both-are-best", "FedFast is ahead of ActvAGG alone", "4.4", Ahead("fedfast", "fedavg+actvagg", HR)),
    ),
)  # fmt: skip

SIZES = Item(
    key="section31",
    title="Section 3.1: embedding size",
    about="ML-100K. At size 8 the model has 21,009 parameters, as the paper says.",
    metrics=BOTH,
    by="embedding_size",
    trials=(
        Trial(dataset="ml-100k", protocol="loo-50", seeds=3, methods=tuple(
            Method(f"d = {d}", "fedfast", tuned_settings("ml-100k", "fedfast") | {"embedding_size": d}) for d in (4, 8, 9, 10, 16, 32, 64)
        )),
    ),
    claims=(
        Claim("twelve-percent-more", "12 % more parameters (size 9 for 8) are 5.6 % more accuracy", "3.1", ShareOf("d = 9", "d = 8", HR, 1.056)),
    ),
)  # fmt: skip

DROP_OUT = Item(
    key="section5",
    title="Section 5, drop-out: users who never answer",
    about="ML-100K: so many of a round's users never answer. The paper claims it without an experiment.",
    metrics=BOTH,
    by="client_dropout",
    trials=(
        Trial(dataset="ml-100k", protocol="loo-50", seeds=5, methods=tuple(
            Method(f"{name}, {rate:.0%} gone", name, tuned_settings("ml-100k", name) | {"client_dropout": rate})
            for name in ("fedfast", "fedavg") for rate in (0.0, 0.3, 0.6)
        )),
    ),
    claims=(
        Claim("drop-out-does-no-harm", "drop-out leaves FedFast's performance as it is (bar: 2 points of HR)", "5",
              All((Level("fedfast, 30% gone", "fedfast, 0% gone", HR, 0.02), Level("fedfast, 60% gone", "fedfast, 0% gone", HR, 0.02)))),
    ),
)  # fmt: skip

ABSENCE = Item(
    key="absence",
    title="Section 5, absence: users who cannot be asked",
    about="ML-100K. `away`: everybody is away for a third of the rounds, in one stretch. `by day`: devices come and go with the time of day, 40 % of them there on average. "
    "A round's users are drawn from those who are there. The paper claims it without an experiment.",
    metrics=BOTH,
    trials=(
        Trial(dataset="ml-100k", protocol="loo-50", seeds=5, methods=tuple(
            Method(name + label, name, tuned_settings("ml-100k", name) | settings)
            for name in ("fedfast", "fedavg") for label, settings in (("", {}), (", away", {"availability": "stretches"}), (", by day", {"availability": "diurnal"}))
        )),
    ),
    claims=(
        Claim("absence-does-no-harm", "performance remains unaffected by periods of absence (bar: 2 points of HR)", "5",
              All(tuple(Level(f"fedfast{how}", "fedfast", HR, 0.02) for how in (", away", ", by day")))),
        Claim("similar-users-stand-in", "since similar users stand in for those who are absent (bar: FedAvg, which has no clusters, loses 2 points)", "5",
              All(tuple(Ahead("fedavg", f"fedavg{how}", HR, by=0.02) for how in (", away", ", by day")))),
    ),
)  # fmt: skip

LOAD = Item(
    key="load",
    title="Section 5, load: how often users are asked",
    about="ML-100K, one seed: over all rounds of a run, how often the users asked least and most were asked, and the deviation over users. FedAvg draws at random.",
    metrics=("least", "most", "deviation"),
    trials=(Measurement(dataset="ml-100k", measure=partial(how_often, ("fedfast", "fedavg"), "ml-100k", tuned_settings("ml-100k", "fedfast"))),),
    claims=(Claim("even-load", "ActvSAMP distributes the load evenly (bar: as evenly as drawing at random)", "5", AtMost("fedfast", "fedavg", "deviation")),),
)  # fmt: skip

PAPER = Paper(
    name="fedfast",
    title="FedFast: going beyond average for faster training of federated recommender systems",
    reference="Muhammad, Wang, O'Reilly-Morgan, Tragos, Smyth, Hurley, Geraci, Lawlor. KDD 2020.",
    items=(TABLE2, FIGURE4, FIGURE5, SIZES, DROP_OUT, ABSENCE, LOAD),
    quick={"rounds": 100, "epochs": 15},
)
