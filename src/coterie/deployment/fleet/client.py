"""A node's calls to a server: Flower's Fleet API over one HTTP connection."""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple

from coterie.deployment.address import Address
from coterie.deployment.fleet import messages
from coterie.deployment.fleet.keys import NodeKey
from coterie.errors import ConfigError, RunError

MOST_BYTES = 1 << 30
"""Largest reply that a node reads."""
HEARTBEAT_SECONDS = 30.0
"""A node counts as connected for twice this long after a heartbeat."""
CALL_SECONDS = 60.0
"""Time limit of a call; a server holds a pull of messages for less."""
LEAST_OFFSET = 2.0
"""Seconds by which clocks must differ before a node corrects its own: HTTP dates have seconds."""
ACTION = "train"
"""Flower's type of all messages; what follows the dot is the kind of ours."""
SPEAKS_PLAINTEXT = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""OpenSSL's reasons where the other side answers without TLS."""
FAILED = 1
"""The code of a reply without content: the node could not answer."""


class Unreachable(Exception):
    """The server does not answer, or not now. A later try may succeed."""


class Unknown(Exception):
    """The server does not know this node any more, as after a restart."""


class KeyRejected(RunError):
    """The server refuses this node's key."""


class HttpAnswer(NamedTuple):
    status: int
    data: bytes
    date: str | None

    @property
    def reason(self) -> str:
        """What the server says about a failure, for a log."""
        try:
            text = str(json.loads(self.data)["message"])[:200]
        except (ValueError, KeyError, TypeError):
            return ""
        return f": {text}"

    @property
    def clock_offset(self) -> float | None:
        """Seconds by which the server's clock is ahead; None if the server does not tell."""
        try:
            return parsedate_to_datetime(str(self.date)).timestamp() - time.time()
        except ValueError:
            return None


class Incoming(NamedTuple):
    """A message from the server."""

    kind: str
    body: bytes
    metadata: Any


@dataclass(slots=True)
class FleetClient:
    """One connection to a server. It opens with the first call, and again after a failure."""

    address: Address
    key: NodeKey
    registered: bool
    """Whether the server's operator registers keys; otherwise a node registers its own."""
    trust: ssl.SSLContext | None
    connection: http.client.HTTPConnection
    node_id: int = 0
    clock_offset: float = 0.0
    """Seconds by which the server's clock is ahead of this machine's."""

    @classmethod
    def to(cls, address: Address, key: Path | None, ca: Path | None) -> FleetClient:
        trust = None if ca is None else trusting(ca)
        node_key = NodeKey.new() if key is None else NodeKey.read(key)
        connection = connect(address, trust)
        return cls(address, node_key, key is not None, trust, connection)

    def another(self) -> FleetClient:
        """One more connection of the same node, for another thread."""
        connection = connect(self.address, self.trust)
        return FleetClient(
            self.address,
            self.key,
            self.registered,
            self.trust,
            connection,
            self.node_id,
            self.clock_offset,
        )

    def close(self) -> None:
        self.connection.close()

    def activate(self) -> None:
        """Tell the server that this node is there."""
        if not self.registered and not self.node_id:
            asked = messages.make("RegisterNodeFleetRequest", public_key=self.key.public)
            # It may be registered already, if only the answer was lost.
            with suppress(Unknown):
                self._call(messages.REGISTER, asked, "RegisterNodeFleetResponse")
        request = messages.make(
            "ActivateNodeRequest",
            public_key=self.key.public,
            heartbeat_interval=HEARTBEAT_SECONDS,
        )
        self.node_id = self._call(messages.ACTIVATE, request, "ActivateNodeResponse").node_id

    def deactivate(self) -> None:
        """Tell the server that this node leaves, also if a call was interrupted."""
        self.close()
        request = messages.make("DeactivateNodeRequest", node_id=self.node_id)
        self._call(messages.DEACTIVATE, request, "DeactivateNodeResponse")

    def send_heartbeat(self) -> None:
        request = messages.make(
            "SendNodeHeartbeatRequest", node=self._node(), heartbeat_interval=HEARTBEAT_SECONDS
        )
        if not self._call(messages.HEARTBEAT, request, "SendNodeHeartbeatResponse").success:
            raise Unknown

    def pull(self) -> Incoming | None:
        """The next message, if there is one. The server may hold the call until there is."""
        request = messages.make("PullMessagesRequest", node=self._node())
        found = self._call(messages.PULL_MESSAGES, request, "PullMessagesResponse").messages_list
        if not found:
            return None
        metadata = found[0].metadata
        asked = messages.make(
            "PullObjectRequest",
            node=self._node(),
            run_id=metadata.run_id,
            object_id=metadata.message_id,
        )
        carried = self._call(messages.PULL_OBJECT, asked, "PullObjectResponse")
        if not carried.object_available:
            raise Unreachable("the content of a message is missing")
        kind = metadata.message_type.partition(".")[2]
        return Incoming(kind, messages.body_of(carried.object_content), metadata)

    def push(self, received: Incoming, body: bytes | None) -> bool:
        """Reply to a message; no body says that this node could not answer.

        Returns whether the server took the reply. It does not if it has withdrawn the message.
        """
        failed = body is None
        reply_to = hashlib.sha256(received.metadata.message_id.encode()).digest()
        object_id, content = messages.as_object(reply_to, body or b"")
        reply = messages.make(
            "Message",
            metadata=_reply_metadata(received.metadata, self.node_id, object_id),
            content=None if failed else messages.make("RecordDict"),
            error=messages.make("Error", code=FAILED) if failed else None,
        )
        request = messages.make(
            "PushMessagesRequest",
            node=self._node(),
            messages_list=[reply],
            message_object_trees=[messages.make("ObjectTree", object_id=object_id)],
        )
        answer = self._call(messages.PUSH_MESSAGES, request, "PushMessagesResponse")
        if object_id not in answer.objects_to_push:
            return False
        carried = messages.make(
            "PushObjectRequest",
            node=self._node(),
            run_id=received.metadata.run_id,
            object_id=object_id,
            object_content=content,
            session_id=answer.session_id,
        )
        stored: bool = self._call(messages.PUSH_OBJECT, carried, "PushObjectResponse").stored
        return stored

    def _node(self) -> Any:
        return messages.make("Node", node_id=self.node_id)

    def _call(self, name: str, request: Any, reply: str) -> Any:
        """One call. If the clocks differ too much, it is repeated with the server's time."""
        body = request.SerializeToString()
        answer = self._post(name, body)
        if answer.status == http.client.UNAUTHORIZED and self._adopt_clock(answer):
            answer = self._post(name, body)
        if answer.status == http.client.OK:
            return messages.parse(reply, answer.data)
        if answer.status < http.client.INTERNAL_SERVER_ERROR:
            if name == messages.ACTIVATE:
                raise KeyRejected(f"{self.address} does not accept this node's key{answer.reason}")
            raise Unknown(f"{self.address} refused {name}{answer.reason}")
        raise Unreachable(f"{self.address} failed at {name} (status {answer.status})")

    def _post(self, name: str, body: bytes) -> HttpAnswer:
        headers = {"content-type": messages.MEDIA_TYPE, **self.key.headers(self.clock_offset)}
        try:
            self.connection.request("POST", messages.PREFIX + name, body, headers)
            reply = self.connection.getresponse()
            return HttpAnswer(reply.status, reply.read(MOST_BYTES), reply.getheader("date"))
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise _untrusted(self.address, error.verify_message) from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if isinstance(error, ssl.SSLError) and error.reason in SPEAKS_PLAINTEXT:
                raise ConfigError(
                    f"{self.address} does not use TLS; expected a server with certificates. "
                    "Check the address. For a trial on loopback, replace --key and --invitation by "
                    "--insecure."
                ) from None
            if self.trust is None and isinstance(error, http.client.RemoteDisconnected):
                raise Unreachable(
                    "it closed the connection; if it uses TLS, give --key and --invitation "
                    "instead of --insecure"
                ) from None
            raise Unreachable(str(error) or type(error).__name__) from None

    def _adopt_clock(self, answer: HttpAnswer) -> bool:
        """Take the server's clock; returns whether it differs from the one used so far."""
        offset = answer.clock_offset
        if offset is None or abs(offset - self.clock_offset) < LEAST_OFFSET:
            return False
        self.clock_offset = offset
        return True


def trusting(ca: Path) -> ssl.SSLContext:
    """TLS that trusts the servers of one authority."""
    try:
        return ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{ca} is not a certificate ({error}); expected ca.pem of the federation. "
            "Check the path."
        ) from None


def connect(address: Address, trust: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """A connection that opens with its first request."""
    if trust is None:
        return http.client.HTTPConnection(address.host, address.port, timeout=CALL_SECONDS)
    return http.client.HTTPSConnection(
        address.host, address.port, timeout=CALL_SECONDS, context=trust
    )


def _untrusted(address: Address, why: str) -> ConfigError:
    return ConfigError(
        f"{address} is not trusted by this node's ca.pem ({why}); expected a server of the same "
        "federation. Check the address, and compare ca.pem with the server's operator."
    )


def _reply_metadata(received: Any, node_id: int, object_id: str) -> Any:
    """The reply expires with the message, by the server's clock alone."""
    return messages.make(
        "Metadata",
        run_id=received.run_id,
        message_id=object_id,
        src_node_id=node_id,
        dst_node_id=received.src_node_id,
        reply_to_message_id=received.message_id,
        group_id=received.group_id,
        ttl=received.ttl,
        message_type=received.message_type,
        created_at=received.created_at,
    )
