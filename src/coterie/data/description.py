"""Summary statistics of a set of interactions."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from coterie.data.interactions import Interactions
from coterie.types import JsonObject, Longs


def describe(data: Interactions) -> JsonObject:
    """Numbers and names, not texts; None where the data has no such thing."""
    per_user = np.bincount(data.users, minlength=data.n_users)
    per_item = np.sort(np.bincount(data.items, minlength=data.n_items))[::-1]
    popular = per_item[: max(1, data.n_items // 100)].sum() / len(data)
    categories: int | None = None
    if data.item_categories is not None:
        categories = len({c for row in data.item_categories for c in row})
    facts = data.read_facts
    return {
        "users": data.n_users,
        "items": data.n_items,
        "interactions": len(data),
        "density": len(data) / data.n_users / data.n_items,
        "per_user": _spread(per_user),
        "per_item": _spread(per_item),
        "popular_share": float(popular),
        "first_day": None if data.times is None else _day(data.times.min()),
        "last_day": None if data.times is None else _day(data.times.max()),
        "item_texts": data.item_texts is not None,
        "item_categories": categories,
        "user_features": list(data.user_features),
        "rows": None if facts is None else facts.rows,
        "skipped": [] if facts is None else facts.to_json()["skipped"],
        "columns": {} if facts is None else facts.to_json()["columns"],
        "reading": list(data.reading),
        "notes": list(data.notes),
    }


def table_of(facts: JsonObject) -> list[tuple[str, str]]:
    """The facts as texts, for a table; what was read and the notes are left out."""
    first = facts["first_day"]
    categories = facts["item_categories"]
    return [
        ("users", f"{facts['users']:,}"),
        ("items", f"{facts['items']:,}"),
        ("interactions", f"{facts['interactions']:,}"),
        ("density", f"{facts['density']:.3%}"),
        ("per user", _shown(facts["per_user"])),
        ("per item", _shown(facts["per_item"])),
        ("share of the most popular 1 %", f"{facts['popular_share']:.1%}"),
        ("time", "none" if first is None else f"{first} to {facts['last_day']}"),
        ("item texts", "yes" if facts["item_texts"] else "no"),
        ("item categories", "none" if categories is None else f"{categories:,}"),
        ("user features", ", ".join(facts["user_features"]) or "none"),
    ]


def _spread(counts: Longs) -> JsonObject:
    return {
        "least": int(counts.min()),
        "most": int(counts.max()),
        "median": float(np.median(counts)),
        "mean": float(counts.mean()),
    }


def _shown(spread: JsonObject) -> str:
    return f"{spread['least']:,} to {spread['most']:,}, median {spread['median']:,g}"


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).date().isoformat()
