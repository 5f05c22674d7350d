"""What servers still learn about single users under secure aggregation; a run logs it."""

from __future__ import annotations

from coterie.errors import ConfigError
from coterie.federated.federation import Exchange, Federation, World
from coterie.federated.secagg.crypto import KeyPair
from coterie.federated.trainer import Context


def check_and_report(federation: Federation, world: World, context: Context) -> None:
    """Refuse a run whose server needs single updates; log what secure aggregation exposes."""
    if world.settings.secure_aggregation == "none":
        return
    exchanges = _exchanges(federation, world)
    offers_ring = any(exchange.ring for exchange in exchanges)
    needs_updates = any(not exchange.ring and not exchange.clear for exchange in exchanges)
    if not offers_ring or needs_updates:
        raise ConfigError(
            "secure_aggregation is 'ring', but this algorithm's server needs every client's own "
            "update; expected an algorithm that needs only sums (docs/privacy.md has a table). "
            "Set secure_aggregation=none."
        )
    # A missing extra fails here, before the run starts, and not in the first round.
    KeyPair.generate()
    for exposed in in_the_clear(federation, world):
        context.progress.log(
            "secure aggregation hides single updates, but a server still sees of every user: "
            f"{exposed}"
        )


def in_the_clear(federation: Federation, world: World) -> list[str]:
    """What a server still sees of every user under secure aggregation."""
    exchanges = _exchanges(federation, world)
    clear = [e.clear for e in exchanges if e.clear and not e.unheard(world)]
    exposed = list(dict.fromkeys(clear))
    sums_items = any(e.ring and e.ring.by_item for e in exchanges)
    if world.settings.ring_rows == "union" and sums_items:
        exposed.append("which items they touched (ring_rows=union)")
    return exposed


def _exchanges(federation: Federation, world: World) -> list[Exchange]:
    listed = (federation.opening(world), *federation.exchanges)
    return [exchange for exchange in listed if isinstance(exchange, Exchange)]
