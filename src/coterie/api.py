"""The Python API. Its parameters have the names of the command line's settings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.core.progress import SILENT, Progress
from coterie.core.settings import Settings, split_by_owner
from coterie.data import datasets
from coterie.data.filters import Filters, apply
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.synthetic import Synthetic
from coterie.errors import ConfigError
from coterie.experiments import experiment
from coterie.experiments.config import Experiment
from coterie.experiments.finished_run import Run
from coterie.experiments.run_folder import new_folder

if TYPE_CHECKING:
    import pandas as pd


def load(
    dataset: str | Path | pd.DataFrame,
    *,
    columns: dict[str, str] | None = None,
    skip_bad_rows: bool = False,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool = True,
    keep_ratings: bool = False,
    progress: Progress = SILENT,
    **settings: object,
) -> Interactions:
    """Load a dataset by name, from a file or from a data frame.

    `settings` are the filters of `coterie run`, such as `min_rating=4`. `reading` of the result
    says which columns were used. A whole number and its text are the same id. Ratings are dropped
    after filtering unless `feedback` is explicit or `keep_ratings` is set.
    """
    columns = columns or {}
    if not isinstance(dataset, (str, Path)):
        filters = Filters.of(settings)
        given = Interactions.from_frame(dataset, keep=filters.duplicates, **columns)
        return apply(given, filters, keep_ratings)
    name = str(dataset)
    owners: dict[str, type[Settings]] = {"filters": Filters}
    if name == "synthetic":
        owners["synthetic"] = Synthetic
    shares = split_by_owner(settings, owners)
    filters = Filters.of(datasets.dataset(name).filters | shares["filters"])
    synthetic = Synthetic.of(shares.get("synthetic", {}))
    options = ReadOptions(
        columns=columns,
        skip_bad_rows=skip_bad_rows,
        duplicates=filters.duplicates,
        encoding=encoding,
        delimiter=delimiter,
        header=header,
    )
    return datasets.load(name, filters, options, synthetic, progress, keep_ratings)


def run(
    algorithm: str,
    data: str | Path | Interactions | pd.DataFrame = "synthetic",
    *,
    out: str | Path | None = None,
    progress: Progress = SILENT,
    **settings: object,
) -> Run:
    """Train and evaluate. `settings` are those of `coterie run`: protocol, seed, embedding_size ...

    With `out`, write a run folder there; without it, write nothing.
    """
    loaded: Interactions | None = None
    if isinstance(data, Interactions):
        loaded = data
    elif not isinstance(data, (str, Path)):
        loaded = load(data)
    if loaded is not None:
        _reject_data_settings(settings)
    dataset = str(data) if loaded is None else loaded.name
    chosen = Experiment.of({"algorithm": algorithm, "dataset": dataset} | settings)
    folder = partial(new_folder, Path(out), algorithm) if out else None
    return experiment.run(chosen, loaded, folder, progress)


def _reject_data_settings(settings: dict[str, object]) -> None:
    """Reject settings that only take effect while data is loaded."""
    of_data = {
        *Filters.model_fields,
        *Synthetic.model_fields,
        "dataset",
        "columns",
        "skip_bad_rows",
        "encoding",
        "delimiter",
        "header",
    }
    for key in of_data & set(settings):
        raise ConfigError(
            f"setting {key!r} is {settings[key]!r}, but the data is already loaded. "
            "Pass it to coterie.load."
        )
