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
        if not len(own):
            return self._best(self.arrays["average"], own, n)
        fit = self.about["new_user"]
        Y = self.arrays["item_vectors"][own].astype(float)
        ridge = fit["reg"] * max(len(own) + fit["others"], 1) ** fit["exponent"]
        system = self.arrays["gram"] + fit["alpha"] * Y.T @ Y + ridge * np.eye(Y.shape[1])
        vector = np.linalg.solve(system, fit["target"] * Y.sum(axis=0))
        return self._best(vector.astype(np.float32), own, n)

    def for_user(self, user: Any, n: int = 10) -> list[tuple[Any, float]]:
        k = self.user_index[str(user)]
        begin, end = self.arrays["seen_offsets"][k : k + 2]
        return self._best(self.arrays["user_vectors"][k], self.arrays["seen_items"][begin:end], n)

    def _best(self, vector: Any, seen: Any, n: int) -> list[tuple[Any, float]]:
        scores = (vector[None] @ self.arrays["item_vectors"].T + self.arrays["item_bias"])[0]
        scores[seen] = -np.inf
        best = np.argsort(-scores, kind="stable")[:n]
        return [(self.about["items"][k], float(scores[k])) for k in best if np.isfinite(scores[k])]
