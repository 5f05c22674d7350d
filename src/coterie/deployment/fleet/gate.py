"""What of a server is reachable: a node's calls, of bounded size, number and duration.

From path and headers the gate decides whether a request is a call of a node with a registered key,
before it reads a body. Then Flower's own functions answer it. A pull of messages is held until
there is one, so that nodes need not ask again and again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from coterie.core.http_body import (
    MOST_DIGITS,
    BodyTooLarge,
    ConnectionBroke,
    check_length,
    read_body,
)
from coterie.deployment.fleet.keys import fingerprint_of_public, is_signed
from coterie.deployment.fleet.link import Link
from coterie.deployment.fleet.messages import (
    ACTIVATE,
    CALLS,
    DEACTIVATE,
    HEARTBEAT,
    MEDIA_TYPE,
    PREFIX,
    PUBLIC_KEY_HEADER,
    PULL_MESSAGES,
    PULL_OBJECT,
    PUSH_MESSAGES,
    PUSH_OBJECT,
    REGISTER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
)
from coterie.deployment.traffic import refusal_of

# isort: split
# Flower's modules come after ours, which check its version.
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2
from flwr.supercore.error import FlowerError
from flwr.superlink.servicer.fleet import fleet_handlers
from google.protobuf.message import DecodeError

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]

REQUESTS: dict[str, Any] = {
    REGISTER: fleet_pb2.RegisterNodeFleetRequest,
    ACTIVATE: fleet_pb2.ActivateNodeRequest,
    DEACTIVATE: fleet_pb2.DeactivateNodeRequest,
    HEARTBEAT: heartbeat_pb2.SendNodeHeartbeatRequest,
    PULL_MESSAGES: fleet_pb2.PullMessagesRequest,
    PULL_OBJECT: message_pb2.PullObjectRequest,
    PUSH_MESSAGES: fleet_pb2.PushMessagesRequest,
    PUSH_OBJECT: message_pb2.PushObjectRequest,
}
SMALL = 1 << 12
"""Largest body of a call that carries no reply."""
REPLY_HEAD = 1 << 16
"""Largest body of the call that announces a reply."""
BODY_SECONDS = 60.0
"""Time in which a body must arrive."""
HOLD_SECONDS = 20.0
"""How long a pull of messages is held."""
OTHER_NODE = "a call for another node"
EARLIER_SERVER = "a node of an earlier server"
"""Why a node is refused that does not know yet that the server was restarted. It is not counted."""
CLOCK_SECONDS = 300.0
"""How far a node's clock may be off. A node that is told so corrects it."""


class Refused(Exception):
    """A request that goes no further, with its status and the reason for the server's status."""

    def __init__(self, status: int, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.detail = detail
        """The value, the rule and the remedy, where the reason does not say them."""


class Call(NamedTuple):
    """A call of a node whose signature is valid."""

    name: str
    key: bytes


@dataclass(slots=True)
class Gate:
    """An ASGI app: the Fleet API over the state of a link."""

    link: Link
    knows: Callable[[bytes], bool]
    """Whether a public key is registered."""
    keyed: bool
    """Whether the server's operator registers keys; otherwise nodes register their own."""
    refused: Counter[str] = field(default_factory=Counter)
    last_refused: dict[str, str] = field(default_factory=dict)
    """Reason -> whose request was refused last, and when."""
    waiting: dict[int, asyncio.Event] = field(default_factory=dict)
    """Node id -> what ends its held pull."""
    loop: asyncio.AbstractEventLoop | None = None
    closed: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            call = self._admit(scope)
            body = await self._read(receive, self._limit(call))
            reply = await self._answer(call, body)
        except TimeoutError:
            await self._refuse(scope, send, Refused(408, "a body that arrived too slowly"))
        except ConnectionBroke:
            await self._refuse(scope, send, Refused(400, "a connection that broke"))
        except Refused as refused:
            await self._refuse(scope, send, refused)
        except FlowerError as error:
            text = json.dumps({"code": int(error.code), "message": str(error.message)}).encode()
            await respond(send, 409, text, "application/json")
        else:
            await respond(send, 200, reply, MEDIA_TYPE)

    async def _read(self, receive: Receive, limit: int) -> bytes:
        try:
            return await asyncio.wait_for(read_body(receive, limit), BODY_SECONDS)
        except BodyTooLarge:
            raise too_large("more", limit) from None

    # Before the body is read

    def _admit(self, scope: Scope) -> Call:
        """The call of a request; Refused if it must not be read."""
        path = str(scope["path"])
        name = path.removeprefix(PREFIX)
        if scope["method"] != "POST" or path == name or name not in CALLS:
            raise Refused(404, "not a node's call")
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        try:
            key = base64.b64decode(headers.get(PUBLIC_KEY_HEADER, ""), validate=True)
            signature = base64.b64decode(headers.get(SIGNATURE_HEADER, ""), validate=True)
        except (binascii.Error, ValueError):
            raise Refused(401, "malformed authentication") from None
        if not self.knows(key):
            raise Refused(401, "unknown key")
        call = Call(name, key)
        announced = headers.get("content-length")
        try:
            check_length(announced, self._limit(call))
        except BodyTooLarge:
            raise too_large(str(announced)[:MOST_DIGITS], self._limit(call)) from None
        signed_at = headers.get(TIMESTAMP_HEADER, "")
        if not is_recent(signed_at):
            raise Refused(401, "a clock that is wrong")
        if not is_signed(key, signed_at, signature):
            raise Refused(401, "wrong signature")
        return call

    def _limit(self, call: Call) -> int:
        """The largest body: that of the reply which is due, if one is."""
        if call.name == PUSH_OBJECT:
            return max(self.link.due(call.key), SMALL)
        return REPLY_HEAD if call.name == PUSH_MESSAGES else SMALL

    async def _refuse(self, scope: Scope, send: Send, refused: Refused) -> None:
        if refused.reason != EARLIER_SERVER:
            self.refused[refused.reason] += 1
            self.last_refused[refused.reason] = refusal_of(source_of(scope))
            if refused.detail:
                self.last_refused[refused.reason] += f": {refused.detail}"
        # The rest of the body is not read, so that the connection cannot be used again.
        await respond(send, refused.status, b"", "text/plain", close=True)

    # After it is read

    async def _answer(self, call: Call, body: bytes) -> bytes:
        try:
            request = REQUESTS[call.name].FromString(body)
        except DecodeError:
            raise Refused(400, "a body that is no message") from None
        self._check_node(call, request)
        if call.name == PULL_MESSAGES and not await self._hold(request.node.node_id):
            return b""
        reply = self._handle(call.name, request)
        return bytes(reply.SerializeToString())

    def _check_node(self, call: Call, request: Any) -> None:
        """Refuse a request in the name of another node."""
        claimed = 0
        if call.name in (REGISTER, ACTIVATE):
            if request.public_key != call.key:
                raise Refused(401, OTHER_NODE)
            is_own = True
        else:
            claimed = request.node_id if call.name == DEACTIVATE else request.node.node_id
            is_own = self.link.state.get_node_id_by_public_key(call.key) == claimed
            if call.name == PUSH_MESSAGES:
                # Flower does not compare these two.
                senders = [reply.metadata.src_node_id for reply in request.messages_list]
                is_own = is_own and senders == [claimed]
        if not is_own:
            raise Refused(401, OTHER_NODE if self.link.knows(claimed) else EARLIER_SERVER)

    def _handle(self, name: str, request: Any) -> Any:
        """Flower's answer. All state is in memory, so that it takes microseconds."""
        link = self.link
        state = link.state
        if name == REGISTER:
            return fleet_handlers.register_node(request, state, self.keyed)
        if name == ACTIVATE:
            link.received_activation(request.public_key)
            return fleet_handlers.activate_node(request, state)
        if name == DEACTIVATE:
            return fleet_handlers.deactivate_node(request, state)
        if name == HEARTBEAT:
            return fleet_handlers.send_node_heartbeat(request, state)
        link.received_call(request.node.node_id)
        if name == PULL_MESSAGES:
            return fleet_handlers.pull_messages(request, state, state.object_store)
        if name == PULL_OBJECT:
            return fleet_handlers.pull_object(request, state)
        push = fleet_handlers.push_messages
        if name == PUSH_OBJECT:
            push = fleet_handlers.push_object
        answer = push(request, state)
        link.received_push(request.node.node_id)
        return answer

    # Held pulls

    async def _hold(self, node_id: int) -> bool:
        """Wait until there is a message; returns whether this call may have it.

        A node whose connection broke pulls again. A message must not go to the earlier call.
        """
        self._wake(node_id)
        mine = asyncio.Event()
        self.waiting[node_id] = mine
        self.link.received_call(node_id)
        self.link.repeat_if_lost(node_id)
        if not self.closed and not self.link.awaits_pull(node_id):
            with suppress(TimeoutError):
                await asyncio.wait_for(mine.wait(), HOLD_SECONDS)
        if self.waiting.get(node_id) is not mine:
            return False
        del self.waiting[node_id]
        return not self.closed

    def ring(self, node_id: int) -> None:
        """End the held pull of a node, from any thread."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._wake, node_id)

    def _wake(self, node_id: int) -> None:
        if node_id in self.waiting:
            self.waiting[node_id].set()

    def close(self) -> None:
        """End all held pulls, from any thread: the server stops."""
        self.closed = True
        for node_id in list(self.waiting):
            self.ring(node_id)


def too_large(announced: str, limit: int) -> Refused:
    """Why a body is refused for its size, which follows from the users that a node hosts."""
    return Refused(
        413,
        "a body that is too large",
        f"it sends {announced} bytes; expected at most {limit:,}, from what is due of the node "
        "(docs/policy.md). Update the node, or revoke its key",
    )


def source_of(scope: Scope) -> str:
    """Who sent a request: its address, and the fingerprint of its key if it has a valid one."""
    host = (scope.get("client") or ["an unknown address"])[0]
    header = dict(scope["headers"]).get(PUBLIC_KEY_HEADER.encode("ascii"), b"")
    try:
        fingerprint = fingerprint_of_public(base64.b64decode(header, validate=True))
    except (binascii.Error, ValueError):
        return f"{host} without a key"
    return f"{host} with key {fingerprint}"


def is_recent(timestamp: str) -> bool:
    try:
        signed_at = datetime.fromisoformat(timestamp)
        return abs((datetime.now(UTC) - signed_at).total_seconds()) < CLOCK_SECONDS
    except (ValueError, TypeError):
        return False


async def respond(send: Send, status: int, body: bytes, kind: str, close: bool = False) -> None:
    headers = [
        (b"content-type", kind.encode("ascii")),
        (b"content-length", str(len(body)).encode("ascii")),
    ]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
