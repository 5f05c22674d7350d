"""The HTML report of one finished run, with the runs beside it."""

from __future__ import annotations

from pathlib import Path

from coterie.experiments.finished_run import Run
from coterie.experiments.neighbours import centralised_beside
from coterie.experiments.sample_lists import sample_lists
from coterie.report.run_page import run_page


def run_report(run: Run, folder: Path) -> str:
    """The page of a run in a folder."""
    beside = centralised_beside(folder, run.result)
    return run_page(run, sample_lists(run), beside.runs, beside.n_unread)
