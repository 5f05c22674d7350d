"""A choice in words: the table, the recommendation, notes, and one self-contained HTML page."""

from __future__ import annotations

from html import escape

from coterie.experiments.choice import METRIC, AlgorithmChoice, Candidate
from coterie.experiments.comparison_tables import BELOW
from coterie.report.charts import static_chart
from coterie.report.figures import Figure, Series
from coterie.report.parts import document, html_table, list_of, section
from coterie.report.sizes import size_text
from coterie.report.table import ResultTable, shown
from coterie.version import __version__

HEADER = [
    "algorithm",
    METRIC,
    "trained",
    "messages",
    "up",
    "down",
    "model",
    "client",
]
AXIS = "megabytes of a client, up, down and model"
CAPTION = (
    "Accuracy on the validation part against the bytes of one client over the whole training, on a "
    "logarithmic axis. Dashed: the best centralised method; grey: the most popular items."
)
ALLOWED = {
    "sums": "a server sees only sums over clients, if the assumptions of secagg hold",
    "updates": "a server may see every client's update",
    "disclosed": "a server sees updates of the items that users disclose",
}


def title(choice: AlgorithmChoice) -> str:
    allowed = ALLOWED[choice.request.may_leave]
    rate = "" if choice.disclosure is None else f", at a rate of {choice.disclosure}"
    return f"{choice.request.dataset}: {allowed}{rate}"


def table(choice: AlgorithmChoice) -> ResultTable:
    """Candidates, best first; then what they are compared with."""
    rows = [_row(choice, one) for one in choice.candidates]
    blank = [""] * (len(HEADER) - 2)
    rows.append(["popular", shown(METRIC, choice.popular.value), *blank])
    if choice.centralised is not None:
        central = choice.centralised
        rows.append([f"{central.name} (central)", shown(METRIC, central.value), *blank])
    bold = frozenset({(0, 0), (0, 1)}) if choice.recommended else frozenset()
    return ResultTable(HEADER, rows, bold)


def _row(choice: AlgorithmChoice, one: Candidate) -> list[str]:
    costs = one.costs
    value = shown(METRIC, one.value) + (f" {BELOW}" if choice.is_below_popular(one) else "")
    steps = one.step_name if one.all_steps != 1 else one.step_name.removesuffix("s")
    trained = f"{one.steps:,} {steps}"
    if one.was_cut:
        trained = f"{one.steps:,}/{one.all_steps:,} {steps}"
    return [
        one.name,
        value,
        trained,
        f"{costs.messages:,.1f}".removesuffix(".0"),
        size_text(costs.bytes_up),
        size_text(costs.bytes_down),
        size_text(costs.model_bytes),
        seconds_text(costs.seconds),
    ]


def seconds_text(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.2g} ms" if seconds < 0.1 else f"{seconds:.2f} s"


def learned(choice: AlgorithmChoice) -> list[str]:
    """What the server learns: a line for all algorithms of which it learns the same."""
    by_text: dict[str, list[str]] = {}
    for one in choice.candidates:
        by_text.setdefault(one.server_learns, []).append(one.name)
    by_text["counts of items"] = ["popular"]
    if choice.centralised is not None:
        by_text["everything: all histories are in one place"] = [choice.centralised.name]
    return [f"{', '.join(names)}: {text}" for text, names in by_text.items()]


def recommendation(choice: AlgorithmChoice) -> str:
    """The algorithm to use, and why."""
    best = choice.best
    popular = choice.popular.value
    if choice.recommended is None:
        return (
            f"No allowed algorithm is ahead of the most popular items ({METRIC} {popular:.4f}): "
            f"the best is {best.name} with {best.value:.4f}. Tune it before you choose. "
            f"{_warning(choice)}"
        ).rstrip()
    among = f"the best of {len(choice.candidates)} allowed algorithms"
    if len(choice.candidates) == 1:
        among = "the only allowed algorithm"
    return (
        f"Use {best.name}: {among} on the validation part, {METRIC} {best.value:.4f} "
        f"(popular {popular:.4f}), for {size_text(best.costs.total_bytes)} a client. "
        f"{_warning(choice)}"
    ).rstrip()


def _warning(choice: AlgorithmChoice) -> str:
    """What a server learns of single users with the best algorithm; "" where nothing is known."""
    best = choice.best
    if choice.request.may_leave != "sums":
        return (
            f"Without secure aggregation the server receives {best.server_learns} "
            "(docs/privacy.md)."
        )
    if best.sums_reveal:
        return (
            f"Secure aggregation does not hide histories with {best.name}: attackers find them in "
            "its sums (docs/privacy.md)."
        )
    return ""


def notes(choice: AlgorithmChoice) -> list[str]:
    """What a reader needs to judge the table."""
    return [
        *_alternatives(choice),
        *_conditions(choice),
        *_costs(choice),
        *_left_out(choice, True, "left out"),
        *_left_out(choice, False, "not allowed"),
    ]


def _alternatives(choice: AlgorithmChoice) -> list[str]:
    best = choice.best
    lines = []
    equal = [one.name for one in choice.candidates[1:] if not choice.differs(best, one)]
    if equal:
        lines.append(
            f"not significantly worse than {best.name} over these users: {', '.join(equal)}"
        )
    cheaper = choice.cheaper
    if cheaper is not None and choice.recommended is not None:
        lines.append(
            f"fewest bytes at {cheaper.value / best.value:.0%} of its accuracy: {cheaper.name}, "
            f"{size_text(cheaper.costs.total_bytes)} a client"
        )
    return lines


def _conditions(choice: AlgorithmChoice) -> list[str]:
    lines = [
        f"{METRIC} by full ranking on the validation part ({choice.tested_users:,} users, seed "
        f"{choice.request.seed}); the test part was held out and not used"
    ]
    if choice.n_users < choice.all_users:
        lines.append(
            f"trained on {choice.n_users:,} of {choice.all_users:,} users, drawn at random; with "
            "all of them, figures are mostly higher"
        )
    cut = [one.name for one in choice.candidates if one.was_cut]
    if cut:
        lines.append(
            f"stopped by the time limit: {', '.join(cut)}; --minutes "
            f"{2 * choice.request.minutes:g} gives them more"
        )
    tuned = [one.name for one in choice.candidates if one.tuned]
    defaults = "settings are defaults"
    if tuned:
        defaults += f", tuned for this dataset in the case of {', '.join(tuned)}"
    lines.append(f"{defaults}; coterie tune may change the order")
    return lines


def _costs(choice: AlgorithmChoice) -> list[str]:
    lines = [
        "up, down: bytes of the average client over the whole training; model: downloaded once to "
        "rank on the client; client: median time for one message, on this machine",
    ]
    if choice.request.may_leave == "sums":
        lines.append(
            "bytes under secure aggregation are computed from the length of the summed vector and "
            "the sizes of groups; training was simulated in the clear, which gives the same model"
        )
    if any(choice.is_below_popular(one) for one in choice.candidates):
        lines.insert(0, f"{BELOW}: below popular")
    if not choice.masking_timed:
        lines.append("client: without masking, whose packages are not installed (extra secagg)")
    return lines


def _left_out(choice: AlgorithmChoice, allowed: bool, label: str) -> list[str]:
    """A line for every reason, with all algorithms that it holds for."""
    by_reason: dict[str, list[str]] = {}
    for one in choice.left_out:
        if one.allowed == allowed:
            by_reason.setdefault(one.reason, []).append(one.name)
    return [f"{label}: {', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def next_steps(choice: AlgorithmChoice) -> list[str]:
    """Commands to go on with, and what they need."""
    lines = [f"next: {run_command(choice, choice.best)}"]
    if choice.request.may_leave != "sums":
        hidden = f"coterie choose --dataset {choice.request.dataset} --may-leave sums"
        return [*lines, f"or, to hide single updates from the server: {hidden}"]
    if choice.best.sums_reveal:
        lines.append(_without_known_attack(choice))
    return [*lines, "--secure-aggregation needs an extra: pip install 'coterie[secagg]'"]


def _without_known_attack(choice: AlgorithmChoice) -> str:
    """The best algorithm in whose sums no attacker finds histories."""
    hiding = choice.without_known_attack
    if hiding is None:
        return "no allowed algorithm is without a known attack on its sums"
    loss = f"{METRIC} {hiding.value:.4f}, lower by {choice.best.value - hiding.value:.4f}"
    if not choice.differs(choice.best, hiding):
        loss += ", which is not significant"
    if choice.is_below_popular(hiding):
        loss += "; below popular"
    return f"or, without a known attack ({loss}): {run_command(choice, hiding)}"


def run_command(choice: AlgorithmChoice, candidate: Candidate) -> str:
    """The command that trains an algorithm and evaluates it on the test part."""
    parts = ["coterie run", candidate.name, "--dataset", choice.request.dataset]
    if candidate.secure_aggregation != "none":
        parts.append(f"--secure-aggregation {candidate.secure_aggregation}")
    if choice.disclosure is not None:
        parts.append(f"--set disclosure={choice.disclosure}")
    return " ".join(parts)


def figure(choice: AlgorithmChoice) -> Figure:
    """Accuracy against the bytes of a client."""
    series = [
        Series(
            one.name,
            [one.value],
            {AXIS: [one.costs.total_bytes / 1e6]},
            line=False,
            labelled=True,
        )
        for one in choice.candidates
    ]
    if choice.centralised is not None:
        name = f"{choice.centralised.name}, centralised"
        series.append(Series(name, [choice.centralised.value], {}, level=True))
    series.append(Series("popular", [choice.popular.value], {}, level=True, reference=True))
    heading = f"{METRIC} against the bytes of a client"
    return Figure("choice", heading, METRIC, series, log_x=True, caption=CAPTION)


def page(choice: AlgorithmChoice, command: str) -> str:
    """One self-contained page; `command` reproduces it."""
    name = f"Choosing an algorithm for {title(choice)}"
    about = f"{choice.n_users:,} users, {choice.n_items:,} items. Coterie {__version__}"
    drawn = table(choice)
    advice = f"<p><strong>{escape(recommendation(choice))}</strong></p>"
    advice += list_of([*next_steps(choice), *_alternatives(choice)])
    body = [
        f"<header><h1>{escape(name)}</h1><p class=about>{escape(about)}</p>",
        f"<div class=opening><div id=summary>{advice}</div>{static_chart(figure(choice))}</div>",
        "</header>",
        section("algorithms", "Algorithms", html_table(*drawn, kind="choice")),
        section("learned", "What the server learns", list_of(learned(choice))),
        section("notes-list", "Notes", list_of(notes(choice))),
        section("repeat", "Repeat", f"<pre>{escape(command)}</pre>"),
    ]
    return document(name, body)
