"""SHA-256 of what every algorithm learns, so that a refactoring can prove that it changed nothing.

python benchmarks/fingerprints.py --out before.json
python benchmarks/fingerprints.py --out after.json --against before.json

Every federated algorithm is trained on synthetic data and on MovieLens-100K (features and texts
included), in one process, over three nodes, and with secure aggregation. Every baseline is trained
on both. A fingerprint covers the arrays of the final model and the metrics, not the names of the
arrays: a field may be renamed. Hashes hold on one platform with pinned versions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import coterie
from coterie.algorithms.registry import ALGORITHMS, algorithm
from coterie.errors import CoterieError

SECURE = {"secure_aggregation": "ring"}
NODES = {"nodes": 3}
TOWERS = ("fl-dssm", "fl-clsm", "sttfedrec-dssm", "sttfedrec-clsm", "dssm", "clsm")
SYNTHETIC = {"n_users": 120, "n_items": 80}


def length(name: str, dataset: str, secure: bool) -> dict[str, int]:
    """Few rounds suffice: a bit that changes in the first round changes all later ones."""
    fields = algorithm(name).settings.model_fields
    if "rounds" in fields:
        return {"rounds": 2 if secure or name in TOWERS else 12}
    if "epochs" in fields:
        return {"epochs": 1 if dataset != "synthetic" or name in TOWERS else 2}
    return {}


def variants(name: str) -> dict[str, dict[str, Any]]:
    """The settings of each variant; an algorithm without secure aggregation refuses `secure`."""
    if not algorithm(name).federated:
        return {"plain": {}}
    return {"plain": {}, "nodes": NODES, "secure": SECURE}


def fingerprint(name: str, dataset: str, variant: str, extra: dict[str, Any]) -> dict[str, Any]:
    """The fingerprint of one run, or the error if the algorithm refuses the settings."""
    settings = length(name, dataset, variant == "secure") | extra
    if dataset == "synthetic":
        settings |= SYNTHETIC
    if (name == "sfpl" and dataset != "synthetic") or (name == "sfpl+" and variant == "nodes"):
        settings |= {"epochs": 1}
    began = time.perf_counter()
    try:
        run = coterie.run(name, dataset, seed=3, evaluate_every=1000, **settings)
    except CoterieError as error:
        return {"refused": type(error).__name__, "why": str(error)}
    return {
        "model": digest(run.model),
        "metrics": {key: repr(value) for key, value in (run.metrics | run.full).items()},
        "bytes": [run.result.get("bytes_up"), run.result.get("bytes_down")],
        "seconds": round(time.perf_counter() - began, 1),
    }


def digest(model: Any) -> str:
    """Hash the arrays without their names, and without the tower that is there for new users."""
    arrays = {name: array for name, array in model.arrays().items() if name != "user_tower"}
    parts = sorted(array_digest(array) for array in arrays.values())
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def array_digest(array: np.ndarray) -> str:
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Runs whose model, metrics or refusal changed, or that are missing on either side."""
    keys = ("model", "metrics", "refused")
    return [
        run
        for run in sorted(before.keys() | after.keys())
        if any(before.get(run, {}).get(key) != after.get(run, {}).get(key) for key in keys)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", nargs="*", default=list(ALGORITHMS))
    parser.add_argument("--datasets", nargs="*", default=["synthetic", "ml-100k"])
    parser.add_argument("--variants", nargs="*", default=["plain", "nodes", "secure"])
    options = parser.parse_args()
    fingerprints: dict[str, Any] = {}
    for dataset in options.datasets:
        for name in options.only:
            for variant, extra in variants(name).items():
                if variant not in options.variants:
                    continue
                run = f"{dataset} {name} {variant}"
                fingerprints[run] = fingerprint(name, dataset, variant, extra)
                print(run, json.dumps(fingerprints[run])[:100], file=sys.stderr, flush=True)
    options.out.write_text(json.dumps(fingerprints, indent=1, sort_keys=True) + "\n")
    if options.against:
        before = json.loads(options.against.read_text())
        before = {run: value for run, value in before.items() if run in fingerprints}
        changed = differences(before, fingerprints)
        print(json.dumps({"runs": len(fingerprints), "changed": changed}))
        sys.exit(bool(changed))
    print(json.dumps({"runs": len(fingerprints)}))


if __name__ == "__main__":
    main()
