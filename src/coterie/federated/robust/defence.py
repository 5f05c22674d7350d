"""The defence of a run against hostile clients, by its setting `robust`."""

from __future__ import annotations

from collections.abc import Callable

from coterie.errors import ConfigError
from coterie.federated.contract import check_sums
from coterie.federated.federation import AnyExchange, AnyWorld, Sums
from coterie.federated.robust.bounds import bounded
from coterie.federated.robust.groups import assign, without_extremes
from coterie.federated.robust.trimming import trimmed
from coterie.types import Message, Updates

ON_UPDATES: dict[str, Callable[[Updates], Updates]] = {
    "none": lambda updates: updates,
    "bounded": bounded,
    "trimmed": trimmed,
    "groups": bounded,
}


def is_defended(world: AnyWorld) -> bool:
    """Whether the server looks at single updates before it adds them up."""
    defence: str = world.settings.robust
    return defence != "none"


def defended(world: AnyWorld, updates: Updates) -> Updates:
    """Validated updates of a whole cohort as they are aggregated."""
    return ON_UPDATES[world.settings.robust](updates)


def defended_sums(
    world: AnyWorld, exchange: AnyExchange, message: Message, updates: Updates
) -> Sums:
    """Sums over the cohort; with `robust=groups`, over groups without the extreme ones."""
    sums = check_sums(world, exchange, exchange.aggregate(world, message, updates))
    if world.settings.robust != "groups" or not sums:
        return sums
    tables = exchange.secure_sum
    if tables is None:
        raise ConfigError(
            "setting 'robust' is 'groups', but the sums of this algorithm are not those of any "
            "group of clients; expected another defence. Set robust=bounded."
        )
    parts = [
        check_sums(world, exchange, exchange.aggregate(world, message, updates.take(group)))
        for group in assign(len(updates), world.seed, message.round)
    ]
    whole = without_extremes([tables.to_table(world, part) for part in parts])
    return tables.from_table(world, whole)
