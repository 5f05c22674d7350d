"""Lists of recommendations for all users, in blocks: in memory, or streamed to a file.

A file has one row per user and rank: user_id, rank, item_id, score, where items have titles title,
and on request why: the reasons as JSON. It tells what users like, so only its owner can read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from coterie.core.progress import SILENT, Progress
from coterie.errors import ConfigError, MissingExtra
from coterie.evaluation.ranking import BLOCK_CELLS, best_lists
from coterie.experiments.reasons import Explainer, Reason, as_objects
from coterie.experiments.run_folder import Catalogue, replacing
from coterie.models.recommender import Recommender
from coterie.types import Rows

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (".csv", ".parquet")


class FrameWriter(Protocol):
    def __call__(self, frame: pd.DataFrame) -> None: ...


def list_blocks(
    model: Recommender,
    catalogue: Catalogue,
    n: int,
    exclude_seen: bool,
    explainer: Explainer | None = None,
) -> Iterator[pd.DataFrame]:
    """The n best items of all users, one frame per block of users; with reasons if explained."""
    if n < 1:
        raise ConfigError(f"n is {n}; expected at least one item. Pass 1 or more.")
    n_users = len(catalogue.user_ids)
    n_items = len(catalogue.item_ids)
    seen = catalogue.seen
    if not exclude_seen:
        seen = Rows(np.zeros(n_users + 1, np.int64), np.empty(0, np.int32))
    step = max(1, BLOCK_CELLS // max(n_items, 1))
    for first in range(0, n_users, step):
        users = np.arange(first, min(first + step, n_users), dtype=np.int32)
        yield _block(model, catalogue, users, seen, min(n, n_items), explainer)


def _block(
    model: Recommender,
    catalogue: Catalogue,
    users: np.ndarray,
    seen: Rows,
    n: int,
    explainer: Explainer | None,
) -> pd.DataFrame:
    import pandas as pd

    items, scores = best_lists(model, users, seen, n)
    rows, ranks = np.nonzero(items >= 0)
    listed = items[rows, ranks]
    columns: dict[str, Sequence[object] | np.ndarray] = {
        "user_id": catalogue.user_ids[users[rows]],
        "rank": ranks + 1,
        "item_id": catalogue.item_ids[listed],
        "score": scores[rows, ranks],
    }
    if catalogue.item_texts is not None:
        columns["title"] = catalogue.item_texts[listed]
    if explainer is not None:
        columns["why"] = [
            reasons
            for user, best in zip(users, items, strict=True)
            for reasons in explainer.for_user(user, best[best >= 0])
        ]
    return pd.DataFrame(columns)


def write_lists(
    path: Path,
    model: Recommender,
    catalogue: Catalogue,
    n: int,
    exclude_seen: bool = True,
    progress: Progress = SILENT,
    explainer: Explainer | None = None,
) -> int:
    """Write the n best items of all users as csv or parquet; returns the number of rows."""
    check_format(path)
    n_rows = 0
    with (
        replacing(path) as scratch,
        _writer(scratch, path.suffix.lower()) as write,
        progress.task("Recommending", len(catalogue.user_ids)) as advance,
    ):
        step = max(1, BLOCK_CELLS // max(len(catalogue.item_ids), 1))
        for frame in list_blocks(model, catalogue, n, exclude_seen, explainer):
            if explainer is not None:
                frame["why"] = [_json(reasons) for reasons in frame["why"]]
            write(frame)
            n_rows += len(frame)
            advance(step)
    return n_rows


def _json(reasons: Sequence[Reason]) -> str:
    """Reasons as JSON, with as many digits as scores have in a csv file."""
    rounded = [
        reason._replace(
            contribution=float(f"{reason.contribution:.6g}"),
            share=None if reason.share is None else float(f"{reason.share:.6g}"),
        )
        for reason in reasons
    ]
    return json.dumps(as_objects(rounded), ensure_ascii=False)


def check_format(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"{path}: the ending is {path.suffix!r}; expected {' or '.join(FORMATS)}. "
            "Name the file so."
        )


@contextmanager
def _writer(path: Path, suffix: str) -> Iterator[FrameWriter]:
    """A function that appends a frame to the file."""
    if suffix == ".csv":
        with path.open("a", newline="", errors="backslashreplace") as out:
            yield lambda frame: frame.to_csv(
                out, index=False, header=out.tell() == 0, float_format="%.6g"
            )
        return
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("Writing parquet", "parquet") from None

    writer: parquet.ParquetWriter | None = None

    def append(frame: pd.DataFrame) -> None:
        nonlocal writer
        table = arrow.Table.from_pandas(frame, preserve_index=False)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)

    try:
        yield append
    finally:
        if writer is not None:
            writer.close()
