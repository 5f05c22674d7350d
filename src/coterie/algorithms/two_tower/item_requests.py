"""Item requests of STTFedRec (step 2) on devices, and the vectors that answer them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.algorithms.two_tower import requests
from coterie.algorithms.two_tower.batches import InputRows
from coterie.algorithms.two_tower.requests import Requests, user_texts
from coterie.algorithms.two_tower.settings import FederatedTowers
from coterie.core import streams
from coterie.core.weak_cache import WeakCache
from coterie.data.content import Content
from coterie.federated.federation import Accepted, NodeData, SinglePass, Sums, World
from coterie.types import Ints, Longs, Message, Sizes, Updates

LAST_DRAWN = WeakCache()
"""The last requests of every node."""


def draw_requests(world: World[FederatedTowers], node: NodeData, users: Ints, t: int) -> Requests:
    """V_k and its labels.

    A device draws the same requests whenever it needs them in a round. The cache saves drawing
    them again.
    """
    drawn_for = (world.settings, node.seed, t, users.tobytes())
    last = LAST_DRAWN.get(node.users)
    if last is not None and last[0] == drawn_for:
        drawn: Requests = last[1]
        return drawn
    keys = streams.keys(node.seed, "request", t, last=users)
    sticky = None
    if world.settings.request_policy == "sticky":
        sticky = streams.keys(node.seed, "decoys", last=users)
    drawn = requests.draw(node.training, node.positions(users), world.settings, keys, sticky)
    LAST_DRAWN.put(node.users, (drawn_for, drawn))
    return drawn


def request(world: World[FederatedTowers], message: Message, node: NodeData) -> Updates:
    """Item indices without labels; no items at all where the whole catalogue is sent."""
    drawn = draw_requests(world, node, message.users, message.round)
    n = len(message.users)
    sent = drawn.valid & (world.settings.request_policy != "whole")
    offsets = np.concatenate([[0], np.cumsum(sent.sum(axis=1))])
    none = np.empty((n, 0), np.int32)
    return Updates(
        users=message.users,
        samples=unit_weights(n),
        offsets=offsets,
        items=drawn.items[sent],
        item_rows=np.empty((offsets[-1], 0), np.int32),
        user_rows=none,
        dense=none,
    )


def request_at_once(world: World[FederatedTowers], message: Message, node: NodeData) -> SinglePass:
    """The requests of all devices, without an update of each: what `request` and `collect` give."""
    drawn = draw_requests(world, node, message.users, message.round)
    n = len(message.users)
    sent = drawn.valid & (world.settings.request_policy != "whole")
    return SinglePass(
        sums={"requested": np.where(sent, drawn.items, -1).astype(np.int64)},
        accepted=Accepted(message.users, unit_weights(n), np.empty((n, 0), np.int32)),
        n_rows=sent.sum(axis=1),
        private_state={},
    )


def unit_weights(n: int) -> Longs:
    """Every client has the weight 1."""
    return np.ones(n, np.int64)


def sizes(world: World[FederatedTowers], state: object) -> Sizes:
    return Sizes(world.n_items, 0, 0, 0)


def collect(world: World[FederatedTowers], message: Message, updates: Updates) -> Sums:
    """(n, T) the items that each client requested, padded with -1 in front.

    Nothing is summed: the recommendation server must know who requested what.
    """
    T = world.settings.compared
    counts = np.minimum(np.diff(updates.offsets), T)
    requested = np.full((len(updates), T), -1, np.int64)
    row = np.repeat(np.arange(len(updates)), counts)
    position = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    column = T - np.repeat(counts, counts) + position
    requested[row, column] = updates.items[np.repeat(updates.offsets[:-1], counts) + position]
    return {"requested": requested}


def look_up_vectors(world: World[FederatedTowers], message: Message, node: NodeData) -> Message:
    """The message with the vectors and slots that each device needs.

    Devices that were sent the whole catalogue look them up in it.
    """
    if "slots" in message.own:
        return message
    drawn = draw_requests(world, node, message.users, message.round)
    # The padding -1 of the requests reads the last row, which is the padding here.
    no_vector = np.zeros((1, world.settings.widths[-1]), np.float32)
    no_slot = np.full(1, -1, np.int32)
    vectors = np.concatenate([message.common["embeddings"], no_vector])
    slots = np.concatenate([message.common["slots"], no_slot])
    own = {"embeddings": vectors[drawn.items], "slots": slots[drawn.items]}
    return replace(message, own=own)


def user_inputs(node: NodeData, message: Message, drawn: Requests) -> InputRows:
    """x_k of the users of a message, and the keys of their dropout."""
    positions = node.positions(message.users)
    texts, rows = user_texts(client_content(node), positions, drawn.profiles)
    keys = streams.keys(node.seed, "dropout of people", message.round, last=message.users)
    return InputRows(texts, rows, keys)


def client_content(node: NodeData) -> Content:
    assert node.training.content is not None  # every federation of towers gives content to nodes
    return node.training.content
