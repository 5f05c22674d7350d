"""What a server receives of every client where updates are sent in the clear, and what hides it.

One source for `coterie choose`, for runs and for their reports: what algorithms declare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from coterie.algorithms.registry import algorithm
from coterie.experiments.config import Experiment
from coterie.experiments.derived_defaults import uses_prior
from coterie.federated import item_counts
from coterie.federated.federation import (
    AnyExchange,
    AnyFederation,
    AnyWorld,
    Federation,
    exchanges_with_clients,
)
from coterie.types import JsonObject, Sizes

CLEAR = "nothing: it is sent in the clear"
BEFORE = "once, before the first round"
EVERY = "in every round that selects it"
IN_ROUNDS = "in every round"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Columns of updates that a server receives, whose they are, and what protects them."""

    columns: str
    whose: str
    when: str
    protection: str


def in_the_clear(experiment: Experiment, world: AnyWorld) -> list[str]:
    """What the server receives of every client, without secure aggregation."""
    chosen = algorithm(experiment.choice.algorithm)
    if not isinstance(chosen.train, Federation):
        return []
    setup = chosen.train.setup(world)
    once = [setup.visible] if setup is not None and setup.visible else []
    counted = [item_counts.server_receives(world)] if uses_prior(experiment) else []
    return [chosen.in_the_clear or "its whole update", *once, *counted]


def received(
    federation: AnyFederation, world: AnyWorld, sizes: Sequence[Sizes], counts_items: bool
) -> list[JsonObject]:
    """The columns that the servers of a run receive, as a result has them.

    `sizes` are those of an update in every exchange with clients, the setup's first;
    `counts_items` says whether clients count their items for popularity.
    """
    exchanges = exchanges_with_clients(federation, world)
    has_setup = federation.setup(world) is not None
    rows: list[Received] = []
    for number, (exchange, of_update) in enumerate(zip(exchanges, sizes, strict=True)):
        when = BEFORE if has_setup and number == 0 else EVERY
        rows += _of_exchange(exchange, world, of_update, when)
    if counts_items:
        rows.append(_counts(world))
    return [asdict(row) for row in rows]


def _of_exchange(
    exchange: AnyExchange, world: AnyWorld, sizes: Sizes, when: str
) -> Iterator[Received]:
    """One row in the clear; under secure aggregation, sums and what is still visible."""
    server = f" ({exchange.role} server)" if exchange.role else ""
    is_summed = world.settings.secure_aggregation != "none" and exchange.secure_sum is not None
    whose = f"each client{server}"
    if not is_summed:
        columns = ", ".join(["users", *_columns(sizes)])
        yield Received(columns=columns, whose=whose, when=when, protection=CLEAR)
        return
    # A client's own row enters no sum: the exchange declares it as visible.
    summed_columns = ", ".join(_columns(sizes._replace(user_width=0)))
    most = world.settings.largest_group
    yield Received(
        columns=f"sums made from {summed_columns}",
        whose=f"groups of up to {most} clients{server}",
        when=when if when == BEFORE else IN_ROUNDS,
        protection=f"secure aggregation ({world.settings.secure_aggregation}){_noise(world)}",
    )
    if exchange.visible and not exchange.hides_visible(world):
        yield Received(columns=exchange.visible, whose=whose, when=when, protection=CLEAR)


def _columns(sizes: Sizes) -> list[str]:
    """The columns of an update of these sizes besides users, as the wire format names them."""
    widths = {
        "item_rows": sizes.item_width,
        "user_rows": sizes.user_width,
        "dense": sizes.dense,
    }
    wide = [f"{name} ({width:,} wide)" for name, width in widths.items() if width]
    return ["samples", *(["items"] if sizes.items else []), *wide]


def _noise(world: AnyWorld) -> str:
    """Who adds the noise of differential privacy, where the run has a budget."""
    return "" if world.settings.epsilon is None else f", with {world.settings.noise} noise"


def _counts(world: AnyWorld) -> Received:
    """Popularity is counted under secure aggregation, whatever the run is."""
    protected = world.settings.protected()
    return Received(
        columns="sums made from items",
        whose=f"groups of up to {protected.largest_group} clients",
        when=BEFORE,
        protection=f"secure aggregation ({protected.secure_aggregation})",
    )
