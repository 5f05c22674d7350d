"""One call reads any file of interactions: the format is told by its name, or by what a folder or zip holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coterie.data import delimited, files, foursquare, movielens, parquet, recbole
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.errors import DataError

Reader = Callable[[Path, Reading], Interactions]

BY_CONTENT: dict[str, Reader] = {
    "u.data": movielens.read_100k,
    "ml-100k.inter": movielens.read_100k,
    "ratings.dat": movielens.read_1m,
    "ml-1m.inter": movielens.read_1m,
    "Bologna.tsv": foursquare.read,
}
BY_SUFFIX: dict[str, Reader] = {
    ".csv": delimited.read,
    ".tsv": delimited.read,
    ".txt": delimited.read,
    ".inter": recbole.read,
    ".parquet": parquet.read,
}


def read(path: Path, options: Reading | None = None) -> Interactions:
    """Read a file, a zip or a folder."""
    return _reader(path)(path, options or Reading())


def _reader(path: Path) -> Reader:
    if not path.exists():
        raise DataError(f"{path}: does not exist. Check the path, or name a dataset: coterie data list")
    for name, reader in BY_CONTENT.items():
        if files.exists(path, name):
            return reader
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".zip")]
    if suffixes and suffixes[-1] in BY_SUFFIX:
        return BY_SUFFIX[suffixes[-1]]
    if path.suffix in (".zip", ".gz"):
        return delimited.read
    known = ", ".join(BY_SUFFIX)
    raise DataError(
        f"{path}: the format is not known; expected a name that ends in {known}, or a folder with {', '.join(BY_CONTENT)}. Rename it."
    )
