"""Loads a dataset by name or path: locates or fetches it, reads it, filters it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from coterie.core import plugins
from coterie.core.progress import SILENT, Progress
from coterie.data import reading
from coterie.data.catalogue import DATASETS, Dataset
from coterie.data.fetch import locate_or_fetch
from coterie.data.filters import Filters, apply
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.synthetic import Synthetic, generate
from coterie.errors import ConfigError, DataError, UnknownName

__all__ = ["DATASETS", "Dataset", "dataset", "has_default_filters", "load", "names"]


def names() -> list[str]:
    """The names of all datasets: Coterie's own, then those of plug-ins."""
    return [*DATASETS, *plugins.names(plugins.DATASETS, DATASETS)]


def dataset(name: str) -> Dataset:
    """The dataset of that name; for a path, a new entry that reads the file."""
    if name in DATASETS:
        return DATASETS[name]
    if name in names():
        return plugins.load(plugins.DATASETS, name, Dataset)
    if name == "given":
        return Dataset(name, "interactions passed in from Python", "full", read=reading.read)
    if _looks_like_path(name):
        return Dataset(name, "interactions from a file", "full", read=reading.read)
    raise UnknownName("dataset", name, names(), "; no file has that name either")


def load(
    name: str,
    filters: Filters | None = None,
    options: ReadOptions | None = None,
    synthetic: Synthetic | None = None,
    progress: Progress = SILENT,
    keep_ratings: bool = False,
) -> Interactions:
    """Read a dataset, fetching it first if necessary, and filter it.

    The filters of the dataset's paper are the default. `keep_ratings` keeps ratings that the
    filters only look at.
    """
    wanted = dataset(name)
    if name == "given":
        raise DataError(
            "dataset 'given' was passed in from Python and is not stored; "
            "expected a name or a path. Pass --dataset PATH."
        )
    if name in names() and options is not None:
        _refuse_text_options(name, options)
    filters = filters or Filters.of(wanted.filters)
    if wanted.made_up:
        data = generate(synthetic or Synthetic())
    else:
        options = options or ReadOptions(duplicates=filters.duplicates)
        path = Path(name)
        if name in names():
            path = locate_or_fetch(name, wanted.signature, wanted.sources, wanted.by_hand, progress)
        with progress.task(f"Reading {name}", None):
            data = wanted.read(path, options)
    shown_name = name if has_default_filters(name, filters, synthetic) else "given"
    return replace(apply(data, filters, keep_ratings), name=shown_name)


def _refuse_text_options(name: str, options: ReadOptions) -> None:
    if options.are_for_text:
        raise ConfigError(
            f"--encoding, --delimiter or --no-header is set, but {name} is a dataset with a "
            "format of its own; expected them for csv, tsv and txt files. Remove them."
        )


def has_default_filters(name: str, filters: Filters, synthetic: Synthetic | None) -> bool:
    """Whether the filters are the named dataset's own; its tuned settings are valid only then."""
    return (
        name in names()
        and filters == Filters.of(dataset(name).filters)
        and synthetic in (None, Synthetic())
    )


def _looks_like_path(name: str) -> bool:
    return Path(name).exists() or "/" in name or "\\" in name or bool(Path(name).suffix)
