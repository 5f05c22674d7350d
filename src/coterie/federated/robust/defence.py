"""The defence of a run against hostile clients, by its setting `robust`."""

from __future__ import annotations

from collections.abc import Callable

from coterie.core.settings import Settings
from coterie.errors import ConfigError
from coterie.federated.client_rows import KERNELS
from coterie.federated.contract import check_sums
from coterie.federated.federation import AnyExchange, AnyWorld, Sums
from coterie.federated.robust.bounds import bounded
from coterie.federated.robust.groups import (
    FEWEST_GROUPS,
    assign,
    too_few_groups,
    without_extremes,
)
from coterie.federated.robust.multiples import Multiples
from coterie.federated.robust.trimming import FEWEST_CLIENTS, trimmed
from coterie.federated.settings import FederationSettings
from coterie.federated.validation import SquaredNorms, Validated
from coterie.types import Message, Updates

ON_UPDATES: dict[str, Callable[[Updates, Multiples, SquaredNorms | None], Updates]] = {
    "none": lambda updates, multiples, norms: updates,
    "bounded": bounded,
    "trimmed": trimmed,
    "groups": bounded,
}


def defence_kernels(settings: Settings) -> tuple[str, ...]:
    """The kernel families that a run with a defence needs."""
    defended = isinstance(settings, FederationSettings) and settings.robust != "none"
    return (KERNELS,) if defended else ()


def is_defended(world: AnyWorld) -> bool:
    """Whether the server looks at single updates before it adds them up."""
    defence: str = world.settings.robust
    return defence != "none"


def check_comparable(world: AnyWorld, n: int) -> None:
    """Refuse a round of n clients of which extremes cannot be left out."""
    settings = world.settings
    if settings.robust in ("trimmed", "groups") and n < FEWEST_CLIENTS:
        raise ConfigError(
            f"setting 'robust' is {settings.robust!r}, but a round selects {n} clients; expected "
            f"at least {FEWEST_CLIENTS}, since extremes are left out. Raise users_per_round or "
            "participation, or set robust=bounded."
        )
    n_groups = -(-n // settings.largest_group)
    if settings.secure_aggregation != "none" and too_few_groups(world, n_groups):
        raise ConfigError(
            f"setting 'robust' is 'groups', but the number of groups for a round of {n} clients is "
            f"{n_groups}; expected at least {FEWEST_GROUPS}, since extreme ones are left out. "
            "Lower group_size, or raise users_per_round or participation."
        )


def defended(world: AnyWorld, exchange: AnyExchange, valid: Validated) -> Updates:
    """Validated updates of a whole cohort as they are aggregated."""
    defence = ON_UPDATES[world.settings.robust]
    return defence(valid.updates, exchange.bounds(world), valid.norms)


def defended_sums(
    world: AnyWorld, exchange: AnyExchange, message: Message, updates: Updates
) -> Sums:
    """Sums over the cohort; with `robust=groups`, over groups without the extreme ones."""

    def sums_of(some: Updates) -> Sums:
        return check_sums(world, exchange, exchange.aggregate(world, message, some))

    if world.settings.robust != "groups":
        return sums_of(updates)
    groups = assign(len(updates), world.seed, message.round)
    parts = [sums_of(updates.take(group)) for group in groups]
    if not parts[0]:
        return parts[0]  # nothing is added up
    tables = exchange.secure_sum
    if tables is None:
        raise ConfigError(
            "setting 'robust' is 'groups', but the sums of this algorithm are not those of any "
            "group of clients; expected another defence. Set robust=bounded."
        )
    by_item = [tables.to_table(world, part) for part in parts]
    whole = without_extremes(tables, by_item, [len(group) for group in groups])
    return tables.from_table(world, whole)
