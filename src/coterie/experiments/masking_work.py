"""What masking costs one client in a round: seconds for keys and shares, and masks to expand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from coterie.federated.federation import AnyWorld
from coterie.federated.secagg.group import Group
from coterie.federated.secagg.group_bytes import group_sizes
from coterie.federated.secagg.group_member import GroupMember, GroupTerms, Hosted
from coterie.federated.secagg.group_terms import VALUES, group_terms
from coterie.federated.secagg.identity import Identity
from coterie.federated.secagg.session import GroupId

TIMED_CLIENT = 0


class MaskingWork(NamedTuple):
    """Of one client, for one message."""

    seconds: float
    """For keys, signatures and shares, whatever the length of the vector is."""
    masks: int
    """Vectors that it expands from seeds."""


RING = MaskingWork(0.0, 3)
"""A self-mask and two shares. Three key agreements take less than a millisecond."""


def masking_work(world: AnyWorld, n_clients: int) -> MaskingWork:
    """Of a client in a round of so many clients."""
    if world.settings.secure_aggregation == "ring":
        return RING
    users = tuple(range(group_sizes(n_clients, world.settings.group_size)[0]))
    return _in_group(group_terms(world, GroupId(0, 0, 0), VALUES, users, 0, 64, b""))


@lru_cache(maxsize=32)
def _in_group(terms: GroupTerms) -> MaskingWork:
    """Run a group that sums nothing, and time one of its clients."""
    members = _members(terms)
    seconds = 0.0

    def send(stage: str, out: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        nonlocal seconds
        replies = {}
        for user, content in out.items():
            began = time.perf_counter()
            replies[user] = getattr(members[user], stage)(*content)
            if user == TIMED_CLIENT:
                seconds += time.perf_counter() - began
        return replies

    Group(terms, send).aggregate()
    return MaskingWork(seconds, len(members[TIMED_CLIENT].mask_seeds()))


def _members(terms: GroupTerms) -> list[GroupMember]:
    identities = [Identity.generate() for _ in terms.users]
    known_keys = {user: identity.public for user, identity in enumerate(identities)}
    nothing = np.zeros(0, np.uint64)
    # The timed client shares no work with the others, as on a device of its own.
    others = Hosted()
    return [
        GroupMember(
            user,
            terms,
            identities[user],
            known_keys,
            lambda: nothing,
            hosted=Hosted() if user == TIMED_CLIENT else others,
        )
        for user in terms.users
    ]
