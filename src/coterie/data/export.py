"""Writes interactions to a file that Coterie and other programs read."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from coterie.core.atomic_files import write_file
from coterie.data.interactions import Interactions
from coterie.errors import DataError, MissingExtra

SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}


def refuse_target(path: Path) -> None:
    """Fail before anything is read, if the file cannot be written."""
    if path.suffix.lower() not in (*SEPARATORS, ".parquet"):
        raise DataError(
            f"{path}: expected a name that ends in {', '.join(SEPARATORS)} or .parquet. Rename it."
        )
    if path.exists():
        raise DataError(
            f"{path}: exists already; expected a new file. Choose another name or remove it."
        )


def write_interactions(data: Interactions, path: Path) -> None:
    """Write one row per interaction under the names of the roles; only the owner may read it."""
    refuse_target(path)
    try:
        write_file(path, _content(data, path.suffix.lower()), owner_only=True)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror}). Choose another folder."
        ) from None


def _content(data: Interactions, suffix: str) -> bytes:
    frame = data.to_frame()
    if suffix in SEPARATORS:
        return frame.to_csv(index=False, sep=SEPARATORS[suffix]).encode()
    out = BytesIO()
    try:
        frame.to_parquet(out, index=False)
    except ImportError:
        raise MissingExtra("Writing parquet", "parquet") from None
    return out.getvalue()
