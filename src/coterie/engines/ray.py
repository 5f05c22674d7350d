"""The Ray engine: every actor of a cluster hosts a shard of the users.

One message goes to a shard, and sums come back. An actor has the histories of its users and nothing
that changes: private state travels with the message, as it does within this process. An actor that
dies is started again on its shard, receives the message again, and the round goes on. Without the
raylet of this machine or the head of the cluster nothing goes on: then the run stops with an error.
Shards belong to whoever runs the simulation and are trusted to validate and to sum up. A federation
between organisations is `coterie.deployment`.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.core.progress import Progress
from coterie.data.training_set import TrainingSet
from coterie.engines.sudden_end import report_sudden_end
from coterie.errors import ConfigError, MissingExtra, RunError
from coterie.federated import aggregation
from coterie.federated.aggregation import Aggregate, Limits
from coterie.federated.engine import Engine
from coterie.federated.federation import (
    AnyExchange,
    AnyWorld,
    ClientTask,
    NodeData,
    PrivateState,
)
from coterie.federated.nodes import (
    by_user,
    parts_of,
    read_message,
    read_reply,
    receive,
    share_out,
    write_message,
)
from coterie.federated.secagg.session import SessionSlot
from coterie.federated.validation import Reply
from coterie.types import Message

CHECK_SECONDS = 1.0
"""How often a call that takes longer looks whether Ray still runs."""
RESUME = "Resume the run with coterie resume FOLDER."
Bytes = np.ndarray
"""Bytes in Ray's object store: shards on one machine read them in place."""


class Shard:
    """An actor: a node and its users."""

    def __init__(self, known: Sequence[Any], threads: int) -> None:
        import ray

        os.environ["COTERIE_THREADS"] = str(threads)
        self.world, self.node = ray.get(list(known))
        self.slot = SessionSlot()

    def aggregate(
        self,
        exchange: AnyExchange,
        common: Bytes,
        own: bytes,
        private_state: PrivateState,
        limits: Limits,
    ) -> Aggregate:
        shared = read_message(common.data)
        message = replace(read_message(own), common=shared.common, private_state=private_state)
        return aggregation.aggregate_on_node(self.world, exchange, message, self.node, limits)

    def answer(
        self, task: ClientTask, data: bytes, private_state: PrivateState
    ) -> tuple[bytes, PrivateState]:
        return receive(self.world, task, data, self.node, private_state, self.slot)

    def make(
        self, make: Callable[[AnyWorld, NodeData], PrivateState]
    ) -> tuple[np.ndarray, PrivateState]:
        return self.node.users, make(self.world, self.node)


@dataclass(frozen=True, slots=True)
class RayEngine(Engine):
    shards: Sequence[Any]
    """Handles of actors, each a `Shard`."""
    known: Sequence[Any]
    """The actors' data in the object store, for as long as one may have to be started again."""
    services: Mapping[str, tuple[str, int]]
    """The addresses of what Ray needs, by name."""

    @classmethod
    def over(cls, world: AnyWorld, training: TrainingSet, progress: Progress) -> RayEngine:
        settings = world.settings
        ray = connected(settings.cluster, progress)
        resources = ray.cluster_resources()
        cores = int(resources.get("CPU", 1))
        gpus = resources.get("GPU", 0) if settings.on_gpu else 0
        n = settings.nodes or cores
        node_world, nodes = share_out(world, training, n)
        actor = ray.remote(Shard).options(
            num_cpus=min(1, cores / n),
            num_gpus=min(1, gpus / n),
            max_restarts=-1,
            max_task_retries=-1,
            scheduling_strategy="SPREAD",
        )
        shared = ray.put(node_world)
        known = [(shared, ray.put(node)) for node in nodes]
        shards = [actor.remote(each, max(1, cores // n)) for each in known]
        return cls(shards, known, services_of(ray))

    def get(self, calls: Sequence[Any]) -> list[Any]:
        """The results of calls; RunError if Ray itself fails meanwhile."""
        import ray

        while True:
            try:
                return list(ray.get(calls, timeout=CHECK_SECONDS))
            except ray.exceptions.GetTimeoutError:
                refuse_stopped(self.services)
            except ray.exceptions.RayTaskError:
                raise  # an error of the algorithm
            except ray.exceptions.RayError as error:
                refuse_stopped(self.services)
                why = str(error).partition("\n")[0]
                raise RunError(f"Ray failed ({why}); expected a result. {RESUME}") from None

    def gather(self, make: Callable[[AnyWorld, NodeData], PrivateState]) -> PrivateState:
        return by_user(self.get([shard.make.remote(make) for shard in self.shards]))

    def call(self, task: ClientTask, message: Message) -> list[Reply]:
        refuse_stopped(self.services)
        parts = list(parts_of(message, len(self.shards)))
        calls = [
            self.shards[n].answer.remote(task, write_message(part), part.private_state)
            for n, part in parts
        ]
        return [
            replace(read_reply(part, reply), private_state=private_state)
            for (_, part), (reply, private_state) in zip(parts, self.get(calls), strict=True)
        ]

    def aggregate(self, exchange: AnyExchange, message: Message, limits: Limits) -> Aggregate:
        """Sums travel in place of updates."""
        import ray

        # Without its raylet, Ray ends this process at the next put: see `sudden_end`.
        refuse_stopped(self.services)
        to_all = Message(message.round, message.users[:0], message.common, {}, message.exchange)
        common = ray.put(np.frombuffer(write_message(to_all), np.uint8))
        calls = []
        for n, part in parts_of(message, len(self.shards)):
            own = write_message(replace(part, common={}))
            shard = self.shards[n]
            calls.append(shard.aggregate.remote(exchange, common, own, part.private_state, limits))
        return aggregation.join_nodes(exchange, self.get(calls))


def connected(address: str, progress: Progress) -> Any:
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
    label = f"Joining the cluster at {address}" if address else "Starting Ray"
    with progress.task(label, None):
        if address or os.environ.get("RAY_ADDRESS"):
            ray.init(address or None, **quiet)
        else:
            ray.init(include_dashboard=False, **quiet)
    report_sudden_end()
    return ray


def services_of(ray: Any) -> dict[str, tuple[str, int]]:
    """The ports of the cluster's head and of this machine's raylet."""
    context = ray.get_runtime_context()
    head, _, port = context.gcs_address.rpartition(":")
    own = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    return {
        "head": (head, int(port)),
        "raylet": (own["NodeManagerAddress"], own["NodeManagerPort"]),
    }


def refuse_stopped(services: Mapping[str, tuple[str, int]]) -> None:
    """Raise if a service of Ray has stopped. Ray itself would end the process without a message."""
    for name, address in services.items():
        try:
            socket.create_connection(address, timeout=5).close()
        except OSError as error:
            raise RunError(
                f"Ray's {name} at {address[0]}:{address[1]} has stopped ({error.strerror or error})"
                f"; expected it to run until the end. Was it killed, or is memory short? {RESUME}"
            ) from None


def refuse_unreachable(address: str) -> None:
    """Fail early: Ray itself tries for two minutes, and then ends the process."""
    host, found, port = address.rpartition(":")
    if not found or not port.isdecimal():
        return
    try:
        socket.create_connection((host.rpartition("/")[2], int(port)), timeout=5).close()
    except OSError as error:
        raise ConfigError(
            f"setting 'cluster' is {address!r}, where no Ray cluster can be reached "
            f"({error.strerror or error}); expected an address such as 10.0.0.5:6379. "
            "Start one with `ray start --head`, or leave it out."
        ) from None
