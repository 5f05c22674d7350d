"""A leaderboard as tables, figures and sentences, from its data alone."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.experiments.comparison import Difference
from coterie.experiments.comparison_tables import LEVEL, Section
from coterie.experiments.leaderboard import Leaderboard, Placing
from coterie.experiments.leaderboard_facts import EXPOSURES, NOT_POSSIBLE
from coterie.report.dots import DotPanel, DotRow
from coterie.report.figures import COLOURS, GREY, Figure, Series

MEGABYTES = "megabytes a client"
LEAST = {
    "sums": "sums over clients",
    "sums and more": "sums, part of updates",
    "updates": "single updates",
    "histories": "all histories",
}
"""What a server receives at least, in words."""
FRONT = "no other is better with as few bytes"
ON_FRONT = COLOURS[1]
BEHIND_FRONT = COLOURS[0]
POPULAR = COLOURS[4]
FAR_BELOW = 0.5
"""Share of the accuracy of the most popular items below which a figure would be stretched."""


def accuracy_table(board: Leaderboard) -> Section:
    """One line an algorithm: accuracy, and how far it is behind the best."""
    metric, other = _metrics(board)
    header = ["algorithm", metric, other, f"full {metric}", "behind the best", "95% interval", "p"]
    rows = [_accuracy_row(board, entry) for entry in board.entries]
    return Section("Accuracy", header, rows)


def _metrics(board: Leaderboard) -> tuple[str, str]:
    return board.metric, board.metric.replace("NDCG", "HR")


def _accuracy_row(board: Leaderboard, entry: Placing) -> list[str]:
    metric, other = _metrics(board)
    values = [entry.metrics[metric], entry.metrics[other], entry.full[metric]]
    shown = [f"{value.mean:.4f}" for value in values]
    test = behind(entry, metric)
    if test is None:
        return [entry.algorithm, *shown, "best", "", ""]
    interval = f"{test.low:.4f} to {test.high:.4f}"
    return [entry.algorithm, *shown, f"{test.difference:.4f}", interval, _p(test.p_holm)]


def _p(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def behind(entry: Placing, metric: str) -> Difference | None:
    """The best algorithm minus this one; None for the best."""
    return next((test for test in entry.behind if test.metric == metric), None)


def cost_table(board: Leaderboard) -> Section:
    """One line a federated algorithm: what its clients send and compute, and who sees what."""
    header = [
        "algorithm",
        board.metric,
        "messages",
        "MB up",
        "MB down",
        "ms a message",
        "server receives at least",
        "DP",
        "new users",
    ]
    entries = [entry for entry in board.entries if entry.facts.federated]
    return Section("Costs of a client", header, [_cost_row(board, entry) for entry in entries])


def _cost_row(board: Leaderboard, entry: Placing) -> list[str]:
    facts = entry.facts
    seconds = facts.client_seconds or 0.0
    return [
        entry.algorithm,
        f"{_value(board, entry):.4f}",
        f"{entry.messages:,.1f}",
        f"{entry.bytes_up / 1e6:,.3f}",
        f"{entry.bytes_down / 1e6:,.3f}",
        f"{1000 * seconds:,.2f}",
        LEAST[facts.exposure],
        "no" if facts.not_private else "yes",
        "yes" if facts.new_users else "no",
    ]


def exposure_table(board: Leaderboard) -> Section:
    """What a server receives of every client, in the clear and under secure aggregation."""
    header = ["algorithm", "in the clear", "under secure aggregation"]
    rows = [
        [entry.algorithm, entry.facts.server_receives, _protected(entry)]
        for entry in board.entries
        if entry.facts.federated
    ]
    return Section("What a server receives", header, rows)


def _protected(entry: Placing) -> str:
    seen = entry.facts.secure_aggregation
    if seen == NOT_POSSIBLE:
        return "the same: its server needs every update"
    return f"sums, and {seen}" if seen else "sums only"


def trials_table(board: Leaderboard) -> Section:
    """Proof of equal trials: how many every algorithm had, and which was best."""
    header = ["algorithm", "trials", "diverged", f"best {board.metric} on validation", "settings"]
    rows = []
    for entry in board.entries:
        values = [trial.value for trial in entry.trials if trial.value is not None]
        best = f"{max(values):.4f}" if values else "nothing to search"
        settings = ", ".join(f"{key}={value}" for key, value in entry.settings.items())
        diverged = len(entry.trials) - len(values)
        rows.append([entry.algorithm, str(len(entry.trials)), str(diverged), best, settings])
    return Section("Trials", header, rows)


# Figures


def accuracy_panel(board: Leaderboard) -> DotPanel:
    """A dot for every algorithm; centralised ones are marked in their label."""
    rows = []
    for entry in board.entries:
        value = entry.metrics[board.metric]
        spread = value.deviation or 0.0
        label = entry.algorithm if entry.facts.federated else f"{entry.algorithm} (centralised)"
        rows.append(
            DotRow(label=label, ours=value.mean, low=value.mean - spread, high=value.mean + spread)
        )
    return DotPanel(title=f"{board.dataset}, {board.protocol}", rows=tuple(rows))


def bytes_figure(board: Leaderboard) -> Figure:
    """Accuracy against a client's megabytes, with the Pareto front and the best centralised."""
    federated = [entry for entry in board.entries if entry.facts.federated]
    popular = [entry for entry in board.entries if entry.algorithm == "popular"]
    least = max((FAR_BELOW * _value(board, entry) for entry in popular), default=0.0)
    drawn = [entry for entry in federated if _value(board, entry) >= least]
    best = [entry for entry in pareto_front(board) if entry in drawn]
    series = [
        Series(
            entry.algorithm,
            [_value(board, entry)],
            {MEGABYTES: [_megabytes(entry)]},
            line=False,
            labelled=True,
            colour=ON_FRONT if entry in best else BEHIND_FRONT,
        )
        for entry in drawn
    ]
    front = Series(
        FRONT,
        [_value(board, entry) for entry in best],
        {MEGABYTES: [_megabytes(entry) for entry in best]},
        beneath=True,
    )
    central = [entry for entry in board.entries if not entry.facts.federated][:1]
    levels = [
        *(_level(f"{entry.algorithm}, centralised", board, entry, GREY) for entry in central),
        *(_level("most popular items", board, entry, POPULAR) for entry in popular),
    ]
    below = ", ".join(entry.algorithm for entry in federated if entry not in drawn)
    left_out = f" Far below popular, not drawn: {below}." if below else ""
    return Figure(
        key=f"leaderboard-{board.dataset}",
        title=f"{board.metric} by a client's bytes in the whole training",
        y_label=board.metric,
        series=[*([front] if len(best) > 1 else []), *series, *levels],
        log_x=True,
        caption=(
            "Up and down together, in the clear. Orange: no other federated algorithm is better "
            f"with as few bytes.{left_out}"
        ),
        height=400,
    )


def _level(name: str, board: Leaderboard, entry: Placing, colour: str) -> Series:
    value = _value(board, entry)
    return Series(name, [value], {}, level=True, reference=True, colour=colour)


def _value(board: Leaderboard, entry: Placing) -> float:
    return entry.metrics[board.metric].mean


def _megabytes(entry: Placing) -> float:
    return (entry.bytes_up + entry.bytes_down) / 1e6


def pareto_front(board: Leaderboard) -> list[Placing]:
    """The federated algorithms that are better than all with fewer bytes, cheapest first."""
    federated = [entry for entry in board.entries if entry.facts.federated]
    front: list[Placing] = []
    for entry in sorted(federated, key=_megabytes):
        value = _value(board, entry)
        if not front or value > front[-1].metrics[board.metric].mean:
            front.append(entry)
    return front


def best_by_exposure(board: Leaderboard) -> dict[str, Placing]:
    """The best algorithm of every level of exposure that has any, least exposure first."""
    return {
        level: next(entry for entry in board.entries if entry.facts.exposure == level)
        for level in EXPOSURES
        if any(entry.facts.exposure == level for entry in board.entries)
    }


def exposure_panel(board: Leaderboard) -> DotPanel:
    """The best algorithm by what a server receives at least."""
    rows = [
        DotRow(label=f"{LEAST[level]}: {entry.algorithm}", ours=_value(board, entry))
        for level, entry in best_by_exposure(board).items()
    ]
    return DotPanel(title=f"{board.dataset}: the best by what a server receives", rows=tuple(rows))


# Sentences


def findings(board: Leaderboard) -> list[str]:
    """The conclusions of one dataset."""
    metric = board.metric
    first = board.entries[0]
    lines = [
        f"{board.dataset}: {first.algorithm} is best, {metric} {first.metrics[metric].mean:.4f} by "
        f"{board.protocol}; {_level_with(board)}."
    ]
    federated = [entry for entry in board.entries if entry.facts.federated]
    if federated and federated[0] is not first:
        lines.append(_about_federated(board, federated[0]))
    for entry in list(best_by_exposure(board).values())[:1]:
        if entry.facts.federated and entry is not federated[0]:
            lines.append(
                f"Where a server may receive only {LEAST[entry.facts.exposure]}, "
                f"{entry.algorithm} is best: {metric} {entry.metrics[metric].mean:.4f}."
            )
    return lines


def _about_federated(board: Leaderboard, entry: Placing) -> str:
    test = behind(entry, board.metric)
    assert test is not None  # only the first entry has none
    clear = "a significant difference" if test.p_holm < LEVEL else "not a significant difference"
    return (
        f"The best federated algorithm is {entry.algorithm}, {test.difference:.4f} behind "
        f"(95% interval {test.low:.4f} to {test.high:.4f}), {clear}."
    )


def _level_with(board: Leaderboard) -> str:
    """The algorithms that are not significantly worse than the best."""
    level = [
        entry.algorithm
        for entry in board.entries[1:]
        if (test := behind(entry, board.metric)) is not None and test.p_holm >= LEVEL
    ]
    if not level:
        return "all others are significantly worse"
    return f"not significantly worse: {', '.join(level)}"


def conditions(board: Leaderboard) -> str:
    """How the figures of one dataset were made, in one line."""
    seeds = len(board.seeds)
    cut = ", training cut short (--quick)" if board.quick else ""
    return (
        f"{board.users:,} users, {board.items:,} items, {board.interactions:,} interactions; "
        f"{board.tested_users:,} users tested; {board.n_trials} trials an algorithm on the "
        f"validation part, then {seeds} {'seed' if seeds == 1 else 'seeds'}{cut}."
    )


def all_findings(boards: Sequence[Leaderboard]) -> list[str]:
    return [line for board in boards for line in findings(board)]
