"""Bytes of messages that algorithms would exchange with a device page. Prints JSON.

    python benchmarks/device_messages.py [--datasets ml-100k ml-1m]

`down` is what a device fetches in a round, or to recommend; `up` is the update of a user with the
median number of items, in plain messages.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

import coterie
from coterie.algorithms.fedals import FedALS
from coterie.algorithms.local.cooccurrence import n_pairs
from coterie.federated.wire import encode
from coterie.types import Updates


def update_bytes(n_items: int, dense: int) -> int:
    """The update of a user with so many items, and a vector of `dense` numbers."""
    made = Updates(
        users=np.zeros(1, np.int32),
        samples=np.ones(1, np.int64),
        offsets=np.array([0, n_items]),
        items=np.arange(n_items, dtype=np.int32),
        item_rows=np.empty((n_items, 0), np.int32),
        user_rows=np.empty((1, 0), np.int32),
        dense=np.zeros((1, dense), np.int32),
    )
    return len(encode(0, made.columns()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="*", default=["ml-100k", "ml-1m"])
    size = FedALS().embedding_size
    for dataset in parser.parse_args().datasets:
        data = coterie.load(dataset)
        median = int(np.median(np.bincount(data.users)))
        figures = {
            "dataset": dataset,
            "median_items": median,
            "fedals_up": update_bytes(median, size),
            "fedals_down": len(encode(0, {}, {"item_rows": np.zeros((data.n_items, size), "f4")})),
            "fedease_up": update_bytes(median, 0),
            "fedease_model_down": 4 * data.n_items**2,
            "fedease_up_secure": 4 * n_pairs(data.n_items),
        }
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
