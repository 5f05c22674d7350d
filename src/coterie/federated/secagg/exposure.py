"""What servers still learn about single users under secure aggregation; a run logs it."""

from __future__ import annotations

from coterie.core.progress import Progress
from coterie.errors import ConfigError
from coterie.federated.federation import AnyFederation, AnyWorld, exchanges_with_clients
from coterie.federated.secagg.crypto import KeyPair
from coterie.federated.settings import FederationSettings


def check_and_report(federation: AnyFederation, world: AnyWorld, progress: Progress) -> None:
    """Refuse a run whose server needs single updates; log what secure aggregation exposes."""
    if world.settings.secure_aggregation == "none":
        return
    if not offers_secure_sums(federation, world):
        raise ConfigError(
            f"secure_aggregation is {world.settings.secure_aggregation!r}, but this algorithm's "
            "server needs every client's own update; expected an algorithm that needs only sums "
            "(docs/privacy.md has a table). Set secure_aggregation=none."
        )
    # A missing extra fails here, before the run starts, and not in the first round.
    KeyPair.generate()
    progress.log(protection(world.settings))
    for exposed in in_the_clear(federation, world):
        progress.log(
            "secure aggregation hides single updates, but a server still sees of every user: "
            f"{exposed}"
        )
    for revealed in in_sums(federation, world):
        progress.log(
            f"secure aggregation does not hide histories here: {revealed}. "
            "docs/privacy.md has the figures."
        )


def offers_secure_sums(federation: AnyFederation, world: AnyWorld) -> bool:
    """Whether the server can do with sums and what exchanges declare as visible."""
    exchanges = exchanges_with_clients(federation, world)
    needs_updates = any(not exchange.secure_sum and not exchange.visible for exchange in exchanges)
    return any(exchange.secure_sum for exchange in exchanges) and not needs_updates


def protection(settings: FederationSettings) -> str:
    """What the protocol of a run withstands, in one line."""
    if settings.secure_aggregation == "ring":
        return (
            f"ring: rings of up to {settings.ring_size} clients; it hides updates from a server "
            "that follows the protocol"
        )
    rows = ""
    if settings.group_rows == "union":
        rows = "; the server learns which item rows a group touched, not whose"
    return (
        f"secagg: groups of up to {settings.group_size} clients; each shares its secrets among up "
        f"to {settings.holders} others, of whom {settings.colluders} may collude with the server"
        f"{rows}"
    )


def in_the_clear(federation: AnyFederation, world: AnyWorld) -> list[str]:
    """What a server still sees of every user under secure aggregation.

    Not the rows that a `secagg` group touched (group_rows=union): they are summed in secret, and
    whose they are is not visible.
    """
    exchanges = exchanges_with_clients(federation, world)
    clear = [e.visible for e in exchanges if e.visible and not e.hides_visible(world)]
    exposed = list(dict.fromkeys(clear))
    sums_items = any(e.secure_sum and e.secure_sum.by_item for e in exchanges)
    if world.settings.ring_rows == "union" and sums_items:
        exposed.append("which items they touched (ring_rows=union)")
    return exposed


def in_sums(federation: AnyFederation, world: AnyWorld) -> list[str]:
    """What attackers find in sums over rings or groups; nothing where clients add noise."""
    if world.settings.noise != "central":
        return []
    sums = [e.secure_sum for e in exchanges_with_clients(federation, world) if e.secure_sum]
    return list(dict.fromkeys(each.reveals for each in sums if each.reveals))


def only_sums(federation: AnyFederation, world: AnyWorld) -> bool:
    """Whether secure aggregation leaves a server nothing but sums over clients."""
    # An exchange that is not summed is harmless only where settings hide what it declares.
    summed = all(e.secure_sum or e.visible for e in exchanges_with_clients(federation, world))
    return summed and not in_the_clear(federation, world)
