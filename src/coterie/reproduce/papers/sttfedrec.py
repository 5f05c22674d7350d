"""STTFedRec, Section 4: accuracy, a device's costs, the share of negatives, users per round."""

from __future__ import annotations

from functools import partial
from typing import Any

from coterie.algorithms.local.batched import find_device
from coterie.algorithms.registry import algorithm
from coterie.core.settings import SearchSpace
from coterie.errors import ConfigError, MissingExtra
from coterie.experiments.plan import Method
from coterie.reproduce.aggregation_costs import Cohort, aggregation_costs
from coterie.reproduce.checks import (
    Ahead,
    All,
    GainsMore,
    Level,
    Ordered,
    ShareOf,
    Times,
    Untestable,
)
from coterie.reproduce.cost_checks import Even, Shorter
from coterie.reproduce.curve_checks import Reaches
from coterie.reproduce.device_costs import device_costs
from coterie.reproduce.items import (
    Claim,
    Item,
    Measurement,
    MethodPair,
    Paper,
    SettingsSearch,
    Trial,
)
from coterie.reproduce.papers.tuned_settings import paper_settings
from coterie.reproduce.sweep_checks import Rises
from coterie.types import JsonObject

METRICS = ("AUC", "P@10", "NDCG@10")
TOWERS = ("dssm", "clsm")
FACTORS = ("fcf", "fedmvmf")
TUNED = ", tuned"
WAYS = ("", TUNED)
ARTICLES = "watson-articles"
MOVIES = "ml-1m"
INPUTS: dict[str, JsonObject] = {ARTICLES: {"inputs": 1900}, MOVIES: {}}
CUT: dict[str, JsonObject] = {ARTICLES: {}, MOVIES: {"core": 20}}
K = {ARTICLES: 150, MOVIES: 50}
"""Users per round."""
ROUNDS = {ARTICLES: 1000, MOVIES: 1500}
EPOCHS = {ARTICLES: 250, MOVIES: 13}
"""Epochs in which a centralised model visits users as often as the federated ones do."""
ADRESSA = (
    "Adressa is not available. The articles stand in: 602 users, 642 articles, no timestamps, test "
    "items held out at random. Therefore only the order of methods compares."
)
NOT_ADRESSA = (
    "Only Adressa can test this. 0.07 % of its pairs of user and article are clicks. The articles "
    "that stand in have 4.3 %: factors have sixty times as much to learn from."
)
NOT_ITS_SIZE = (
    "Only Adressa can test this. A device downloads 558 MB of its texts, 14,732 articles of 38 KB. "
    "The articles that stand in are 642, of 6.5 KB."
)
TRIALS = 20
"""Trials of `benchmarks/sttfedrec.py search` for every method of the paper."""
TABLE2_FIGURES = {
    ARTICLES: {
        "dssm": (0.6861, 0.3411, 0.3456), "clsm": (0.7039, 0.3514, 0.3586),
        "fcf": (0.5449, 0.2533, 0.2352), "fedmvmf": (0.6099, 0.2828, 0.2591),
        "fl-dssm": (0.6637, 0.3120, 0.2919), "fl-clsm": (0.6899, 0.3317, 0.3036),
        "sttfedrec-dssm": (0.6654, 0.3123, 0.2922), "sttfedrec-clsm": (0.6910, 0.3325, 0.3063),
    },
    MOVIES: {
        "dssm": (0.7855, 0.3622, 0.3406), "clsm": (0.8011, 0.3820, 0.3527),
        "fcf": (0.7356, 0.3015, 0.2585), "fedmvmf": (0.7475, 0.3207, 0.2699),
        "fl-dssm": (0.6934, 0.2766, 0.2286), "fl-clsm": (0.7353, 0.3117, 0.2533),
        "sttfedrec-dssm": (0.6905, 0.2704, 0.2261), "sttfedrec-clsm": (0.7350, 0.3115, 0.2537),
    },
}  # fmt: skip
TABLE3_FIGURES = {
    ARTICLES: {
        "fl-dssm": (2570, 19120, 8.68, 557.80), "sttfedrec-dssm": (447, 250, 4.34, 7.19),
        "fl-clsm": (10930, 79100, 17.04, 556.80), "sttfedrec-clsm": (1560, 250, 8.52, 7.19),
    },
    MOVIES: {
        "fl-dssm": (1170, 4090, 5.42, 0.14), "sttfedrec-dssm": (228, 55, 2.71, 0.05),
        "fl-clsm": (4800, 23860, 4.70, 0.14), "sttfedrec-clsm": (889, 55, 2.35, 0.05),
    },
}  # fmt: skip


def device() -> str:
    """A GPU if there is one."""
    try:
        return find_device("cuda").type
    except (ConfigError, MissingExtra):
        return "cpu"


def federated(name: str, dataset: str, label: str = "", **changes: Any) -> Method:
    """A federated method with the paper's settings, and changes to them.

    The paper: learning rate 1e-4, T = 10, rho = 0.9, dropout 0.2. Its decay is read as gentle.
    """
    settings = {
        "users_per_round": K[dataset],
        "rounds": ROUNDS[dataset],
        "device": device(),
        "evaluate_every": ROUNDS[dataset] // 20,
    }
    return Method(label or name, name, settings | INPUTS[dataset] | changes)


def centralised(name: str, dataset: str, label: str = "", **changes: Any) -> Method:
    """A centralised method with the paper's settings, and changes to them."""
    settings = {
        "epochs": EPOCHS[dataset],
        "batch_size": K[dataset],
        "device": device(),
        "evaluate_every": max(EPOCHS[dataset] // 20, 1),
    }
    return Method(label or name, name, settings | INPUTS[dataset] | changes)


def searched(name: str) -> SettingsSearch:
    """The search of `benchmarks/sttfedrec.py search`."""
    note = ""
    if name.startswith("fl-"):
        split = name.replace("fl-", "sttfedrec-")
        note = f"takes the settings found for {split}, which computes the same model"
    space = FIRST_SPACES.get(name, algorithm(name).settings.search_space)
    return SettingsSearch(trials=TRIALS, space=space, note=note)


FIRST_SPACES: dict[str, SearchSpace] = {
    "als": {"alpha": (0.3, 50.0), "reg": (0.1, 100.0), "embedding_size": [16, 32, 64]},
    "ease": {"reg": (30.0, 5000.0)},
}
"""ALS and EASE were searched in the forms that were first published."""
CENTRALISED_FACTORS = ("als", "ease")
"""Baselines that are not the paper's."""


def searches(dataset: str, names: tuple[str, ...]) -> dict[str, SettingsSearch]:
    """How the settings of every row of Table 2 were found."""
    as_printed = {name: SettingsSearch(trials=0) for name in names}
    flanagan = "the paper refers to Flanagan et al.; these are our defaults"
    as_printed |= {name: SettingsSearch(trials=0, note=flanagan) for name in FACTORS}
    tuned = {name: searched(name) for name in (*names, *FACTORS, *CENTRALISED_FACTORS)}
    return as_printed | {name + TUNED: search for name, search in tuned.items()}


def accuracy(dataset: str) -> Trial:
    """All methods of Table 2 on one dataset, with the paper's settings and tuned."""
    towers = [f"{kind}-{tower}" for kind in ("sttfedrec", "fl") for tower in TOWERS]
    own = partial(paper_settings, "sttfedrec", dataset)
    methods = (
        *(federated(name, dataset) for name in towers),
        *(centralised(name, dataset) for name in TOWERS),
        *(Method(name, name) for name in (*FACTORS, "popular")),
        *(federated(name, dataset, name + TUNED, **own(name)) for name in towers),
        *(centralised(name, dataset, name + TUNED, **own(name)) for name in TOWERS),
        *(Method(name + TUNED, name, own(name)) for name in (*FACTORS, *CENTRALISED_FACTORS)),
    )
    return Trial(
        dataset=dataset,
        methods=methods,
        settings=CUT[dataset],
        protocol="holdout-10",
        seeds=3,
        paper=TABLE2_FIGURES[dataset],
        searches=searches(dataset, (*towers, *TOWERS)),
    )


def ahead(first: str, other: str) -> tuple[Ahead, ...]:
    """Ahead in AUC with the paper's settings, and with tuned settings."""
    return tuple(Ahead(first + way, other + way, "AUC") for way in WAYS)


TABLE2 = Item(
    key="table2",
    title="Table 2: accuracy",
    about=(
        "Ten unclicked candidates per held-out click. Rows without `tuned` use the paper's "
        "settings. `tuned` rows use the best of twenty trials on the validation part; the naive "
        f"federation uses the settings found for the split one. {ADRESSA}"
    ),
    metrics=METRICS,
    trials=(accuracy(ARTICLES), accuracy(MOVIES)),
    claims=(
        Claim(
            "split-loses-nothing",
            "the split loses nothing against naive federated learning "
            "(threshold: half a point of AUC)",
            "4.2 (2)",
            All(
                tuple(
                    Level(f"sttfedrec-{tower}{way}", f"fl-{tower}{way}", "AUC", 0.005)
                    for tower in TOWERS
                    for way in WAYS
                )
            ),
        ),
        Claim(
            "loss-against-centralised",
            "centralised towers are ahead of the federated ones",
            "4.2 (1)",
            All(ahead("dssm", "sttfedrec-dssm") + ahead("clsm", "sttfedrec-clsm")),
        ),
        Claim(
            "clsm-ahead-of-dssm",
            "CLSM is ahead of DSSM",
            "Table 2",
            All(ahead("sttfedrec-clsm", "sttfedrec-dssm")),
        ),
        Claim(
            "towers-ahead-on-texts",
            "federated towers are ahead of FCF and FedMVMF where texts are rich",
            "4.2 (3)",
            Untestable(NOT_ADRESSA),
            (ARTICLES,),
        ),
        Claim(
            "factors-ahead-on-movies",
            "FCF and FedMVMF are ahead of federated towers on MovieLens",
            "Table 2",
            All(ahead("fcf", "sttfedrec-clsm") + ahead("fedmvmf", "sttfedrec-clsm")),
            (MOVIES,),
        ),
        Claim(
            "factors-ahead-on-articles",
            "FCF and FedMVMF are ahead of federated towers on dense articles, too",
            "ours",
            All(ahead("fcf", "sttfedrec-clsm") + ahead("fedmvmf", "sttfedrec-clsm")),
            (ARTICLES,),
            ours=True,
        ),
        Claim(
            "ahead-of-popular",
            "the towers are ahead of the popular baseline",
            "ours",
            All(tuple(Ahead(f"sttfedrec-clsm{way}", "popular", "AUC") for way in WAYS)),
            ours=True,
        ),
    ),
    absent=(ADRESSA,),
)


def costs_on(dataset: str) -> Measurement:
    """The costs of one device, for the naive and the split federation."""
    settings = (
        {"users_per_round": K[dataset], "rounds": ROUNDS[dataset], "protocol": "holdout-10"}
        | INPUTS[dataset]
        | CUT[dataset]
    )
    names = tuple(f"{kind}-{tower}" for tower in TOWERS for kind in ("fl", "sttfedrec"))
    return Measurement(
        dataset=dataset,
        measure=partial(device_costs, names, dataset, settings),
        paper=TABLE3_FIGURES[dataset],
    )


def times(low: float, high: float, *columns: str) -> All:
    """The naive federation costs `low` to `high` times the split one, with both towers."""
    return All(
        tuple(
            Times(f"fl-{tower}", f"sttfedrec-{tower}", column, low, high)
            for column in columns
            for tower in TOWERS
        )
    )


def gains_more(column: str) -> GainsMore:
    """The split saves a larger factor with CLSM than with DSSM."""
    return GainsMore(
        more=MethodPair("fl-clsm", "sttfedrec-clsm"),
        less=MethodPair("fl-dssm", "sttfedrec-dssm"),
        column=column,
    )


ANY_MORE = float("inf")
READINGS = (
    "training ms",
    "million multiplications",
    "forward and backward ms",
    "item by item ms",
)
"""What the paper's training time may be. It does not say."""
TOTALS = ("total ms", "total item by item ms")

TABLE3 = Item(
    key="table3",
    title="Table 3: compute and traffic of a device, per round and per inference",
    about=(
        "One device at a time on one core, median of twenty. Bytes are those of the messages. The "
        "paper's device is an M1, and which of our columns its times are is open: a claim about "
        "speed is tested on each. `training ms` is all that a device does in a round. "
        "Multiplications are those of the forward pass by Section 4.3. `forward and backward ms` "
        "has all items in one batch; `item by item ms` embeds one item after the other. `encoding "
        "ms` turns gradients into the integers that are sent. Inference item by item is timed on "
        "200 items and scaled to all."
    ),
    metrics=(
        "training ms",
        "inference ms",
        "training MB",
        "inference MB",
        "total ms",
        "total MB",
        "million multiplications",
        "forward and backward ms",
        "item by item ms",
        "encoding ms",
        "inference item by item ms",
        "total item by item ms",
    ),
    trials=(costs_on(ARTICLES), costs_on(MOVIES)),
    claims=(
        Claim(
            "training-5-to-7-times-faster",
            "a device trains 5 to 7 times faster",
            "Table 3",
            times(5, ANY_MORE, *READINGS),
        ),
        Claim(
            "total-18-to-50-times-faster",
            "training and inference together are 18 to 50 times faster",
            "4.3",
            times(18, ANY_MORE, *TOTALS),
        ),
        Claim(
            "training-bytes-halved",
            "training traffic is halved",
            "4.3",
            times(1.9, 2.1, "training MB"),
        ),
        Claim(
            "all-bytes-halved",
            "total traffic is halved on MovieLens",
            "4.3",
            times(1.9, ANY_MORE, "total MB"),
            (MOVIES,),
        ),
        Claim(
            "bytes-42-times-less",
            "total traffic is 36 to 49 times less on Adressa, whose texts are large",
            "4.3",
            Untestable(NOT_ITS_SIZE),
            (ARTICLES,),
        ),
        Claim(
            "costs-grow-slower",
            "costs grow with the dataset and its texts, more slowly with the split",
            "4.3 (1)",
            Untestable(NOT_ITS_SIZE),
            (ARTICLES,),
        ),
        Claim(
            "the-heavier-the-better",
            "the heavier the tower, the larger the gain",
            "4.3 (3)",
            All(tuple(gains_more(column) for column in TOTALS)),
        ),
        Claim(
            "encoding-is-short",
            "a device of the split spends less time on encoding than on gradients",
            "ours",
            All(
                tuple(
                    Shorter(f"sttfedrec-{tower}", "encoding ms", "forward and backward ms")
                    for tower in TOWERS
                )
            ),
            ours=True,
        ),
    ),
    absent=(ADRESSA,),
)


def on_articles(*methods: Method) -> Trial:
    """A trial on the articles."""
    return Trial(dataset=ARTICLES, protocol="holdout-10", seeds=3, methods=methods)


def rises_with_rho() -> All:
    """AUC and NDCG of both towers rise with the share of negatives."""
    return All(
        tuple(
            Rises(f"sttfedrec-{tower}", metric) for tower in TOWERS for metric in ("AUC", "NDCG@10")
        )
    )


FIGURE4 = Item(
    key="figure4",
    title="Figure 4: the share of negatives, T = 10",
    about=(
        "Articles, the paper's settings except rho. This is Section 3.3's definition with Section "
        "4.1's T: rho = 0.9 is one click among ten items, rho = 0.5 five clicks. A smaller rho "
        "therefore also means more clicks to learn from."
    ),
    metrics=("AUC", "NDCG@10"),
    by="negative_share",
    trials=(
        on_articles(
            *(
                federated(
                    f"sttfedrec-{tower}", ARTICLES, f"{tower}, rho = {rho}", negative_share=rho
                )
                for tower in TOWERS
                for rho in (0.5, 0.6, 0.7, 0.8, 0.9)
            )
        ),
    ),
    claims=(
        Claim(
            "more-negatives-are-better",
            "AUC and NDCG rise with rho, T = 10",
            "4.4",
            rises_with_rho(),
        ),
    ),
    absent=(ADRESSA,),
)

FIGURE4_ONE_CLICK = Item(
    key="figure4-one-click",
    title="Figure 4, another reading: one click and more negatives",
    about=(
        "Articles, the paper's settings except T and rho = (T - 1) / T. Every comparison has one "
        "click, as in Shen et al., to whom the paper refers; more negatives are more items. T is "
        "2, 3, 5 and 10."
    ),
    metrics=("AUC", "NDCG@10"),
    by="negative_share",
    trials=(
        on_articles(
            *(
                federated(
                    f"sttfedrec-{tower}",
                    ARTICLES,
                    f"{tower}, T = {T}",
                    compared=T,
                    negative_share=(T - 1) / T,
                )
                for tower in TOWERS
                for T in (2, 3, 5, 10)
            )
        ),
    ),
    claims=(
        Claim(
            "more-negatives-per-click-are-better",
            "AUC and NDCG rise with rho, one click",
            "4.4",
            rises_with_rho(),
        ),
    ),
    absent=(ADRESSA,),
)

FIGURES_BY_K = {"dssm": "Figure 5", "clsm": "Figure 6"}
SIZES = (25, 50, 100, 200)
"""The values of K in Section 4.1."""


def with_users(tower: str) -> tuple[str, ...]:
    """The rows of a tower, by users per round."""
    return tuple(f"{tower}, K = {k}" for k in SIZES)


FIGURE5 = Item(
    key="figure5",
    title="Figures 5 and 6: convergence by users per round",
    about="Articles, the paper's settings except K. Figure 5 is DSSM and Figure 6 CLSM.",
    metrics=("AUC", "NDCG@10"),
    trials=(
        on_articles(
            *(
                federated(f"sttfedrec-{tower}", ARTICLES, f"{tower}, K = {k}", users_per_round=k)
                for tower in TOWERS
                for k in SIZES
            )
        ),
    ),
    claims=(
        *(
            Claim(
                f"{tower}-more-users-converge-sooner",
                f"more users per round converge sooner, {tower.upper()} "
                "(threshold: K = 200 reaches the best of K = 25 in half the rounds)",
                f"4.4 (1), {figure}",
                Reaches(f"{tower}, K = 200", f"{tower}, K = 25", "AUC", ROUNDS[ARTICLES] // 2),
            )
            for tower, figure in FIGURES_BY_K.items()
        ),
        *(
            Claim(
                f"{tower}-order-at-the-end",
                f"more users per round give a better final model, {tower.upper()}",
                "ours",
                Ordered(tuple(reversed(with_users(tower))), "AUC"),
                ours=True,
            )
            for tower in TOWERS
        ),
    ),
    absent=(ADRESSA,),
)

COHORTS = {
    f"{tower}, K = {k}": Cohort(tower=tower, users=k, inputs=1900)
    for tower in TOWERS
    for k in SIZES
}

FIGURE5_AGGREGATION = Item(
    key="figure5-aggregation",
    title="Figures 5 and 6, time: secure aggregation by users per round",
    about=(
        "One device at a time on one core. The vectors are as long as the user tower; devices "
        "already have their gradients. Rings have at most 50 users, so K = 200 is four rings. The "
        "device's time is the median over the cohort, the server's that of the whole round. Times "
        "are wall clock: other work on the machine makes them uneven."
    ),
    metrics=("device ms", "server ms", "device MB"),
    trials=(Measurement(dataset=ARTICLES, measure=partial(aggregation_costs, COHORTS)),),
    claims=tuple(
        claim
        for tower, figure in FIGURES_BY_K.items()
        for claim in (
            Claim(
                f"{tower}-server-time-rises",
                f"the server's time of secure aggregation rises with K, {tower.upper()}",
                f"4.4 (2), {figure}",
                Ordered(tuple(reversed(with_users(tower))), "server ms"),
            ),
            Claim(
                f"{tower}-device-time-does-not-depend-on-k",
                f"a device's time of secure aggregation does not depend on K, {tower.upper()} "
                "(threshold: a quarter)",
                f"4.4 (3), {figure}",
                Even(with_users(tower), "device ms", 1.25),
            ),
            Claim(
                f"{tower}-device-bytes-do-not-depend-on-k",
                f"a device's traffic for it does not depend on K, {tower.upper()}",
                "1 (3)",
                Even(with_users(tower), "device MB", 1.0),
            ),
        )
    ),
)


def by_precision(dataset: str) -> Trial:
    """The same run with item vectors of three precisions."""
    methods = tuple(
        federated("sttfedrec-dssm", dataset, precision, precision=precision)
        for precision in ("float32", "float16", "int8")
    )
    return Trial(
        dataset=dataset,
        settings=CUT[dataset],
        protocol="holdout-10",
        seeds=3,
        methods=methods,
    )


PRECISION = Item(
    key="precision",
    title="Beyond the paper: item vectors in fewer bits",
    about="The item vectors that a device downloads for inference, in float32, float16 and int8.",
    metrics=METRICS,
    trials=(by_precision(ARTICLES), by_precision(MOVIES)),
    claims=(
        Claim(
            "int8-costs-nothing",
            "int8 costs less than half a point of AUC",
            "ours",
            All(
                (
                    Level("int8", "float32", "AUC", 0.005),
                    ShareOf("int8", "float32", "NDCG@10", 0.99),
                )
            ),
            ours=True,
        ),
    ),
)

PAPER = Paper(
    name="sttfedrec",
    title=(
        "Split two-tower model for efficient and privacy-preserving cross-device federated "
        "recommendation"
    ),
    reference="Qin, Zhang, Liu, Qian. 2022.",
    items=(
        TABLE2,
        TABLE3,
        FIGURE4,
        FIGURE4_ONE_CLICK,
        FIGURE5,
        FIGURE5_AGGREGATION,
        PRECISION,
    ),
    quick={"rounds": 8, "epochs": 1, "evaluate_every": 2},
)
