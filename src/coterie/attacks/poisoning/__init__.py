"""Poisoning: clients of a run send what an attacker wants, and the damage is measured.

Every attack is a file and a line in `registry.py`. `poisoned` puts one into a federation.
"""

from __future__ import annotations

from coterie.attacks.poisoning.colluders import Colluders
from coterie.attacks.poisoning.federation import poisoned
from coterie.attacks.poisoning.registry import ATTACKS, attack

__all__ = ["ATTACKS", "Colluders", "attack", "poisoned"]
