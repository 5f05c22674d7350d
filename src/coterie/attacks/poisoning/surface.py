"""What an algorithm's updates are made of: what an attack on them can change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coterie.algorithms import fedfast
from coterie.algorithms.local.settings import Federated
from coterie.federated.federation import AnyFederation, AnyWorld, Exchange


class Surface(NamedTuple):
    """What the clients of an algorithm send in its rounds."""

    has_numbers: bool
    """Whether they send rows of items or of dense parameters, and not item ids alone."""
    moves_items: bool
    """Whether the item rows of an update move those that the server sends."""
    is_weighted: bool
    """Whether the server weighs updates by the sample counts that clients send."""
    is_clustered: bool
    """Whether the server clusters users by rows that clients send."""
    is_linear: bool
    """Whether scores are linear in the row of an item."""


def surface_of(federation: AnyFederation, world: AnyWorld) -> Surface:
    """The surface of the last exchange of a round, in which clients send what they learned."""
    exchange = [each for each in federation.exchanges if isinstance(each, Exchange)][-1]
    state = federation.init(world)
    sizes = exchange.sizes(world.seen_by(exchange.role), state.as_seen_by(exchange.role))
    one = np.flatnonzero(world.members)[:1].astype(np.int32)
    message = exchange.broadcast(
        world.seen_by(exchange.role), state.as_seen_by(exchange.role), one, 0
    )
    table = message.common.get("item_rows")
    width = 0 if table is None else table.shape[1]
    settings = world.settings
    return Surface(
        has_numbers=sizes.item_width + sizes.dense > 0,
        moves_items=width > 0 and sizes.item_width == width + ("item_bias" in message.common),
        is_weighted=isinstance(settings, Federated),
        is_clustered=isinstance(settings, fedfast.Clustered),
        is_linear=not (isinstance(settings, Federated) and settings.model != "gmf"),
    )


def needs_numbers(surface: Surface) -> str:
    return "" if surface.has_numbers else "its clients send item ids, and no numbers to change"


def needs_item_rows(surface: Surface) -> str:
    return "" if surface.moves_items else "its clients send no changes of item rows"
