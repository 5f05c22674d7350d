"""Bytes of a client in `secagg` groups without dropouts, from the shapes of what is sent.

They are an expectation. Clients draw their holders at random, so that how many clients have chosen
a client differs, and rows of a message are padded to the longest one. Where a group is no larger
than holders + 1, everybody is everybody's holder, and the bytes are exact.

Clients are taken to be on one node, as in a simulation by default. On several nodes a client sends
less: its shares of others' secrets are padded to the longest row of its own node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from coterie.federated.federation import AnyWorld
from coterie.federated.secagg import group_stages
from coterie.federated.secagg.client_bytes import (
    ClientBytes,
    Summed,
    reply_bytes,
    sent_bytes,
    uploaded,
)
from coterie.federated.secagg.crypto import KEY_BYTES
from coterie.federated.secagg.group_member import Advert
from coterie.federated.secagg.group_terms import VALUES, GroupHeader, group_terms
from coterie.federated.secagg.identity import SIGNATURE_BYTES
from coterie.federated.secagg.session import GroupId
from coterie.federated.secagg.shamir import SHARE_BYTES
from coterie.federated.secagg.stages import ADVERTISE, AGREE, GROUP_STAGES, SHARE, UNMASK, UPLOAD
from coterie.federated.wire import message_size

HEADER = {"group": np.zeros(len(GroupHeader._fields), np.int64)}


def group_bytes(world: AnyWorld, n_clients: int, summed: Summed) -> ClientBytes:
    """Expected bytes of one client of a round, over its groups; with group_rows=all."""
    sizes = Counter(group_sizes(n_clients, world.settings.group_size))
    up = 0
    down = 0
    for size, n_groups in sizes.items():
        client = _bytes_in_group(world, size, summed)
        up += n_groups * size * client.up
        down += n_groups * size * client.down
    return ClientBytes(round(up / n_clients), round(down / n_clients))


def group_sizes(n_clients: int, largest: int) -> list[int]:
    """The sizes of the groups that `assign_groups` makes."""
    n_groups = -(-n_clients // largest)
    return [len(part) for part in np.array_split(np.arange(n_clients), n_groups)]


def _bytes_in_group(world: AnyWorld, n: int, summed: Summed) -> ClientBytes:
    """Expected bytes of a client in a group of n."""
    terms = group_terms(
        world, GroupId(0, 0, 0), VALUES, tuple(range(n)), summed.length, summed.word, b""
    )
    k = terms.holders
    # Every other client chooses this one with the same probability.
    probability = k / max(n - 1, 1)
    held = round(expected_longest(n, n - 1, probability))
    neighbours = k + round(expected_longest(n, n - 1 - k, probability))

    up = sum(reply_bytes(_reply(stage, k, held, summed)) for stage in GROUP_STAGES)
    members = {"members": np.zeros(n, np.int32)}
    message = summed.message
    down = message_size(replace(message, common=message.common | HEADER | members))
    for stage in GROUP_STAGES[1:]:
        common, own = group_stages.to_clients(stage, {0: _received(stage, n, k, held, neighbours)})
        down += sent_bytes(own, HEADER | common)
    return ClientBytes(up, down)


def expected_longest(n: int, trials: int, probability: float) -> float:
    """The expected largest of n binomial numbers, as if they were independent.

    They nearly are: all clients together are chosen n * holders times.
    """
    from scipy.special import bdtr

    at_most = bdtr(np.arange(trials), trials, probability)  # P(X <= 0), ..., P(X <= trials - 1)
    return float((1 - at_most**n).sum())


def _reply(stage: str, k: int, held: int, summed: Summed) -> dict[str, np.ndarray]:
    """Arrays of the shapes that one client replies with; it holds shares of `held` others."""
    if stage == UPLOAD:
        return uploaded(summed)
    replies: dict[str, Any] = {
        ADVERTISE: _advert(k),
        SHARE: {},
        AGREE: bytes(SIGNATURE_BYTES),
        UNMASK: dict.fromkeys(range(held), bytes(SHARE_BYTES)),
    }
    return group_stages.to_server(stage, [replies[stage]], [range(k)])


def _received(stage: str, n: int, k: int, held: int, neighbours: int) -> tuple[Any, ...]:
    """What `Group` sends to one client, of the right size."""
    everybody = range(n)
    received: dict[str, tuple[Any, ...]] = {
        SHARE: (dict.fromkeys(range(neighbours), _advert(k)),),
        UPLOAD: (dict.fromkeys(range(held), bytes(group_stages.CIPHERTEXT_BYTES)), everybody),
        AGREE: (everybody,),
        UNMASK: (dict.fromkeys(everybody, bytes(SIGNATURE_BYTES)),),
    }
    return received[stage]


def _advert(k: int) -> Advert:
    key = bytes(KEY_BYTES)
    digest = bytes(group_stages.DIGEST_BYTES)
    return Advert(key, key, digest, tuple(range(k)), bytes(SIGNATURE_BYTES))
