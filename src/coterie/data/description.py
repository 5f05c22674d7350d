"""Summary statistics of a set of interactions."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from coterie.data.interactions import Interactions
from coterie.types import JsonObject


def describe(data: Interactions) -> JsonObject:
    per_user = np.bincount(data.users, minlength=data.n_users)
    per_item = np.sort(np.bincount(data.items, minlength=data.n_items))[::-1]
    popular = per_item[: max(1, data.n_items // 100)].sum() / len(data)
    time = "none"
    if data.times is not None:
        time = f"{_day(data.times.min())} to {_day(data.times.max())}"
    categories: int | str = "none"
    if data.item_categories is not None:
        categories = len({c for row in data.item_categories for c in row})
    return {
        "users": data.n_users,
        "items": data.n_items,
        "interactions": len(data),
        "density": f"{len(data) / data.n_users / data.n_items:.3%}",
        "per user": f"{per_user.min()} to {per_user.max()}, median {np.median(per_user):g}",
        "per item": f"{per_item.min()} to {per_item.max()}, median {np.median(per_item):g}",
        "share of the most popular 1 %": f"{popular:.1%}",
        "time": time,
        "item texts": "no" if data.item_texts is None else "yes",
        "item categories": categories,
        "user features": ", ".join(data.user_features) or "none",
        "reading": list(data.reading),
        "notes": list(data.notes),
    }


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).date().isoformat()
