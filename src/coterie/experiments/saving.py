"""Files that a run writes on request: setting `save`.

recommendations.csv       the best items of every user, as many as the largest cut-off (at least 10)
split/train.csv, test.csv and, if there is one, validation.csv
                          the interactions of every part; `split=own` can use them again

They tell what users like, so only their owner can read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coterie.core.progress import Progress
from coterie.data.splits import Split
from coterie.experiments import recommendations, run_folder
from coterie.experiments.finished_run import Run

LISTS = "recommendations.csv"
SPLIT = "split"
SHORTEST = 10
"""Items in a list, if the protocol's cut-offs are smaller."""


def write(
    folder: Path,
    wanted: Sequence[str],
    finished: Run,
    parts: Split,
    cutoffs: Sequence[int],
    progress: Progress,
) -> None:
    """Write what `save` names into the folder of the run."""
    if "recommendations" in wanted:
        n = max(SHORTEST, *cutoffs)
        path = folder / LISTS
        recommendations.write_lists(
            path, finished.recommender, finished.catalogue, n, progress=progress
        )
        progress.log(f"saved the {n} best items of every user: {path}")
    if "split" in wanted:
        _write_split(folder / SPLIT, parts)
        progress.log(f"saved the parts of the split: {folder / SPLIT}")


def _write_split(folder: Path, parts: Split) -> None:
    for name, part in (
        ("train", parts.train),
        ("validation", parts.validation),
        ("test", parts.test),
    ):
        if part is not None:
            run_folder.write_private_table(folder, f"{name}.csv", part.to_frame())
