"""What is in a set of interactions, in numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from coterie.data.interactions import Interactions


def describe(data: Interactions) -> dict[str, Any]:
    per_user = np.bincount(data.users, minlength=data.n_users)
    per_item = np.sort(np.bincount(data.items, minlength=data.n_items))[::-1]
    popular = per_item[: max(1, data.n_items // 100)].sum() / len(data)
    facts: dict[str, Any] = {
        "users": data.n_users,
        "items": data.n_items,
        "interactions": len(data),
        "density": f"{len(data) / data.n_users / data.n_items:.3%}",
        "per user": f"{per_user.min()} to {per_user.max()}, median {np.median(per_user):g}",
        "per item": f"{per_item.min()} to {per_item.max()}, median {np.median(per_item):g}",
        "share of the most popular 1 %": f"{popular:.1%}",
        "time": "none"
        if data.times is None
        else f"{_day(data.times.min())} to {_day(data.times.max())}",
        "item texts": "no" if data.item_texts is None else "yes",
        "item categories": "none"
        if data.item_categories is None
        else len({c for row in data.item_categories for c in row}),
        "user features": ", ".join(data.user_features) or "none",
        "notes": list(data.notes),
    }
    return facts


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).date().isoformat()
