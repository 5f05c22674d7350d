"""A dataset by name or path: found or fetched, read, filtered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from coterie.core.progress import SILENT, Progress
from coterie.data import reading
from coterie.data.catalogue import DATASETS, Dataset
from coterie.data.fetch import bring
from coterie.data.filters import Filters, apply
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.synthetic import Synthetic, generate
from coterie.errors import DataError, UnknownName

__all__ = ["DATASETS", "Dataset", "as_usual", "dataset", "load"]


def dataset(name: str) -> Dataset:
    """A dataset by name, or one made up for a path."""
    if name in DATASETS:
        return DATASETS[name]
    if name == "given":
        return Dataset(name, "interactions passed in from Python", "full", read=reading.read)
    if _looks_like_path(name):
        return Dataset(name, "interactions from a file", "full", read=reading.read)
    raise UnknownName("dataset", name, DATASETS, "; it is not a file either")


def load(
    name: str,
    filters: Filters | None = None,
    options: Reading | None = None,
    synthetic: Synthetic | None = None,
    progress: Progress = SILENT,
) -> Interactions:
    """Read a dataset (fetching it first where that is needed) and filter it; its paper's filter is the default."""
    wanted = dataset(name)
    if name == "given":
        raise DataError(
            "dataset 'given' was passed in from Python and is not kept; expected a name or a path. Pass --dataset PATH."
        )
    filters = filters or Filters.of(wanted.filters)
    if wanted.made_up:
        data = generate(synthetic or Synthetic())
    else:
        options = options or Reading(duplicates=filters.duplicates)
        place = (
            bring(name, wanted.signature, wanted.sources, wanted.by_hand, progress)
            if name in DATASETS
            else Path(name)
        )
        with progress.task(f"Reading {name}", None):
            data = wanted.read(place, options)
    return replace(
        apply(data, filters), name=name if as_usual(name, filters, synthetic) else "given"
    )


def as_usual(name: str, filters: Filters, synthetic: Synthetic | None) -> bool:
    """Whether these are a named dataset's own filters: only then do its tuned settings mean anything."""
    return (
        name in DATASETS
        and filters == Filters.of(DATASETS[name].filters)
        and synthetic in (None, Synthetic())
    )


def _looks_like_path(name: str) -> bool:
    return Path(name).exists() or "/" in name or "\\" in name or bool(Path(name).suffix)
