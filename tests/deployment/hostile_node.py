"""A hostile node: it answers messages with an attack's client code, whatever the server runs.

All else is the node of `coterie join`: the same store, checks, wire format and connection. What the
attack remembers between messages is in this process, so that colluders of two nodes share nothing,
and those of a node that is restarted begin anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from coterie.attacks.poisoning import Colluders, poisoned
from coterie.attacks.poisoning.contract import PoisoningAttack
from coterie.attacks.poisoning.federation import refuse
from coterie.deployment.node_service import LoadedNode, NodeService
from coterie.federated.federation import AnyFederation


@dataclass(frozen=True)
class Conspiracy:
    """What an attacker brings to a node. User indices are those of the federation."""

    attack: PoisoningAttack
    colluders: Colluders


@dataclass
class HostileService(NodeService):
    """A node whose colluding users send what an attack returns."""

    conspiracy: Conspiracy | None = None
    run: str = ""
    """The federation that `federation` attacks."""
    federation: AnyFederation | None = None

    def load(self) -> LoadedNode:
        loaded = super().load()
        if self.federation is None or self.run != loaded.terms.run:
            # Once a federation: what colluders remember is part of it.
            assert self.conspiracy is not None
            attack = self.conspiracy.attack
            refuse(loaded.node.federation, attack, loaded.node.world)
            self.federation = poisoned(loaded.node.federation, attack, self.conspiracy.colluders)
            self.run = loaded.terms.run
        return loaded._replace(node=replace(loaded.node, federation=self.federation))
