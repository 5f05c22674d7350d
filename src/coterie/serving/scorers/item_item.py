"""Recommends from this folder, which `coterie export` wrote. Needs NumPy only.

scorer = Scorer("FOLDER")
scorer.for_history(["50", "172"], n=10)    # [(item, score), ...], best first
scorer.for_user("42", n=10)                # if the folder has users
"""

import json
from pathlib import Path
from typing import Any

import numpy as np


class Scorer:
    def __init__(self, folder: str) -> None:
        self.about = json.loads(Path(folder, "manifest.json").read_text())
        self.arrays: dict[str, Any] = {
            name: np.fromfile(Path(folder, f"{name}.bin"), array["type"]).reshape(array["shape"])
            for name, array in self.about["arrays"].items()
        }
        self.item_index = {str(item): k for k, item in enumerate(self.about["items"])}
        self.user_index = {str(user): k for k, user in enumerate(self.about["users"])}

    def for_history(self, history: list[Any], n: int = 10) -> list[tuple[Any, float]]:
        own = np.unique([self.item_index[str(item)] for item in history]).astype(int)
        return self._best(own, own, n)

    def for_user(self, user: Any, n: int = 10) -> list[tuple[Any, float]]:
        k = self.user_index[str(user)]
        history, seen = (
            self.arrays[f"{name}_items"][slice(*self.arrays[f"{name}_offsets"][k : k + 2])]
            for name in ("history", "seen")
        )
        return [] if k in self.about["not_served"] else self._best(history, seen, n)

    def _best(self, history: Any, seen: Any, n: int) -> list[tuple[Any, float]]:
        scores = np.zeros(len(self.item_index), np.float32)
        for j in history:  # row j: what item j adds to the scores of others
            if "columns" not in self.arrays:
                scores += self.arrays["weights"][j]
                continue
            row = slice(*self.arrays["offsets"][j : j + 2])
            scores[self.arrays["columns"][row]] += self.arrays["weights"][row]
        scores[seen] = -np.inf
        best = np.argsort(-scores, kind="stable")[:n]
        return [(self.about["items"][k], float(scores[k])) for k in best if np.isfinite(scores[k])]
