"""The Ray engine: shards of users on the actors of a cluster. What travels is one message a shard, and sums back.

An actor has the histories of its users and nothing that changes: what devices keep travels with the message, as in this process.
One that dies is started again on its shard, asked again, and the round goes on. Shards belong to whoever runs the
simulation and are trusted to validate and to add up; a federation between parties is `runtime/flower`.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.core.progress import Progress
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError, MissingExtra
from coterie.federated import aggregation
from coterie.federated.aggregation import Aggregate, Limits
from coterie.federated.federation import ClientTask, Exchange, NodeData, PrivateState, World
from coterie.federated.nodes import (
    by_user,
    parts_of,
    read_message,
    read_reply,
    receive,
    share_out,
    write_message,
)
from coterie.federated.validation import Reply
from coterie.types import Message

Table = np.ndarray
"""Bytes in the object store: shards on one machine read them where they are."""


class Shard:
    """What an actor is: a node and its users."""

    def __init__(self, known: Sequence[Any], threads: int) -> None:
        import ray

        os.environ["COTERIE_THREADS"] = str(threads)
        self.world, self.node = ray.get(list(known))

    def add_up(
        self,
        exchange: Exchange,
        common: Table,
        own: bytes,
        private_state: PrivateState,
        limits: Limits,
    ) -> Aggregate:
        shared = read_message(memoryview(common))  # type: ignore[arg-type]
        mine = read_message(own)
        return aggregation.hear_own(
            self.world,
            exchange,
            replace(mine, common=shared.common, private_state=private_state),
            self.node,
            limits,
        )

    def answer(
        self, asked: ClientTask, data: bytes, private_state: PrivateState
    ) -> tuple[bytes, PrivateState]:
        return receive(self.world, asked, data, self.node, private_state)

    def make(
        self, make: Callable[[World, NodeData], PrivateState]
    ) -> tuple[np.ndarray, PrivateState]:
        return self.node.users, make(self.world, self.node)


@dataclass(frozen=True, slots=True)
class RayEngine:
    shards: Sequence[Any]
    """Handles of actors, each a `Shard`."""
    known: Sequence[Any]
    """What they know, in the object store for as long as one of them may have to be started again."""

    @classmethod
    def over(cls, world: World, training: TrainingSet, progress: Progress) -> RayEngine:
        ray = joined(world.settings.cluster, progress)
        settings = world.settings
        has = ray.cluster_resources()
        cores = int(has.get("CPU", 1))
        gpus = has.get("GPU", 0) if getattr(settings, "device", "cpu") == "cuda" else 0
        n = settings.nodes or cores
        seen, nodes = share_out(world, training, n)
        actor = ray.remote(Shard).options(
            num_cpus=min(1, cores / n),
            num_gpus=min(1, gpus / n),
            max_restarts=-1,
            max_task_retries=-1,
            scheduling_strategy="SPREAD",
        )
        whole = ray.put(seen)
        known = [(whole, ray.put(node)) for node in nodes]
        return cls([actor.remote(each, max(1, cores // n)) for each in known], known)

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        import ray

        return by_user(ray.get([shard.make.remote(make) for shard in self.shards]))

    def call(self, exchange: ClientTask, message: Message) -> list[Reply]:
        import ray

        parts = list(parts_of(message, len(self.shards)))
        asked = [
            self.shards[n].answer.remote(exchange, write_message(part), part.private_state)
            for n, part in parts
        ]
        said = zip(parts, ray.get(asked), strict=True)
        return [
            replace(read_reply(part, back), private_state=private_state)
            for (_, part), (back, private_state) in said
        ]

    def added_up(self, exchange: Exchange, message: Message, limits: Limits) -> Aggregate:
        """What shards heard of their own users: sums travel in place of updates."""
        import ray

        nobody = Message(message.round, message.users[:0], message.common, {}, message.exchange)
        common = ray.put(np.frombuffer(write_message(nobody), np.uint8))
        return aggregation.added_up(
            exchange,
            ray.get(
                [
                    self.shards[n].add_up.remote(
                        exchange,
                        common,
                        write_message(replace(part, common={})),
                        part.private_state,
                        limits,
                    )
                    for n, part in parts_of(message, len(self.shards))
                ]
            ),
        )


def joined(address: str, progress: Progress) -> Any:
    """Ray, with a cluster: the one named, the one of this process, or a new one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(
        "RAY_BACKEND_LOG_LEVEL", "fatal"
    )  # else it warns of restarts that need what `known` keeps
    try:
        import ray
    except ImportError:
        raise MissingExtra("engine=ray", "cluster") from None
    if ray.is_initialized():
        return ray
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    refuse_unreachable(address)
    with progress.task(
        "Starting Ray" if not address else f"Joining the cluster at {address}", None
    ):
        if address or os.environ.get("RAY_ADDRESS"):
            ray.init(address or None, **quiet)
        else:
            ray.init(include_dashboard=False, **quiet)
    return ray


def refuse_unreachable(address: str) -> None:
    """Ray itself tries for two minutes, and then ends the process."""
    host, found, port = address.rpartition(":")
    if not found or not port.isdecimal():
        return
    try:
        socket.create_connection((host.rpartition("/")[2], int(port)), timeout=5).close()
    except OSError as error:
        raise ConfigError(
            f"setting 'cluster' is {address!r}, where no Ray cluster can be reached ({error.strerror or error}); "
            "expected an address such as 10.0.0.5:6379. Start one with `ray start --head`, or leave it out."
        ) from None
