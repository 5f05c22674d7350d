"""A comparison as Markdown, and the notes that a reader needs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from coterie.evaluation.direction import lower_is_better
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.comparison import Comparison
from coterie.experiments.comparison_summary import summary
from coterie.experiments.comparison_tables import BELOW, BETTER, LEVEL, WORSE, sections
from coterie.experiments.plan import Cell
from coterie.federated.privacy.settings import is_private
from coterie.report.conditions import READING, facts
from coterie.report.table import all_notes, markdown_list, markdown_table, settings_lines


def markdown(comparison: Comparison, results: Sequence[CellResult]) -> str:
    """Summary, tables and remarks."""
    parts = [
        f"## {section.title}\n\n{markdown_table(section.header, section.rows, section.bold)}"
        for section in sections(comparison)
    ]
    conditions = [
        f"{fact.name}: {line}" for fact in facts(results[0].result) for line in fact.lines
    ]
    conditions += [f"{READING}: {line}" for line in comparison.reading]
    labels = [result.cell.method.label for result in results]
    settings = [f"Settings of {line}" for line in settings_lines(results, labels)]
    remarks = markdown_list([*notes(comparison, results), *conditions, *settings])
    opening = [f"# {title(comparison)}\n", markdown_list(summary(comparison))]
    return "\n".join([*opening, *parts, remarks])


def title(comparison: Comparison) -> str:
    return f"{', '.join(s.method for s in comparison.standings)} on {comparison.dataset}"


def notes(
    comparison: Comparison, results: Sequence[CellResult], with_bold: bool = True
) -> list[str]:
    """What a reader must know to interpret the figures, and the marks in tables."""
    lines = legend(comparison, with_bold)
    if any(standing.below_popular for standing in comparison.standings):
        lines.append(
            f"{BELOW} below popular: recommending the most popular items to all users scores more."
        )
    return [*lines, *notes_on_figures(comparison, results)]


def notes_on_figures(comparison: Comparison, results: Sequence[CellResult]) -> list[str]:
    """What a reader must know to interpret the figures."""
    lines = []
    if comparison.tests:
        first = comparison.standings[0].method
        unit = comparison.unit
        minus = "the method minus the other one"
        ahead = "the method"
        if not comparison.all_pairs:
            minus = f"{first} minus the other method"
            ahead = first
        lines.append(
            f"Differences are {minus}, per user and averaged over {unit}: "
            "paired t-test over users, 95% bootstrap interval, p-values with Holm's correction "
            f"for {len(comparison.tests)} tests. Ahead: {unit} with which the mean of {ahead} "
            "is better."
        )
        lower = dict.fromkeys(t.metric for t in comparison.tests if lower_is_better(t.metric))
        if lower:
            lines.append(
                f"{' and '.join(lower)}: lower is better, so a negative difference is in favour "
                f"of {first}."
            )
        if "RMSE" in lower:
            lines.append(
                "Tested are the errors of single users: a difference of RMSE is that of the users' "
                "own RMSE, which with one held-out rating per user is their MAE."
            )
    runs = _of_first_draw(comparison, results)
    labels = [run.cell.method.label for run in runs]
    lines += all_notes(runs, with_costs=False, names=labels)
    return [*lines, *_untuned(results)]


def _untuned(results: Sequence[CellResult]) -> list[str]:
    """The methods with default settings that were not tuned for the data, and how to tune one."""
    found = {run.cell.method.label: run.cell for run in results if has_default_settings(run.cell)}
    if not found:
        return []
    choices = [cell.experiment.choice for cell in found.values()]
    names = {choice.algorithm for choice in choices}
    name = names.pop() if len(names) == 1 else "NAME"
    command = shlex.join(["coterie", "tune", name, "--dataset", choices[0].dataset])
    return [
        f"Settings of {', '.join(found)}: defaults, not tuned for this data; "
        f"{command} searches for better ones."
    ]


def has_default_settings(cell: Cell) -> bool:
    """Whether all settings that a search would try are defaults that no search has found."""
    settings = cell.experiment.settings
    defaults = type(settings).of({})
    searched = settings.search_space
    return (
        bool(searched)
        and not cell.experiment.tuned
        # Under a privacy budget a search would not be paid for.
        and not is_private(settings)
        and all(getattr(settings, key) == getattr(defaults, key) for key in searched)
    )


def legend(comparison: Comparison, with_bold: bool = True) -> list[str]:
    """What bold figures, ± and the marks mean; a pipe has no bold figures."""
    lines = []
    if with_bold and len(comparison.standings) > 1:
        lines.append("Bold: the best mean of a metric.")
    if comparison.tests:
        lines.append(
            f"{BETTER} significantly better, {WORSE} significantly worse than "
            f"{comparison.standings[0].method}: paired t-test over users, p < {LEVEL:g} after "
            f"Holm's correction for {len(comparison.tests)} tests."
        )
    if comparison.n_runs > 1:
        lines.append(f"± is the standard deviation over {comparison.runs}.")
    return lines


def _of_first_draw(comparison: Comparison, results: Sequence[CellResult]) -> list[CellResult]:
    """The runs of the first fold and repeat, whose notes stand for all: others differ little."""
    first = results[0].cell.experiment.protocol.draw
    runs = [run for run in results if run.cell.experiment.protocol.draw == first]
    if comparison.folds == 1:
        return runs
    # All folds are tested, so a note that only one is would be wrong.
    return [
        replace(run, result={k: v for k, v in run.result.items() if k not in ("fold", "folds")})
        for run in runs
    ]
