"""Reads Parquet files, with the same columns and rules as text files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.frames import FrameOfFile, check_frame
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.errors import DataError, MissingExtra

if TYPE_CHECKING:
    import pandas as pd


def read(path: Path, options: ReadOptions) -> Interactions:
    frame = _load(path)
    rows = np.arange(1, len(frame) + 1)
    return options.build(
        check_frame(FrameOfFile(source=str(path), frame=frame, lines=rows), options)
    )


def _load(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError:
        raise MissingExtra("Reading parquet", "parquet") from None
    except FileNotFoundError:
        raise DataError(f"{path}: does not exist. Check the path.") from None
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise DataError(
            f"{path}: is not a readable parquet file ({why}). Fetch or write it again."
        ) from None
