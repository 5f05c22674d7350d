"""Every poisoning attack by name. A line here puts a file into the command line and the tests."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.attacks.poisoning.alie import ALIE_ATTACK
from coterie.attacks.poisoning.boost import BOOST
from coterie.attacks.poisoning.contract import AttackKind, PoisoningAttack
from coterie.attacks.poisoning.count_inflation import COUNT_INFLATION
from coterie.attacks.poisoning.fedrecattack import FEDRECATTACK
from coterie.attacks.poisoning.free_rider import FREE_RIDER
from coterie.attacks.poisoning.noise import NOISE
from coterie.attacks.poisoning.pieck import PIECK_ATTACK
from coterie.attacks.poisoning.pipattack import PIPATTACK
from coterie.attacks.poisoning.sign_flip import SIGN_FLIP
from coterie.attacks.poisoning.takeover import TAKEOVER
from coterie.errors import UnknownName

ATTACKS: dict[str, AttackKind] = {
    "noise": NOISE,
    "sign-flip": SIGN_FLIP,
    "alie": ALIE_ATTACK,
    "count-inflation": COUNT_INFLATION,
    "free-rider": FREE_RIDER,
    "boost": BOOST,
    "pipattack": PIPATTACK,
    "pieck": PIECK_ATTACK,
    "fedrecattack": FEDRECATTACK,
    "takeover": TAKEOVER,
}


def attack(name: str, settings: Mapping[str, object] | None = None) -> PoisoningAttack:
    """The attack of that name with these settings; others have their defaults."""
    if name not in ATTACKS:
        raise UnknownName("attack", name, ATTACKS)
    return PoisoningAttack(name, ATTACKS[name], ATTACKS[name].settings.of(settings or {}))
