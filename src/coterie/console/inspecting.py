"""One user of a simulation: history, recommendations with reasons, what the server received and
what attackers infer from it."""

from __future__ import annotations

import numpy as np

from coterie.console.recordings.inferred import NO_ITEM, InferredItems
from coterie.console.recordings.received import ReceivedUpdates, UpdateOfUser
from coterie.console.recordings.recording import Recording
from coterie.core.printable import one_line
from coterie.evaluation.ranking import best_items, finite
from coterie.experiments.finished_run import Run
from coterie.experiments.reasons import REASONS, Explainer
from coterie.experiments.run_folder import Catalogue
from coterie.models.item_based import ItemBased
from coterie.types import Bools, Ints, JsonObject

MOST_HISTORY = 500
"""Items of a history that are shown."""
MOST_UPDATES = 300
MOST_ITEMS = 12
"""Items of an update that are named: those whose rows changed most."""
RECOMMENDED = 10
MOST_DOTS = 2_000
"""Users in the figure of disclosure rates."""
BY_CONTRIBUTION = "contribution"
BY_SIMILARITY = "similarity"


def inspect_user(run: Run, recording: Recording | None, user: int) -> JsonObject:
    """All that the page shows of a user."""
    catalogue = run.catalogue
    history = catalogue.seen.of(user)
    is_liked = np.zeros(len(catalogue.item_ids), np.bool_)
    is_liked[history] = True
    received = recording.received if recording is not None else None
    inferred = recording.inferred if recording is not None else None
    return {
        "id": one_line(catalogue.user_ids[user]),
        "index": user,
        "n_history": len(history),
        "history": [_item(catalogue, item) for item in history[:MOST_HISTORY]],
        "recommended": _recommended(run, user, history),
        "why": _kind_of_reason(run),
        "received": None if received is None else _received(received, catalogue, user, is_liked),
        "inferred": None if inferred is None else _inferred(inferred, catalogue, user, is_liked),
    }


def _item(catalogue: Catalogue, item: int) -> JsonObject:
    return {"id": one_line(catalogue.id_of(item)), "title": one_line(catalogue.text_of(item))}


def _recommended(run: Run, user: int, history: Ints) -> list[JsonObject]:
    users = np.array([user], np.int32)
    if not run.recommender.serves(users)[0]:
        return []
    scores = finite(run.recommender.score(users))[0]
    items = np.asarray(best_items(scores, history, RECOMMENDED), np.int32)
    reasons = _reasons(run, user, history, items)
    return [
        _item(run.catalogue, item) | {"score": float(scores[item]), "reasons": why}
        for item, why in zip(items, reasons, strict=True)
    ]


def _kind_of_reason(run: Run) -> str:
    """Whether reasons are contributions to the score, similar items, or there are none."""
    if isinstance(run.model, ItemBased):
        return BY_CONTRIBUTION
    return "" if run.model.similar_items(0) is None else BY_SIMILARITY


def _reasons(run: Run, user: int, history: Ints, items: Ints) -> list[list[JsonObject]]:
    """For each item the items of the history that it comes from, or is nearest to."""
    catalogue = run.catalogue
    if isinstance(run.model, ItemBased):
        explainer = Explainer.of(run.model, catalogue, run.result["algorithm"])
        return [
            [
                {"id": one_line(each.item), "title": one_line(each.text), "value": each.share}
                for each in reasons
            ]
            for reasons in explainer.for_user(user, items)
        ]
    return [_nearest(run, history, item) for item in items]


def _nearest(run: Run, history: Ints, item: int) -> list[JsonObject]:
    similar = run.model.similar_items(item)
    if similar is None or not len(history):
        return []
    values = similar[history]
    best = np.argsort(-values, kind="stable")[:REASONS]
    return [
        _item(run.catalogue, history[k]) | {"value": float(values[k])}
        for k in best
        if values[k] > 0
    ]


def _received(
    received: ReceivedUpdates, catalogue: Catalogue, user: int, is_liked: Bools
) -> JsonObject:
    updates = received.of(user)
    return {
        "until": received.until,
        "n_updates": len(updates),
        "n_bytes": sum(update.n_bytes for update in updates),
        "n_rows": sum(len(update.items) for update in updates),
        "updates": [_update(update, catalogue, is_liked) for update in updates[:MOST_UPDATES]],
    }


def _update(update: UpdateOfUser, catalogue: Catalogue, is_liked: Bools) -> JsonObject:
    largest = np.argsort(-update.changes, kind="stable")[:MOST_ITEMS]
    return {
        "round": update.round,
        "samples": update.samples,
        "n_bytes": update.n_bytes,
        "n_rows": len(update.items),
        "n_liked": int(is_liked[update.items].sum()),
        "items": [
            _item(catalogue, update.items[k])
            | {"change": float(update.changes[k]), "liked": bool(is_liked[update.items[k]])}
            for k in largest
        ],
    }


def _inferred(
    inferred: InferredItems, catalogue: Catalogue, user: int, is_liked: Bools
) -> JsonObject:
    return {
        "after": inferred.after.tolist(),
        "liked": int(inferred.liked[user]),
        "rate": float(inferred.rates[user]) if len(inferred.rates) else None,
        "attackers": [
            _attacker(inferred, n, catalogue, user, is_liked)
            for n in range(len(inferred.attackers))
        ],
    }


def _attacker(
    inferred: InferredItems, n: int, catalogue: Catalogue, user: int, is_liked: Bools
) -> JsonObject:
    best = inferred.best[n, user]
    return {
        "name": str(inferred.attackers[n]),
        "uses": str(inferred.uses[n]),
        "is_observed": bool(inferred.observed[n, user]),
        "claims": inferred.claims[:, n, user].tolist(),
        "hits": inferred.hits[:, n, user].tolist(),
        "popular_hits": inferred.popular_hits[:, n, user].tolist(),
        "best": [
            _item(catalogue, item) | {"liked": bool(is_liked[item])}
            for item in best[best != NO_ITEM]
        ],
        "others": _others(inferred, n),
    }


def _others(inferred: InferredItems, n: int) -> JsonObject:
    """Disclosure rate and recall of all observed users, or of evenly many of them."""
    users = np.flatnonzero(inferred.observed[n] & (inferred.liked > 0))
    users = users[:: max(1, -(-len(users) // MOST_DOTS))]
    if not len(inferred.rates):
        return {"rates": [], "recalls": []}
    recalls = inferred.hits[-1, n, users] / inferred.liked[users]
    return {
        "rates": inferred.rates[users].astype(float).tolist(),
        "recalls": recalls.astype(float).tolist(),
    }
