"""The Python API, in the command line's words."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.core.progress import SILENT, Progress
from coterie.core.settings import Settings, split_by_owner
from coterie.data import datasets
from coterie.data.filters import Filters, apply
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.synthetic import Synthetic
from coterie.errors import ConfigError
from coterie.experiments import experiment
from coterie.experiments.config import Experiment
from coterie.experiments.folder import new_folder
from coterie.experiments.run import Run

if TYPE_CHECKING:
    import pandas as pd


def load(
    dataset: str | Path | pd.DataFrame,
    *,
    columns: dict[str, str] | None = None,
    skip_bad_rows: bool = False,
    progress: Progress = SILENT,
    **settings: Any,
) -> Interactions:
    """A dataset by name, a file, or a data frame; filters such as `min_rating=4` are the settings of `coterie run`."""
    columns = columns or {}
    if not isinstance(dataset, (str, Path)):
        filters = Filters.of(settings)
        return apply(Interactions.from_frame(dataset, keep=filters.duplicates, **columns), filters)
    name = str(dataset)
    owners: dict[str, type[Settings]] = (
        {"filters": Filters, "made": Synthetic} if name == "synthetic" else {"filters": Filters}
    )
    shares = split_by_owner(settings, owners)
    filters = Filters.of(datasets.dataset(name).filters | shares["filters"])
    made = Synthetic.of(shares.get("made", {}))
    return datasets.load(
        name, filters, Reading(columns, skip_bad_rows, filters.duplicates), made, progress
    )


def run(
    algorithm: str,
    data: str | Path | Interactions | pd.DataFrame = "synthetic",
    *,
    out: str | Path | None = None,
    progress: Progress = SILENT,
    **settings: Any,
) -> Run:
    """Train and evaluate. `settings` are those of `coterie run`: protocol, seed, embedding_size ...

    With `out`, a run folder is left there; without, nothing is written.
    """
    named = isinstance(data, (str, Path))
    given = None if named else data if isinstance(data, Interactions) else load(data)
    if given is not None:
        _refuse_late(settings)
    chosen = Experiment.of(
        {"algorithm": algorithm, "dataset": str(data) if given is None else given.name} | settings
    )
    return experiment.run(
        chosen, given, partial(new_folder, Path(out), algorithm) if out else None, progress
    )


def _refuse_late(settings: dict[str, Any]) -> None:
    """What shapes the data must be said when it is loaded."""
    for key in {
        *Filters.model_fields,
        *Synthetic.model_fields,
        "dataset",
        "columns",
        "skip_bad_rows",
    } & set(settings):
        raise ConfigError(
            f"setting {key!r} is {settings[key]!r}, but the data is loaded already. Pass it to coterie.load."
        )
