"""Values of metrics of ranked lists: Coterie's own and those that users write, checked."""

from __future__ import annotations

import numpy as np

from coterie.data.interactions import Interactions
from coterie.errors import ConfigError, ContractError
from coterie.evaluation.list_metrics import Metric, RankedLists
from coterie.evaluation.protocols import Protocol
from coterie.evaluation.ranking import Ranks
from coterie.types import Doubles, Rows


def list_values(
    protocol: Protocol,
    ranks: Ranks,
    wanted: Rows,
    train: Interactions,
    among_candidates: bool = False,
) -> dict[str, Doubles]:
    """One value per tested user and metric of the protocol, such as Nov@10.

    `wanted` has the held-out items of all users, tested or not.
    """
    table: dict[str, Doubles] = {}
    for metric in protocol.list_metrics:
        if among_candidates and metric.full_ranking_only:
            continue
        for k in protocol.cutoffs:
            lists = RankedLists(
                k=k,
                users=ranks.users,
                items=ranks.top[:, :k],
                relevant=wanted.of_users(ranks.users),
                train=train,
            )
            table[f"{metric.name}@{k}"] = _checked(metric, metric.per_user(lists), lists)
    return table


def check_categories(protocol: Protocol, data: Interactions) -> None:
    """Raise if a metric needs categories that the items do not have."""
    needing = [metric.name for metric in protocol.list_metrics if metric.needs_categories]
    if needing and data.item_categories is None:
        raise ConfigError(
            f"metric {needing[0]!r} needs item categories, but the items of {data.name!r} have "
            "none; expected a dataset or an item file with categories. "
            "Add categories, or remove the metric."
        )


def _checked(metric: Metric, values: object, lists: RankedLists) -> Doubles:
    """One finite number per user; anything else is an error in the metric's function."""
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ContractError(
            f"metric {metric.name!r} returned a {type(values).__name__}; expected an array of "
            f"{len(lists.users)} numbers, one per tested user. Return one."
        ) from None
    if numbers.shape != lists.users.shape:
        raise ContractError(
            f"metric {metric.name!r} returned the shape {numbers.shape}; expected "
            f"{lists.users.shape}, one value per tested user. Return one value per row of "
            "lists.items."
        )
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        user = lists.train.user_ids[lists.users[bad[0]]]
        raise ContractError(
            f"metric {metric.name!r} is {numbers[bad[0]]} for user {str(user)!r}; "
            "expected a finite number. Handle empty lists: lists.lengths is 0 there."
        )
    return numbers
