"""Reads any file of interactions; its name, or the contents of a folder or zip, give the format."""

from __future__ import annotations

from pathlib import Path

from coterie.data import delimited, files, parquet, recbole
from coterie.data.catalogue import DATASETS, Reader
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.errors import DataError

BY_CONTENT: dict[str, Reader] = {file: d.read for d in DATASETS.values() for file in d.signature}
BY_SUFFIX: dict[str, Reader] = {
    ".csv": delimited.read,
    ".tsv": delimited.read,
    ".txt": delimited.read,
    ".inter": recbole.read,
    ".parquet": parquet.read,
}


def read(path: Path, options: ReadOptions | None = None) -> Interactions:
    """Read a file, a zip or a folder."""
    return _reader(path)(path, options or ReadOptions())


def _reader(path: Path) -> Reader:
    if not path.exists():
        raise DataError(
            f"{path}: does not exist. Check the path, or name a dataset: coterie data list"
        )
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
        f"{path}: the format is not known; expected a name that ends in {known}, "
        f"or a folder with {', '.join(BY_CONTENT)}. Rename it."
    )
