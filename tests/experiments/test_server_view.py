"""What a result says that the server received is what the server received."""

from __future__ import annotations

import re
from typing import Any

import pytest
from small_federation import FEDERATED, histories, play, world_for

import coterie
from coterie.algorithms.registry import algorithm
from coterie.engines.local import LocalEngine
from coterie.experiments.server_view import BEFORE, CLEAR, EVERY, received
from coterie.federated.federation import Federation, exchanges_with_clients
from coterie.federated.rounds import CLIENTS
from coterie.federated.transcript import Transcript

SMALL: dict[str, Any] = {"n_users": 40, "n_items": 60, "mean_interactions": 8, "rounds": 2}
SECAGG = {"secure_aggregation": "secagg", "participation": 1.0}


def view(name: str, **changes: Any) -> list[tuple[str, str, str, str]]:
    rows = coterie.run(name, **SMALL, **changes).result["server_view"]
    return [(row["columns"], row["whose"], row["when"], row["protection"]) for row in rows]


def test_columns_in_the_clear() -> None:
    """FedFast with 8 factors: statistics once, then rows of items and of the user."""
    assert view("fedfast", embedding_size=8, popularity_prior=0) == [
        ("users, samples, user_rows (3 wide)", "each client", BEFORE, CLEAR),
        (
            "users, samples, items, item_rows (8 wide), user_rows (8 wide), dense (9 wide)",
            "each client",
            EVERY,
            CLEAR,
        ),
    ]


def test_popularity_is_counted_in_sums() -> None:
    assert view("fedfast", popularity_prior=1.0)[-1] == (
        "sums made from items",
        "groups of up to 100 clients",
        BEFORE,
        "secure aggregation (secagg)",
    )


def test_sums_hide_columns_and_the_rest_is_named() -> None:
    """FedAvg's own rows and sample counts stay visible under secure aggregation."""
    pytest.importorskip("cryptography")
    summed, visible = view("fedavg", embedding_size=8, popularity_prior=0, **SECAGG)
    assert summed == (
        "sums made from samples, items, item_rows (8 wide), dense (9 wide)",
        "groups of up to 100 clients",
        "in every round",
        "secure aggregation (secagg)",
    )
    assert visible == (
        "their row of the model, and how many samples they have",
        "each client",
        EVERY,
        CLEAR,
    )


@pytest.mark.parametrize("name", [name for name in FEDERATED if "clsm" not in name])
def test_columns_are_those_of_the_messages(name: str) -> None:
    """A transcript of two steps has the columns and the widths, and no others."""
    training = histories(1)
    world = world_for(name, training, rounds=2)
    record = Transcript(LocalEngine.over(world, training, 1))
    states, _ = play(name, world, record)
    sent: dict[str, int] = {}
    for line in record.lines:
        if line.sender == CLIENTS:
            for key, array in line.arrays.items():
                if array.size:
                    sent[key] = max(sent.get(key, 0), array.shape[1] if array.ndim == 2 else 0)
    federation = algorithm(name).train
    assert isinstance(federation, Federation)
    exchanges = exchanges_with_clients(federation, world)
    sizes = [exchange.sizes(world, states[-1]) for exchange in exchanges]
    said: dict[str, int] = {"offsets": 0}
    for row in received(federation, world, sizes, counts_items=False):
        for column, width in re.findall(r"(\w+)(?: \(([\d,]+) wide\))?(?:, |$)", row["columns"]):
            wide = int(width.replace(",", "") or 0)
            said[column] = max(said.get(column, 0), wide)
    assert said == sent
