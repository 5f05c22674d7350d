"""A node's snapshots: its private state as it was after committed rounds, and the way back to it.

A server sends round t after it committed t rounds. So before a node changes anything for it, its
private state is the one after t rounds, and also the one after all rounds since the last message.

A server that rolled back says so in the preamble: it lists the rounds that the run returned to. A
node that hears of a roll-back for the first time, however late, restores its snapshot of that round
and notes the roll-back, both or neither. It restores nothing else: neither the ledger of its users'
privacy nor its memory of questions and of secure aggregation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.node_policy import NodePolicy
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.snapshot_plan import SnapshotPlan
from coterie.errors import PolicyError
from coterie.federated.settings import federation_settings

REACHED = "reached"
"""Metadata key of the latest round for which private state may have changed."""
ROLLBACKS = "rollbacks"
"""Metadata key of the rounds that the run returned to, as far as the node knows."""


def take_due_snapshots(store: NodeStore, plan: SnapshotPlan, t: int) -> None:
    """Take the snapshots that are due before the private state changes for round t."""
    if not store.layout:
        return  # clients of this algorithm have no private state
    before = reached(store)
    if t <= before:
        return
    with store.transaction():
        for n in plan.due_between(before, t):
            store.put_snapshot(n)
        store.drop_snapshots(plan.outdated(store.snapshot_rounds()))
        store.put_meta(**{REACHED: str(t)})


def reached(store: NodeStore) -> int:
    """The latest round for which private state may have changed; -1 before the first."""
    return store.meta_integer(REACHED, -1)


def known_rollbacks(store: NodeStore) -> list[int]:
    """The rounds that the run returned to, as far as the node knows."""
    return store.meta_integers(ROLLBACKS)


def note_rollbacks(store: NodeStore, rounds: Sequence[int]) -> None:
    """Remember the roll-backs of a run that the node joins now."""
    store.put_meta(**{ROLLBACKS: json.dumps(list(rounds))})


def follow_rollbacks(
    store: NodeStore,
    policy: NodePolicy,
    terms: FederationTerms,
    rounds: Sequence[int],
    warn: Callable[[str], None],
) -> None:
    """Return to the earliest of the rounds that the server returned to since the last message."""
    known = known_rollbacks(store)
    if list(rounds) == known:
        return
    _refuse_other_branch(terms, known, rounds)
    _refuse_by_policy(policy, terms, rounds)
    n = min(rounds[len(known) :])
    _refuse_without_snapshot(store, terms, n)
    with store.transaction():
        if n in store.snapshot_rounds():
            store.restore_snapshot(n)
        store.drop_snapshots([other for other in store.snapshot_rounds() if other > n])
        # It was trained in undone rounds.
        store.delete_model()
        store.put_meta(**{REACHED: str(min(n - 1, reached(store)))})
        note_rollbacks(store, rounds)
    warn(
        f"the server of run {terms.run} rolled back to round {n:,}, and so did this node. What its "
        "users spent of their privacy is not refunded"
    )


def can_return_to(n: int, snapshots: Sequence[int], unchanged_since: int) -> bool:
    """Whether a node has the private state of a round: in a snapshot, or still."""
    return n in snapshots or n >= unchanged_since


def _refuse_other_branch(
    terms: FederationTerms, known: Sequence[int], rounds: Sequence[int]
) -> None:
    """Reject a server that takes back a roll-back: rounds would be answered once more."""
    if list(rounds[: len(known)]) != list(known) or min(rounds, default=1) < 1:
        raise PolicyError(
            f"the server of run {terms.run} lists the roll-backs {list(rounds)}; this node knows "
            f"{list(known)}, to which more may be added. Ask its owner why: a server that was "
            "restored from an earlier backup begins a new run."
        )


def _refuse_by_policy(policy: NodePolicy, terms: FederationTerms, rounds: Sequence[int]) -> None:
    if len(rounds) > policy.rollbacks:
        raise PolicyError(
            f"the server of run {terms.run} rolled back {len(rounds)} times; this node's policy "
            f"has rollbacks: {policy.rollbacks}. Raise it if the users agree that rounds are "
            "answered again."
        )
    protocol = federation_settings(terms.experiment.settings).secure_aggregation
    if protocol != "none":
        raise PolicyError(
            f"the server of run {terms.run} rolled back, and the run has secure_aggregation "
            f"{protocol!r}; expected no roll-back, since the difference of two sums of one round "
            "would reveal single updates. Ask its owner for a new run."
        )


def _refuse_without_snapshot(store: NodeStore, terms: FederationTerms, n: int) -> None:
    if not store.layout or can_return_to(n, store.snapshot_rounds(), reached(store)):
        return
    listed = ", ".join(f"{other:,}" for other in store.snapshot_rounds()) or "none"
    raise PolicyError(
        f"the server of run {terms.run} rolled back to round {n:,}, of which {store.path} has no "
        f"snapshot; it has those of rounds {listed}. This node stays out of the run. Restore the "
        "store from a backup of that time, or wait for the next run."
    )
