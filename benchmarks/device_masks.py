"""What masks of secure aggregation would cost on the device page. Prints JSON.

    python benchmarks/device_masks.py [--datasets ml-100k ml-1m]

Needs Node.js. ChaCha20 is written in JavaScript, because WebCrypto has none, and checked against
RFC 8439. A vector of pfpl+ has a row and a bias for every item in words of 32 bits; a client of a
ring expands three masks a round. Each figure is the fastest of some repeats in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path

import coterie
from coterie.algorithms.fpl import FPL

MASKS = 3
"""A self-mask, the client's own share and its predecessor's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="*", default=["ml-100k", "ml-1m"])
    program = Path(__file__).with_suffix(".mjs")
    for dataset in parser.parse_args().datasets:
        words = coterie.load(dataset).n_items * (FPL().embedding_size + 1)
        done = subprocess.run(
            ["node", str(program), str(words)], capture_output=True, text=True, check=True
        )
        found = json.loads(done.stdout)
        figures = {
            "dataset": dataset,
            "kilobytes_of_a_vector": round(4 * words / 1e3, 1),
            **{name: round(value, 2) for name, value in found.items()},
            "ms_of_masks_a_round": round(MASKS * found["ms_a_mask"], 2),
            "load": os.getloadavg()[0],
        }
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
