"""A search as one HTML page: every trial, the best value so far, and the curves."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from coterie.errors import MissingExtra
from coterie.evaluation.direction import is_better, lower_is_better
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.tuning import TuningResult
from coterie.report import static
from coterie.report.figures import Figure, Series
from coterie.report.parts import document, html_table
from coterie.report.sparkline import sparkline


def values_of(found: TuningResult) -> list[float | None]:
    """The value of every trial in the order of their draws; None if it diverged."""
    return [None if t.diverged else float(t.result["value"]) for t in found.trials]


def summary_line(found: TuningResult) -> str:
    """The trials as bars, lowest to highest value."""
    values = [value for value in values_of(found) if value is not None]
    worst = max(values) if lower_is_better(found.metric) else min(values)
    best = min(values) if lower_is_better(found.metric) else max(values)
    bars = sparkline(values_of(found))
    return f"{found.metric} of {len(found.trials)} trials: {bars} ({worst:.4f} to {best:.4f})"


def page(found: TuningResult, command: str) -> str:
    """One self-contained page; `command` repeats the search."""
    search = found.search
    title = f"Search for settings: {search.algorithm} on {search.dataset}"
    about = f"{search.trials} trials, measured by {found.metric} on the validation part. "
    if search.finalists:
        about += (
            f"The best {search.finalists} were trained again with {search.seeds} other seeds; "
            f"the best mean is {found.best.value:.4f}."
        )
    settings = ", ".join(f"{key} {value}" for key, value in found.best.settings.items())
    if found.best.popularity_prior:
        settings += f", popularity_prior {found.best.popularity_prior:.3g}"
    return document(
        title,
        [
            f"<h1>{escape(title)}</h1><p class=about>{escape(about)}</p>",
            f"<p>Found: {escape(settings)}.</p>",
            _drawn(found),
            f"<h2>Trials</h2>{html_table(*table(found))}",
            f"<h2>Repeat</h2><pre>{escape(command)}</pre>",
        ],
    )


def table(found: TuningResult) -> tuple[list[str], list[list[str]]]:
    """(header, rows): every trial, in the order of their draws."""
    names = list(found.search.searched)
    rows = []
    for trial, value in zip(found.trials, values_of(found), strict=True):
        steps = "" if value is None else str(trial.result["best_round"])
        figure = "diverged" if value is None else f"{value:.4f}"
        drawn = [str(trial.cell.method.settings[name]) for name in names]
        rows.append([trial.cell.method.label, figure, steps, *drawn])
    return ["trial", found.metric, "best step", *names], rows


def _drawn(found: TuningResult) -> str:
    try:
        text = static.draw([progress_figure(found), curves_figure(found)], "svg", 2).decode()
    except MissingExtra as missing:
        return f"<p>{escape(str(missing))}</p>"
    return text[text.index("<svg") :]


def progress_figure(found: TuningResult) -> Figure:
    """The value of every trial, and the best one so far."""
    values = values_of(found)
    numbers = [float(n) for n in range(1, len(values) + 1)]
    series = [
        Series("trial", values, {"trial": numbers}, line=False),
        Series("best so far", best_so_far(values, found.metric), {"trial": numbers}),
    ]
    return Figure("trials", "Trials", found.metric, series)


def best_so_far(values: Sequence[float | None], metric: str) -> list[float | None]:
    """The best of the values up to each place."""
    best: float | None = None
    steps: list[float | None] = []
    for value in values:
        if value is not None and (best is None or is_better(metric, value, best)):
            best = value
        steps.append(best)
    return steps


def curves_figure(found: TuningResult) -> Figure:
    """The curves of all trials in grey, that of the one whose settings won in colour.

    The winner is the best finalist, which need not be the best trial.
    """
    converged = [trial for trial in found.trials if not trial.diverged and len(trial.curve) > 1]
    series = [_curve(trial, found, beneath=True) for trial in converged]
    won = found.best.settings.items()
    winner = next((trial for trial in converged if trial.cell.method.settings.items() <= won), None)
    if winner is not None:
        series.append(_curve(winner, found, beneath=False))
    return Figure("curves", "Curves", found.metric, series)


def _curve(trial: CellResult, found: TuningResult, beneath: bool) -> Series:
    name = trial.cell.method.label
    return Series(
        # A name that begins with _ has no place in the legend, which would name every trial.
        f"_{name}" if beneath else f"winner: {name}",
        [line[found.metric] for line in trial.curve],
        {found.search.steps: [float(line["round"]) for line in trial.curve]},
        beneath=beneath,
    )
