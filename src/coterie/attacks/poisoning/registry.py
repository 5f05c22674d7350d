"""Every poisoning attack by name. A line here puts a file into the command line and the tests."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.attacks.poisoning import noise
from coterie.attacks.poisoning.contract import Attack, AttackKind
from coterie.errors import UnknownName

ATTACKS: dict[str, AttackKind] = {
    "noise": noise.NOISE,
}


def attack(name: str, settings: Mapping[str, object] | None = None) -> Attack:
    """The attack of that name with these settings; others have their defaults."""
    if name not in ATTACKS:
        raise UnknownName("attack", name, ATTACKS)
    return Attack(name, ATTACKS[name], ATTACKS[name].settings.of(settings or {}))
