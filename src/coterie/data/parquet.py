"""Reads Parquet files, with the same columns and rules as text files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.core.file_limits import most_unpacked, refuse_large
from coterie.core.printable import one_line
from coterie.data.frames import FrameOfFile, check_frame
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.errors import DataError, MissingExtra

if TYPE_CHECKING:
    import pandas as pd
    from pyarrow.parquet import FileMetaData

VALUE_BYTES = 8
"""Of a number, or of a reference to a text."""


def read(path: Path, options: ReadOptions) -> Interactions:
    frame = load(path)
    rows = np.arange(1, len(frame) + 1)
    return options.build(
        check_frame(FrameOfFile(source=str(path), frame=frame, lines=rows), options)
    )


def load(path: Path) -> pd.DataFrame:
    """The table of a file; its declared size is checked first."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingExtra("Reading parquet", "parquet") from None
    try:
        for part in sorted(path.rglob("*.parquet")) if path.is_dir() else [path]:
            _refuse_large(part, parquet.read_metadata(part))
        frame: pd.DataFrame = parquet.read_table(path).to_pandas()
        return frame
    except FileNotFoundError:
        raise DataError(f"{path}: does not exist. Check the path.") from None
    except (OSError, ValueError, TypeError, KeyError, ArrowException) as error:
        raise DataError(
            f"{path}: is not a readable parquet file ({one_line(error)}). Fetch or write it again."
        ) from None


def _refuse_large(path: Path, about: FileMetaData) -> None:
    """Repeated values take next to no space in the file, but 8 bytes each in memory."""
    groups = range(about.num_row_groups)
    encoded = sum(about.row_group(k).total_byte_size for k in groups)
    decoded = max(about.num_rows, 0) * max(about.num_columns, 0) * VALUE_BYTES
    packed = path.stat().st_size
    refuse_large(path, max(encoded, decoded), most_unpacked(packed), packed)
