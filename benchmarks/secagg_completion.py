"""How often groups and rings complete if clients drop out before any message. Prints JSON.

    python benchmarks/secagg_completion.py
    python benchmarks/secagg_completion.py --trials 5000

Each client drops out for good with probability q before each of its five messages. The rules are
those of `GroupTerms` and `Group`, without cryptography; `--check` compares them with the protocol
itself, client by client, on so many random groups. `--rings` plays so many rings of 50.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.federated.secagg.crypto import Rejected
from coterie.federated.secagg.group import Group
from coterie.federated.secagg.group_member import GroupMember, GroupTerms
from coterie.federated.secagg.identity import Identity
from coterie.federated.secagg.ring import Ring, collect_keys, min_survivors
from coterie.federated.secagg.ring_member import RingMember, RingTerms
from coterie.federated.secagg.ring_node import reply_to
from coterie.federated.secagg.stages import Aborted, StageArrays
from coterie.types import Ints

STAGES = ("advertise", "share", "upload", "agree", "unmask")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--colluders", type=int, default=0)
    parser.add_argument("--check", type=int, default=0)
    parser.add_argument("--rings", type=int, default=0)
    given = parser.parse_args()
    rows = []
    for n in (50, 100):
        for k in (20, 40, 49) if n == 50 else (20, 40, 50, 99):
            terms = GroupTerms("", tuple(range(n)), k, given.colluders, 0, 64, b"")
            shares = {
                f"{q:.0%}": completion(terms, q, given.trials, seed=n * 1000 + k)
                for q in (0.01, 0.05, 0.10)
            }
            rows.append(
                {"clients": n, "k": k, "t": terms.threshold, "quorum": terms.quorum} | shares
            )
    found: dict[str, Any] = {"trials": given.trials, "colluders": given.colluders, "groups": rows}
    if given.check:
        found["checked"] = agreement(given.check)
    if given.rings:
        found["rings of 50"] = {
            f"{q:.0%}": ring_completion(50, q, given.rings) for q in (0.01, 0.05, 0.10)
        }
    print(json.dumps(found, indent=1))


def completion(terms: GroupTerms, q: float, trials: int, seed: int) -> float:
    """The share of groups that complete."""
    rng = np.random.default_rng(seed)
    n = len(terms.users)
    done = 0
    for _ in range(trials):
        last = drop_stages(rng, n, q)
        done += completes(terms, last, draw_holders(rng, n, terms.holders))
    return done / trials


def drop_stages(rng: np.random.Generator, n: int, q: float) -> np.ndarray:
    """(clients,) how many messages each client sends before it drops out."""
    return np.minimum(rng.geometric(q, n) - 1, len(STAGES))


def draw_holders(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """(clients, k) the holders of each client, in their order."""
    keys = rng.random((n, n))
    np.fill_diagonal(keys, 2.0)
    order: np.ndarray = np.argsort(keys, axis=1)[:, :k]
    return order


def completes(terms: GroupTerms, last: np.ndarray, holders: np.ndarray) -> bool:
    """Whether the sum is completed: the rules of the protocol."""
    masks = holders[:, : terms.n_masks]
    advertised = last >= 1
    shared = advertised & (last >= 2) & (advertised[holders].sum(axis=1) >= terms.threshold)
    uploaded = shared & (last >= 3) & (shared[masks].sum(axis=1) >= terms.least_masks)
    survivors = uploaded
    while True:
        hidden = survivors & (survivors[masks].sum(axis=1) >= terms.least_masks)
        if (hidden == survivors).all():
            break
        survivors = hidden
    agreed = uploaded & (last >= 4)
    for step in (advertised, shared, survivors, agreed):
        if step.sum() < terms.quorum:
            return False
    recoverable = (agreed & (last >= 5))[holders].sum(axis=1) >= terms.threshold
    chosen = np.zeros((len(last), len(last)), bool)
    chosen[np.arange(len(last))[:, None], masks] = True
    next_to_survivor = (chosen | chosen.T)[:, survivors].any(axis=1)
    needed = survivors | (shared & ~survivors & next_to_survivor)
    return bool(recoverable[needed].all())


# The protocol itself


@dataclass
class Clients:
    """Clients with given holders that drop out at given stages."""

    terms: GroupTerms
    last: np.ndarray
    members: dict[int, GroupMember] = field(default_factory=dict)

    def send(self, stage: str, out: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        replies = {}
        for user, content in out.items():
            if self.last[user] > STAGES.index(stage):
                try:
                    replies[user] = getattr(self.members[user], stage)(*content)
                except Rejected:
                    continue
        return replies


def agreement(cases: int) -> dict[str, int]:
    """In how many random groups the rules and the protocol agree."""
    rng = np.random.default_rng(0)
    identities = [Identity.generate() for _ in range(20)]
    keys = {user: identity.public for user, identity in enumerate(identities)}
    agreed = 0
    completed = 0
    for _ in range(cases):
        terms = GroupTerms("", tuple(range(20)), int(rng.integers(6, 15)), 0, 1, 64, b"")
        last = drop_stages(rng, 20, float(rng.choice([0.02, 0.08, 0.15])))
        holders = draw_holders(rng, 20, terms.holders)
        clients = Clients(terms, last)
        for user in terms.users:
            member = GroupMember(user, terms, identities[user], keys, lambda: np.ones(1, np.uint64))
            member.holders = tuple(holders[user].tolist())  # not those that it would draw
            clients.members[user] = member
        try:
            total, survivors = Group(terms, clients.send, max_entry=1).aggregate()
            done = True
            assert total[0] == len(survivors)
        except Aborted:
            done = False
        completed += done
        agreed += done == completes(terms, last, holders)
    return {"cases": cases, "completed": completed, "agreed": agreed}


# Rings


def ring_completion(n: int, q: float, trials: int) -> float:
    """The share of rings that complete, by the protocol itself."""
    done = 0
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        terms = RingTerms(0, 0, 0, 1)
        members = {
            user: RingMember(user, terms, lambda: np.ones(1, np.uint64)) for user in range(n)
        }
        gone: set[int] = set()

        def send(
            stage: str,
            users: Ints,
            own: StageArrays,
            rng: np.random.Generator = rng,
            members: dict[int, RingMember] = members,
            gone: set[int] = gone,
        ) -> dict[int, StageArrays]:
            gone |= {user for user in users.tolist() if rng.random() < q}
            here = np.array([user not in gone for user in users.tolist()], bool)
            received = {name: rows[here] for name, rows in own.items()}
            replies = reply_to(stage, members, users[here].tolist(), received)
            rows = {name: each for name, each in replies.items() if name not in ("users", "stage")}
            return {
                user: {name: each[k] for name, each in rows.items()}
                for k, user in enumerate(replies["users"].tolist())
            }

        try:
            replies = collect_keys(send, np.arange(n, dtype=np.int32), {})
            keys = {user: reply["key"].tobytes() for user, reply in replies.items()}
            Ring(terms, send, min_survivors(n), max_entry=1).aggregate(keys)
            done += 1
        except Aborted:
            continue
    return done / trials


if __name__ == "__main__":
    main()
