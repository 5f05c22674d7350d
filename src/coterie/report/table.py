"""Results as a table, tables as Markdown, and notes that a reader needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple, Protocol

from coterie.report.conditions import key_values
from coterie.report.metric_words import best_of, explained
from coterie.report.sizes import size_text
from coterie.report.steps import step_name, steps_text
from coterie.types import JsonObject

WHOLE = ("IC",)
"""Metrics that are counts, shown without decimals."""


BELOW = " (below popular)"
"""The mark of a figure that recommending the most popular items exceeds."""


class Reported(Protocol):
    """What a report needs of a run: a Run, or a finished cell of a plan."""

    @property
    def result(self) -> JsonObject: ...

    @property
    def curve(self) -> list[JsonObject]: ...


def shown(name: str, value: float) -> str:
    """Metrics with four decimals, counts as whole numbers, tiny shares with five."""
    if name.split("@")[0] in WHOLE:
        return f"{value:,.0f}"
    return f"{value:.5f}" if 0 < abs(value) < 0.001 else f"{value:.4f}"


class ResultTable(NamedTuple):
    """A table of text; `bold` are the (row, column) places of the best values."""

    header: list[str]
    rows: list[list[str]]
    bold: frozenset[tuple[int, int]] = frozenset()


def marked(result: JsonObject, name: str) -> str:
    """A metric under the protocol, with a mark if that of the most popular items is higher."""
    text = shown(name, result["metrics"][name])
    # Results of earlier versions have no such list.
    return text + BELOW if name in result.get("below_popular", []) else text


def table(runs: Sequence[Reported]) -> ResultTable:
    """Metrics under the protocol and, if they differ, under full ranking."""
    names = list(dict.fromkeys(name for run in runs for name in run.result["headline"]))
    sampled = any(run.result["metrics"] != run.result["full"] for run in runs)
    ranked = names_under_full_ranking(runs, names) if sampled else []
    header = ["run", "seed", "trained", "seconds"]
    first = len(header)
    header += [*names, *(f"{name} full" for name in ranked)]
    columns = [("metrics", name) for name in names] + [("full", name) for name in ranked]
    rows = []
    for run, label in zip(runs, labels(runs), strict=True):
        r = run.result
        cells = [
            label,
            str(r["seed"]),
            steps_text(f"{r['rounds']:,}", step_name(r)),
            f"{r['seconds']:,.2f}",
        ]
        cells += [_cell_of(r, kind, name) for kind, name in columns]
        rows.append(cells)
    bold = frozenset(
        (row, first + number)
        for number, (kind, name) in enumerate(columns)
        for row in best_of(name, [run.result[kind].get(name) for run in runs])
    )
    return ResultTable(header, rows, bold)


def _cell_of(result: JsonObject, kind: str, name: str) -> str:
    """A metric under the protocol (`metrics`) or under full ranking (`full`)."""
    if name not in result[kind]:
        return ""
    return marked(result, name) if kind == "metrics" else shown(name, result[kind][name])


def metric_rows(columns: Mapping[str, Mapping[str, str]], names: Sequence[str]) -> ResultTable:
    """Metrics as rows, each with its meaning; `columns` has the texts of every column."""
    header = ["metric", "meaning", *columns]
    rows = [
        [name, explained(name), *(texts.get(name, "") for texts in columns.values())]
        for name in names
    ]
    return ResultTable(header, rows)


def metric_columns(run: Reported, name: str = "") -> dict[str, dict[str, str]]:
    """The columns of a run; one if the protocol and full ranking coincide."""
    r = run.result
    texts = {kind: {m: shown(m, v) for m, v in r[kind].items()} for kind in ("metrics", "full")}
    if r["metrics"] == r["full"]:
        return {name or r["protocol"]: texts["metrics"]}
    before = f"{name}, " if name else ""
    return {f"{before}{r['protocol']}": texts["metrics"], f"{before}full ranking": texts["full"]}


def names_under_full_ranking(runs: Sequence[Reported], names: Sequence[str]) -> list[str]:
    """The metrics that full ranking has; errors of ratings rank nothing."""
    return [name for name in names if any(name in run.result["full"] for run in runs)]


def notes(run: Reported, with_costs: bool = True) -> list[str]:
    """What a reader must know to interpret the figures."""
    r = run.result
    lines = evaluation_notes(r, with_costs)
    if with_costs and "updates" in r:
        lines.append(costs(r))
    return [*lines, *protection_notes(r), *training_notes(r)]


def evaluation_notes(result: JsonObject, with_figures: bool = True) -> list[str]:
    """The users that were tested, and what their figures can and cannot say."""
    r = result
    lines = [
        f"{r['tested_users']:,} users tested; trained on {r['training_interactions']:,} "
        f"interactions of {r['users']:,} users; {r['items']:,} items in the catalogue."
    ]
    if with_figures and r.get("below_popular"):
        lines.append(worse_than_popular(r))
    if r.get("without_popularity"):
        lines.append(popularity(r, with_figures))
    if r["full"].get("UC", 1) < 1:
        lines.append(f"{r['full']['UC']:.1%} of the tested users are served; the others score 0.")
    if "folds" in r:
        lines.append(
            f"Fold {r['fold']} of 0 to {r['folds'] - 1} is tested; "
            f"coterie compare --folds {r['folds']} tests all."
        )
    if r["future_share"] is not None:
        lines.append(
            f"Global-time leakage: on average {r['future_share']:.1%} of the training data is "
            "newer than a test interaction."
        )
    elif "split=own" not in r["protocol"] and "folds" not in r:
        lines.append("The data has no timestamps: test interactions were held out at random.")
    if "rating_references" in r:
        lines.append(rating_errors(r))
    return lines


def protection_notes(result: JsonObject) -> list[str]:
    """What the server received, and what protects users."""
    lines = []
    if "privacy" in result:
        lines.append(differential_privacy(result["privacy"]))
    if "in_the_clear" in result:
        lines += secure_aggregation(result)
    if "server_receives" in result:
        received = "; ".join(result["server_receives"])
        lines.append(
            f"Without secure aggregation the server received of every client: {received} "
            "(docs/privacy.md)."
        )
    if "disclosure" in result.get("settings", {}):
        lines.append(disclosure(result))
    return lines


def training_notes(result: JsonObject) -> list[str]:
    """When a target was reached, and whether training was leaky on purpose."""
    lines = []
    target = result.get("convergence", {}).get("target")
    if target is not None:
        reached = result["convergence"]["rounds_to_target"]
        metric = result["convergence"]["metric"]
        if reached:
            steps = steps_text(f"{reached:,}", step_name(result))
            lines.append(f"{metric} first reached {target:g} after {steps}.")
        else:
            lines.append(f"{metric} never reached {target:g}.")
    if result["as_published"]:
        lines.append(
            "Leaky on purpose: training negatives excluded the held-out items (as_published)."
        )
    return lines


def differential_privacy(privacy: JsonObject) -> str:
    """The guarantee in one line."""
    seeded = ""
    if privacy["noise_source"] == "seeded":
        seeded = " The noise is that of the seed: this simulation protects nobody."
    # Results of earlier versions do not say what was spent.
    spent = f", of which {privacy['epsilon_spent']:.4g} is spent" if privacy.get("stopped") else ""
    return (
        f"User-level differential privacy: epsilon {privacy['epsilon']:g}{spent}, delta "
        f"{privacy['delta']:.2g}, noise {privacy['noise']} (privacy.json, "
        f"docs/differential-privacy.md).{seeded}"
    )


def secure_aggregation(result: JsonObject) -> list[str]:
    """What a server learned in spite of it, and what its protocol withstands."""
    visible = "; ".join(result["in_the_clear"])
    # Results of earlier versions have no such list.
    revealed = "; ".join(result.get("in_sums", ()))
    lines = [
        "Secure aggregation: the server received only sums over clients, as long as its protocol's "
        "assumptions hold (docs/privacy.md)."
    ]
    if visible:
        lines = [f"Secure aggregation; the server still received of every client: {visible}."]
    if revealed:
        lines.append(f"It does not hide histories here: {revealed} (docs/privacy.md).")
    # Nor do they say what the protocol withstands.
    if "protection" in result:
        lines.append(f"Protocol {result['protection']}.")
    return lines


def popularity(result: JsonObject, with_figures: bool) -> str:
    """How much popularity counts, and the accuracy of the model alone."""
    counts = f"Popularity counts as {result['popularity_prior']:.3g} interactions of a user"
    if not with_figures:
        return f"{counts}; popularity_prior=0 leaves it out."
    alone = ", ".join(
        f"{name} {shown(name, result['full'][name])}, without it {shown(name, value)}"
        for name, value in result["without_popularity"].items()
        if name in result["headline"]
    )
    return f"{counts} (full ranking: {alone}); popularity_prior=0 leaves it out."


def worse_than_popular(result: JsonObject) -> str:
    """The figures that the same list for all users exceeds."""
    pairs = ", ".join(
        f"{name} {shown(name, result['metrics'][name])} against "
        f"{shown(name, result['popular'][name])}"
        for name in result["below_popular"]
    )
    # A search would look at users' data, and a privacy budget would have to pay for it.
    remedy = "" if "privacy" in result else " Find better settings with coterie tune."
    return (
        f"Below popular: recommending the most popular items to all users scores more ({pairs})."
        f"{remedy}"
    )


def times_of_evaluation(result: JsonObject) -> str:
    """The seconds of the final evaluation and of the curve, and who they were measured on."""
    text = f"evaluated {result['tested_users']:,} users in {result['evaluation_seconds']:,.2f} s"
    text += f"; the curve took {result['curve_seconds']:,.2f} s"
    if result["convergence"]["part"] != "test":
        return f"{text} on the validation part"
    measured = result["convergence"]["users"]
    if measured < result["tested_users"]:
        text += f" on a sample of {measured:,} users (curve_users=0 takes all)"
    return text


def rating_errors(result: JsonObject) -> str:
    """The errors of predictions without a model, which those of a model should be below."""
    references = result["rating_references"]

    def listed(errors: JsonObject) -> str:
        return ", ".join(f"{name} {shown(name, errors[name])}" for name in references["mean"])

    return (
        f"{' and '.join(references['mean'])}: lower is better. "
        f"The mean training rating has {listed(references['mean'])}; "
        f"with user and item biases {listed(references['biases'])}."
    )


def costs(result: JsonObject) -> str:
    """The communication costs of a federated run."""
    selected = result["asked"]
    accepted = result["updates"]
    up = result["bytes_up"]
    down = result["bytes_down"]
    text = f"{selected:,} selections of {result['selections']['users']:,} users: "
    text += f"{accepted:,} updates accepted"
    if result["dropped"]:
        text += f", {result['dropped']:,} dropped out"
    if result["refused"]:
        reasons = ", ".join(
            f"{reason} {count:,}" for reason, count in sorted(result["refused"].items())
        )
        text += f", {sum(result['refused'].values()):,} refused ({reasons})"
    text += f". {size_text(up)} up and {size_text(down)} down"
    if selected and accepted:
        text += f", about {size_text(up / accepted)} per update"
        text += f" and {size_text(down / selected)} per selection"
    return text + "."


def disclosure(result: JsonObject) -> str:
    """The users' disclosure rates, the accuracy by rate, and what a rate does not guarantee."""
    settings = result["settings"]
    rates = f"pi = {settings['disclosure']}"
    if settings.get("disclosure_file"):
        rates += f" except for users in {settings['disclosure_file']}"
    if settings.get("private_items"):
        rates += f", never items in {settings['private_items']}"
    text = (
        f"Disclosure: {rates}; pi is a disclosure rate, not a privacy guarantee "
        "(coterie disclosure shows what a server learns)."
    )
    rows = result.get("by_disclosure", [])
    if rows:
        metric = next(key for key in rows[0] if key not in ("from", "to", "users"))
        groups = (f"{_span(row)}: {shown(metric, row[metric])} ({row['users']:,})" for row in rows)
        text += f" {metric} by the users' final disclosure rate: {', '.join(groups)}."
    return text


def _span(row: JsonObject) -> str:
    return f"{row['from']:g}" if row["from"] == row["to"] else f"{row['from']:g} to {row['to']:g}"


def all_notes(
    runs: Sequence[Reported], with_costs: bool = True, names: Sequence[str] | None = None
) -> list[str]:
    """Each note once: first those that all runs share, then others with the names of their runs.

    Costs and figures differ from run to run: a report that has them in a table leaves them out
    here.
    """
    every = list(names or labels(runs))
    about: dict[str, list[str]] = {}
    for run, name in zip(runs, every, strict=True):
        for line in notes(run, with_costs):
            about.setdefault(line, []).append(name)
    shared = [line for line, named in about.items() if named == every]
    by_names: dict[str, list[str]] = {}
    for line, named in about.items():
        if named != every:
            by_names.setdefault(", ".join(dict.fromkeys(named)), []).append(line)
    parts = [f"{named}: {' '.join(lines)}" for named, lines in by_names.items()]
    return [*([" ".join(shared)] if shared else []), *parts]


def settings_lines(runs: Sequence[Reported], names: Sequence[str] | None = None) -> list[str]:
    """The settings of every run; runs of one name with the same settings share a line."""
    lines: dict[str, None] = {}
    for run, name in zip(runs, names or labels(runs), strict=True):
        settings = run.result.get("settings")
        if settings is not None:
            text = key_values(settings) or "none"
            lines[f"{name} ({run.result['algorithm']}): {text}"] = None
    return list(lines)


def labels(runs: Sequence[Reported]) -> list[str]:
    """A distinct name for every run: the algorithm, with the seed or the folder if needed."""
    for name in (
        lambda r: r["algorithm"],
        lambda r: f"{r['algorithm']} seed {r['seed']}",
        lambda r: f"{r['algorithm']} {PurePath(r['run'] or '').name}",
    ):
        names = [str(name(run.result)) for run in runs]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def markdown_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    bold: Collection[tuple[int, int]] = (),
) -> str:
    cells = [
        [
            f"**{_cell(text)}**" if (row, column) in bold else _cell(text)
            for column, text in enumerate(of_row)
        ]
        for row, of_row in enumerate(rows)
    ]
    lines = [
        f"| {' | '.join(of_row)} |"
        for of_row in ([_cell(name) for name in header], ["---"] * len(header), *cells)
    ]
    return "\n".join(lines) + "\n"


def table_width(header: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """The columns of a terminal that a table with lines around its cells takes."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return sum(widths) + 3 * len(widths) + 1


def markdown_list(items: Sequence[str]) -> str:
    return "".join(f"- {_cell(item)}\n" for item in items)


def _cell(text: str) -> str:
    """Escape what would end a Markdown cell; file names may hold it."""
    return " ".join(text.replace("|", "\\|").split())
