"""What masking costs one client: the masks that it expands, and seconds for the rest."""

from __future__ import annotations

import pytest
from small_federation import histories, world_for

pytest.importorskip("cryptography")
from coterie.experiments.masking_work import masking_work

TRAINING = histories(1, 30, 15)


@pytest.mark.parametrize(
    ("n_clients", "masks"),
    [
        # In a small group all mask with all: its own mask, and one with each of the others.
        (10, 10),
        (40, 40),
    ],
)
def test_clients_of_a_group_expand_a_mask_for_each_neighbour(n_clients: int, masks: int) -> None:
    world = world_for("fcf", TRAINING, secure_aggregation="secagg")
    work = masking_work(world, n_clients)
    assert work.masks == masks
    assert work.seconds > 0


def test_masks_of_a_large_group_are_sparse() -> None:
    """Each chooses eight neighbours, and is chosen by eight on average."""
    world = world_for("fcf", TRAINING, secure_aggregation="secagg", holders=12)
    assert 1 + 8 <= masking_work(world, 80).masks <= 1 + 8 + 24


def test_a_member_of_a_ring_has_three_masks() -> None:
    world = world_for("fcf", TRAINING, secure_aggregation="ring")
    assert masking_work(world, 80).masks == 3
