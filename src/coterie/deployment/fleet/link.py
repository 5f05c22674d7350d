"""Flower's SuperLink in this process: its state and its Fleet API, with one run that is ours.

Nothing else of Flower is served: no call of its operator, and none that starts a program. Messages
are in memory only. What survives a restart is in the run folder.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from coterie.deployment.fleet import messages
from coterie.deployment.fleet.client import ACTION, HEARTBEAT_SECONDS
from coterie.deployment.node_service import ENROL, EVALUATE, FINISH
from coterie.errors import MissingExtra, RunError
from coterie.federated.wire import Malformed

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


def _refuse_other_versions() -> None:
    """Flower's internals change with every version, so another one fails here and not later."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise MissingExtra("coterie serve", "federation") from None
    if found != messages.FLOWER:
        raise RunError(
            f"flwr has version {found}; expected {messages.FLOWER}. "
            f"Run: pip install flwr=={messages.FLOWER}"
        )


_refuse_other_versions()

from flwr.app import Message, Metadata, RecordDict  # noqa: E402
from flwr.app.message import make_message  # noqa: E402
from flwr.common.constant import (  # noqa: E402
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,
)
from flwr.proto.message_pb2 import ObjectTree  # noqa: E402
from flwr.server.superlink.linkstate import LinkStateFactory  # noqa: E402
from flwr.supercore.constant import (  # noqa: E402
    FLWR_IN_MEMORY_DB_NAME,
    NOOP_FEDERATION_ID,
    TaskType,
)
from flwr.supercore.object_store import ObjectStoreFactory  # noqa: E402
from flwr.superlink.federation import NoOpFederationManager  # noqa: E402

MOST_BYTES = 1 << 28
"""Largest reply."""
MOST_BYTES_OF_KIND = {ENROL: 1 << 26, EVALUATE: 1 << 16, FINISH: 1 << 16}
"""Largest reply to a message of a kind that carries no updates: a roster, or metrics."""
GRACE = 60.0
"""Seconds for which Flower keeps a message after its deadline. We withdraw it before."""


@dataclass(slots=True)
class Posted:
    """A message to a node that has no complete reply yet."""

    message: Message
    expires: float
    reply: Message | None = None
    """The reply without its content, which may still be on its way."""

    @property
    def id(self) -> str:
        return str(self.message.metadata.message_id)


class Link:
    """The SuperLink's state: nodes, and at most one message on its way to each of them."""

    def __init__(self) -> None:
        in_memory = FLWR_IN_MEMORY_DB_NAME
        self.factory = LinkStateFactory(
            in_memory, NoOpFederationManager(), ObjectStoreFactory(in_memory)
        )
        self.state = self.factory.state()
        self.run_id = self.state.create_run(
            None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        (run,) = self.state.get_run_info(run_ids=[self.run_id])
        self.task_id = int(run.primary_task_id or 0)
        self.state.claim_task(self.task_id)
        self.state.activate_task(self.task_id)
        self.posted: dict[int, Posted] = {}
        self.most_bytes: dict[tuple[int, str], int] = {}
        """(node id, kind) -> the largest reply of that node to a message of that kind."""
        self.pushed: set[int] = set()
        """The nodes that pushed something since replies were taken."""
        self.connections = itertools.count(1)
        self.activations: dict[int, int] = {}
        """Node id -> the number of its last connection."""
        self.on_change: Callable[[int], None] = lambda node_id: None
        """Called with the id of a node that has a new message, or is refused from now on."""
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        """Notified when a reply may be complete."""

    def keep_alive(self) -> None:
        """Flower ends a run whose program is silent for a minute."""
        self.state.acknowledge_task_heartbeat(self.task_id)

    # Nodes

    def register(self, public_key: bytes) -> int:
        """Accept a node with this key; returns its id."""
        known = self.state.get_node_id_by_public_key(public_key)
        if known is not None:
            return int(known)
        return int(self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public_key, 0))

    def unregister(self, node_id: int) -> None:
        """Refuse a node from now on."""
        self.withdraw(node_id)
        for limited in [place for place in self.most_bytes if place[0] == node_id]:
            del self.most_bytes[limited]
        self.state.delete_node(NOOP_FLWR_AID, node_id)
        self.on_change(node_id)

    def received_activation(self, public_key: bytes) -> None:
        """A node connects, perhaps again after a crash. Flower would refuse it as present."""
        node_id = self.state.get_node_id_by_public_key(public_key)
        if node_id is None:
            return
        self.activations[node_id] = next(self.connections)
        if node_id in self.online():
            self.state.deactivate_node(node_id)

    def knows(self, node_id: int) -> bool:
        """Whether a node with this id was registered."""
        return bool(self.state.get_node_info(node_ids=[node_id]))

    def online(self) -> set[int]:
        """The ids of the nodes that are connected."""
        return set(self.state.get_nodes(self.run_id))

    # Messages

    def post(self, node_id: int, kind: str, body: bytes, seconds: float) -> bool:
        """Send a message to a node; returns whether the node is there."""
        with self.lock:
            self.withdraw(node_id)
            return self._post(node_id, f"{ACTION}.{kind}", body, time.time() + seconds + GRACE)

    def _post(self, node_id: int, message_type: str, body: bytes, expires: float) -> bool:
        now = time.time()
        if expires <= now:
            return False
        object_id, content = messages.as_object(os.urandom(messages.UNIQUE_BYTES), body)
        metadata = Metadata(
            run_id=self.run_id,
            message_id=object_id,
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=node_id,
            reply_to_message_id="",
            group_id="",
            created_at=now,
            ttl=expires - now,
            message_type=message_type,
        )
        message = make_message(metadata, RecordDict())
        session = self.state.start_session(self.run_id)
        tree = ObjectTree(object_id=object_id)
        self.state.store_message_and_object_tree(message, tree, session)
        if not self.state.store_object(self.run_id, session, object_id, content):
            return False
        self.posted[node_id] = Posted(message, expires)
        self.on_change(node_id)
        return True

    def received_call(self, node_id: int) -> None:
        """A node that calls is there."""
        self.state.acknowledge_node_heartbeat(node_id, HEARTBEAT_SECONDS)

    def received_push(self, node_id: int) -> None:
        """The reply of a node may be complete."""
        with self.changed:
            self.pushed.add(node_id)
            self.changed.notify_all()

    def due(self, public_key: bytes) -> int:
        """The most bytes that the node with this key has to push; 0 if nothing is due."""
        with self.lock:
            node_id = int(self.state.get_node_id_by_public_key(public_key) or 0)
            posted = self.posted.get(node_id)
            if posted is None:
                return 0
            kind = posted.message.metadata.message_type.removeprefix(f"{ACTION}.")
            usual = MOST_BYTES_OF_KIND.get(kind, MOST_BYTES)
            return min(usual, self.most_bytes.get((node_id, kind), usual))

    def has(self, node_id: int) -> bool:
        """Whether a message to this node is on its way, or its reply."""
        with self.lock:
            return node_id in self.posted

    def awaits_pull(self, node_id: int) -> bool:
        """Whether a message for this node was not delivered yet."""
        with self.lock:
            posted = self.posted.get(node_id)
            return posted is not None and not posted.message.metadata.delivered_at

    def repeat_if_lost(self, node_id: int) -> None:
        """Send again what a node pulled and did not answer.

        A node answers a message before it pulls the next one. So either the message was lost on
        its way, or the reply, unless the server has not looked at the reply yet.
        """
        with self.lock:
            posted = self.posted.get(node_id)
            if posted is None or not posted.message.metadata.delivered_at:
                return
            self._look_for_replies([node_id])
            if posted.reply is not None and self._is_complete(posted.reply):
                return
            body = self._body(posted.id)
            self.withdraw(node_id)
            if body is not None:
                self._post(node_id, posted.message.metadata.message_type, body, posted.expires)

    def take_replies(self, everywhere: bool) -> dict[int, bytes | None]:
        """The complete replies by node; None of a node that failed or left.

        Looks at nodes that pushed since the last call, or `everywhere`: some may have left.
        """
        with self.lock:
            nodes = list(self.posted) if everywhere else [*self.pushed & self.posted.keys()]
            self.pushed.clear()
            self._look_for_replies(nodes)
            found = {}
            for node_id in nodes:
                posted = self.posted[node_id]
                if posted.reply is None:
                    continue
                body = None
                if not posted.reply.has_error():
                    body = self._body(posted.reply.metadata.message_id)
                    if body is None:
                        continue
                found[node_id] = body
                self.withdraw(node_id)
            return found

    def _look_for_replies(self, nodes: Iterable[int]) -> None:
        open_ids = {self.posted[node].id: node for node in nodes if not self.posted[node].reply}
        if not open_ids:
            return
        for reply in self.state.get_message_res(set(open_ids), self.run_id):
            node_id = open_ids[reply.metadata.reply_to_message_id]
            self.posted[node_id].reply = reply

    def _is_complete(self, reply: Message) -> bool:
        return reply.has_error() or self._body(reply.metadata.message_id) is not None

    def _body(self, object_id: str) -> bytes | None:
        """The bytes that an object carries; None if it is incomplete or not one of ours."""
        content = self.state.get_object(self.run_id, object_id)
        if not content:
            return None
        try:
            return messages.body_of(content)
        except Malformed:
            return b""

    def withdraw(self, node_id: int) -> None:
        """Forget the message to a node, and its reply."""
        with self.lock:
            posted = self.posted.pop(node_id, None)
            if posted is None:
                return
            self.state.delete_messages({posted.id})
            self.state.object_store.delete(posted.id)
            if posted.reply is not None:
                self.state.object_store.delete(posted.reply.metadata.message_id)
            if not self.posted:
                self._delete_leftovers()

    def _delete_leftovers(self) -> None:
        """Delete what incomplete and late replies left behind.

        Flower starts a session for every push. It ends only when all content has arrived, which it
        does not if the message was withdrawn, or the node was killed. As long as no message is on
        its way, no reply is either, so that all sessions and objects are such leftovers.
        """
        self.state.delete_sessions_in_run(self.run_id)
        self.state.object_store.delete_objects_in_run(self.run_id)
