"""What servers hear of single users all the same, where rings hide their updates: it is said, never left open."""

from __future__ import annotations

from coterie.core.progress import Progress
from coterie.errors import ConfigError
from coterie.federated.federation import (
    AnyExchange,
    AnyFederation,
    AnyWorld,
    Exchange,
)
from coterie.federated.secagg.crypto import Lock


def announce(federation: AnyFederation, world: AnyWorld, progress: Progress) -> None:
    """Of a run in rings: nothing that is said in the clear goes unsaid."""
    if world.settings.secure_aggregation == "none":
        return
    exchanges = _exchanges(federation, world)
    if not any(e.secure_sum for e in exchanges) or any(
        not e.secure_sum and not e.visible for e in exchanges
    ):
        raise ConfigError(
            "secure_aggregation is 'ring', but this algorithm's server has to know everybody's own update; expected one that needs only sums "
            "(docs/privacy.md has a table). Set secure_aggregation=none."
        )
    Lock.fresh()  # what is not installed is better missed now than in the first round
    for said in in_the_clear(federation, world):
        progress.log(f"rings hide single updates, but a server still hears of every user: {said}")


def in_the_clear(federation: AnyFederation, world: AnyWorld) -> list[str]:
    """What a server still hears of every user of a run in rings."""
    exchanges = _exchanges(federation, world)
    heard = list(
        dict.fromkeys(e.visible for e in exchanges if e.visible and not e.hides_visible(world))
    )
    if world.settings.ring_rows == "union" and any(
        e.secure_sum and e.secure_sum.by_item for e in exchanges
    ):
        heard.append("which items they touched (ring_rows=union)")
    return heard


def _exchanges(federation: AnyFederation, world: AnyWorld) -> list[AnyExchange]:
    return [e for e in (federation.setup(world), *federation.exchanges) if isinstance(e, Exchange)]
