"""The Python API, in the command line's words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie import experiment
from coterie.config import Experiment
from coterie.data import datasets
from coterie.data.filters import Filters, apply
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.finished import Run
from coterie.progress import SILENT, Watch
from coterie.runtime.folder import new_folder

if TYPE_CHECKING:
    import pandas as pd


def load(
    dataset: str | Path | pd.DataFrame,
    *,
    columns: dict[str, str] | None = None,
    skip_bad_rows: bool = False,
    **filters: Any,
) -> Interactions:
    """A dataset by name, a file, or a data frame; filters such as `min_rating=4` are the settings of `coterie run`."""
    columns = columns or {}
    if not isinstance(dataset, (str, Path)):
        wanted = Filters.of(filters)
        return apply(Interactions.from_frame(dataset, keep=wanted.duplicates, **columns), wanted)
    chosen = Filters.of(datasets.dataset(str(dataset)).filters | filters)
    return datasets.load(str(dataset), chosen, Reading(columns, skip_bad_rows, chosen.duplicates))


def run(
    algorithm: str,
    data: str | Path | Interactions = "synthetic",
    *,
    out: str | Path | None = None,
    watch: Watch = SILENT,
    **settings: Any,
) -> Run:
    """Train and evaluate. `settings` are those of `coterie run`: protocol, seed, embedding_size ...

    With `out`, a run folder is left there; without, nothing is written.
    """
    given = data if isinstance(data, Interactions) else None
    chosen = Experiment.of({"algorithm": algorithm, "dataset": str(data) if given is None else given.name} | settings)
    folder = None if out is None else new_folder(Path(out), algorithm)
    return experiment.run(chosen, given, folder, watch)
