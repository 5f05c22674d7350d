"""Seconds to read a large file of ratings, the first time and from the cache.

python benchmarks/read_files.py --rows 1150000

Writes a file like BX-Book-Ratings.csv: semicolons, latin-1, every cell in quotes, some cells with
escaped quotes and some rows with stray ones. Reads it twice with an empty cache, and prints JSON.
`pandas` is the time of pandas.read_csv for the same file, without any check.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

N_USERS = 105_000
N_ITEMS = 340_000
EVERY_ESCAPED = 10_000
EVERY_STRAY = 100_000


def row(n: int, user: int, item: int, rating: int) -> str:
    if n % EVERY_STRAY == EVERY_STRAY - 1:
        return f'"{user}";"{item:09d}"X";"{rating}"'
    if n % EVERY_ESCAPED == EVERY_ESCAPED - 1:
        return f'"{user}";"\\"{item:09d}";"{rating}"'
    letter = "é" if n % 5_000 == 0 else "X"
    return f'"{user}";"{item:09d}{letter}";"{rating}"'


def write(path: Path, n_rows: int) -> None:
    random = np.random.default_rng(0)
    users = (random.zipf(1.3, n_rows) % N_USERS).tolist()
    items = random.integers(0, N_ITEMS, n_rows).tolist()
    ratings = random.integers(0, 11, n_rows).tolist()
    rows = [row(n, *cells) for n, cells in enumerate(zip(users, items, ratings, strict=True))]
    text = "\n".join(['"User-ID";"ISBN";"Book-Rating"', *rows, ""])
    path.write_text(text, encoding="latin-1")


def by_pandas(path: Path) -> float:
    import pandas as pd

    start = time.perf_counter()
    pd.read_csv(path, sep=";", encoding="latin-1", quoting=csv.QUOTE_NONE, dtype=str)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_150_000)
    n_rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        from coterie.data.options import ReadOptions
        from coterie.data.reading import read

        path = Path(folder) / "ratings.csv"
        write(path, n_rows)
        seconds = []
        cpu_seconds = []
        pandas_seconds = by_pandas(path)  # first, so that importing pandas counts for neither
        for _ in range(2):
            start = time.perf_counter()
            cpu_start = time.process_time()
            data = read(path, ReadOptions(skip_bad_rows=True, encoding="latin-1"))
            seconds.append(round(time.perf_counter() - start, 2))
            cpu_seconds.append(round(time.process_time() - cpu_start, 2))
        found = {
            "rows": n_rows,
            "megabytes": round(path.stat().st_size / 1e6, 1),
            "interactions": len(data),
            "first_seconds": seconds[0],
            "second_seconds": seconds[1],
            "first_cpu_seconds": cpu_seconds[0],
            "second_cpu_seconds": cpu_seconds[1],
            "pandas_seconds": round(pandas_seconds, 2),
            "load": os.getloadavg()[0],
            "reading": data.reading,
            "notes": data.notes,
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
