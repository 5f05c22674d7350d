"""Reads any file of interactions; its name, or the contents of a folder or zip, give the format."""

from __future__ import annotations

from pathlib import Path

from coterie.core.missing_files import refuse_missing
from coterie.data import delimited, files, json_records, parquet, recbole
from coterie.data.catalogue import DATASETS, Reader
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.read_cache import read_once
from coterie.errors import DataError

BY_CONTENT: dict[str, Reader] = {file: d.read for d in DATASETS.values() for file in d.signature}
BY_SUFFIX: dict[str, Reader] = {
    ".csv": delimited.read,
    ".tsv": delimited.read,
    ".txt": delimited.read,
    ".inter": recbole.read,
    ".parquet": parquet.read,
    ".json": json_records.read,
    ".jsonl": json_records.read,
    ".ndjson": json_records.read,
}
UNKNOWN_DATA = "Check the path, or name a dataset: coterie data list"
"""The remedy for a path that does not exist and is not like another."""
PLAIN_READERS = (delimited.read, parquet.read, json_records.read)
"""Readers of a single file, whose readings are cached."""
_SHEET = (
    "Save the sheet as CSV UTF-8, or pass a data frame in Python: "
    "coterie.load(pandas.read_excel({path!r}), "
    'columns={{"user_id": "NAME", "item_id": "NAME"}})'
)
CONVERTED = {".xlsx": _SHEET, ".xls": _SHEET, ".ods": _SHEET}
"""Suffix -> how to get interactions out of files that are not read."""


def read(path: Path, options: ReadOptions | None = None) -> Interactions:
    """Read a file, a zip or a folder."""
    options = options or ReadOptions()
    reader = _reader(path, options)
    if reader in PLAIN_READERS:
        return read_once(path, options, reader)
    return reader(path, options)


def _reader(path: Path, options: ReadOptions) -> Reader:
    refuse_missing(path, UNKNOWN_DATA)
    if options.are_for_text and path.is_file():
        return delimited.read
    for name, reader in BY_CONTENT.items():
        if files.exists(path, name):
            return reader
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".zip")]
    if suffixes and suffixes[-1] in BY_SUFFIX:
        return BY_SUFFIX[suffixes[-1]]
    if path.suffix in (".zip", ".gz"):
        return delimited.read
    known = ", ".join(BY_SUFFIX)
    if suffixes and suffixes[-1] in CONVERTED:
        raise DataError(
            f"{path}: {suffixes[-1]} files are not read; expected {known}. "
            f"{CONVERTED[suffixes[-1]].format(path=str(path))}"
        )
    raise DataError(
        f"{path}: the format is not known; expected a name that ends in {known}, "
        f"or a folder with {', '.join(BY_CONTENT)}. "
        "Rename it; for text in columns, pass --delimiter, such as --delimiter tab."
    )
