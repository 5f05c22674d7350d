"""A node's life: connect, pull a message, answer it, push the reply, again and again.

One process serves a node for as long as it takes part. It never receives a program. Everything that
must survive a crash is in the node's store before a reply leaves.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from coterie.core.heap import FreeMemory
from coterie.core.progress import SILENT, Progress
from coterie.deployment.fleet.client import (
    HEARTBEAT_SECONDS,
    FleetClient,
    Incoming,
    KeyRejected,
    Unknown,
    Unreachable,
)
from coterie.errors import CoterieError, StoreError
from coterie.federated.wire import Malformed

Answer = Callable[[str, bytes], bytes]
"""The reply of a node to a message of a kind."""
FIRST_PAUSE = 0.05
"""Seconds before the second try. Each further pause is twice as long, up to LONGEST_PAUSE."""
LONGEST_PAUSE = 5.0
QUICK = 0.5
"""A pull that returns nothing within this time was not held by the server."""
LONGEST_KIND = 20
"""Letters of a message's kind that are logged: a server may send anything."""
REMARK_AFTER = 3.0
"""Seconds without a server before the node says so."""


@dataclass(slots=True)
class Pause:
    """Growing pauses between tries, a little random so that nodes do not try all at once."""

    seconds: float = FIRST_PAUSE

    def take(self, stop: threading.Event) -> None:
        stop.wait(self.seconds * (0.8 + 0.4 * os.urandom(1)[0] / 255))
        self.seconds = min(2 * self.seconds, LONGEST_PAUSE)

    def reset(self) -> None:
        self.seconds = FIRST_PAUSE


@dataclass(slots=True)
class NodeLoop:
    client: FleetClient
    answer: Answer
    progress: Progress = SILENT
    """Shows lines to the operator of the node."""
    users_version: Callable[[], int] = lambda: 0
    """A number that changes when users are added or erased. Then the node connects anew."""
    memory: FreeMemory = field(default_factory=FreeMemory)
    stop: threading.Event = field(default_factory=threading.Event)
    last: tuple[bytes, bytes] = (b"", b"")
    """The fingerprint of the last message, and the reply to it."""
    idle_seconds: float = math.inf
    """How long a node waits for the next message before it counts as idle."""
    answered: float = 0.0
    """When the last message was answered."""
    activated: bool = False
    is_announced: bool = False
    """Whether the operator knows that the node is connected."""
    last_warning: str = ""
    connected_version: int = 0
    """The version of the users with which the node connected."""
    reached: float = field(default_factory=time.monotonic)
    """When the server last answered."""
    remarked: bool = False
    """Whether the operator knows that the server does not answer."""
    last_kind: str = ""
    """The kind of the last message of a federation. Its server may stop after it."""
    is_over: bool = False
    """Whether the newest message was of that kind, and has a reply."""

    def run(self) -> None:
        """Take part until stopped, or idle.

        KeyRejected if the server refuses this node's key, StoreError if the node's store fails.
        """
        pause = Pause()
        while not self.stop.is_set() and not self.is_idle():
            try:
                if not self.activated or self.users_version() != self.connected_version:
                    self.activate()
                if self.serve_one():
                    pause.reset()
                    self.memory.return_if_due()
                else:
                    pause.take(self.stop)
            except Unknown:
                # The server was restarted, or counted this node as gone.
                self.client.node_id = 0
                self.activated = False
                pause.take(self.stop)
            except (Unreachable, Malformed) as error:
                self.remark(error)
                pause.take(self.stop)

    def is_idle(self) -> bool:
        """Whether there were messages, and then none for as long as `idle_seconds`."""
        return self.answered > 0 and time.monotonic() > self.answered + self.idle_seconds

    def activate(self) -> None:
        """Connect. The server then asks for the users of this node."""
        self.connected_version = self.users_version()
        self.client.activate()
        self.activated = True
        if not self.is_announced:
            self.remarked = False
            self.progress.log(f"connected to {self.client.address}; answers when the server asks")
            self.is_announced = True
        offset = self.client.clock_offset
        if offset:
            self.progress.warn(
                f"this machine's clock is {abs(offset):.0f} seconds "
                f"{'behind' if offset > 0 else 'ahead of'} the server's; going on with the "
                "server's time. Set the clock."
            )

    def serve_one(self) -> bool:
        """Answer the next message; returns False if there was none and the server did not wait."""
        began = time.monotonic()
        received = self.client.pull()
        if self.remarked:
            self.progress.log(f"{self.client.address} answers again")
        self.remarked = False
        self.reached = time.monotonic()
        if received is None:
            return self.reached > began + QUICK
        self.handle(received)
        return True

    def remark(self, error: Exception) -> None:
        """Say once that the server does not answer, unless it is a matter of seconds.

        After the end of a federation nothing else is to be expected.
        """
        if self.is_over or self.remarked:
            return
        if time.monotonic() > self.reached + REMARK_AFTER:
            self.progress.warn(f"{self.client.address} does not answer ({error}); trying again")
            self.remarked = True

    def handle(self, received: Incoming) -> None:
        """Answer one message, and keep the connection alive meanwhile."""
        began = time.monotonic()
        fingerprint = hashlib.sha256(received.kind.encode() + b"\x00" + received.body).digest()
        reply: bytes | None
        if fingerprint == self.last[0]:
            # The message came again: the reply was lost.
            reply = self.last[1]
        else:
            try:
                with heartbeats(self.client):
                    reply = self.try_to_answer(received)
            except StoreError:
                # The server need not wait until its deadline.
                with suppress(Unreachable, Unknown, KeyRejected, Malformed):
                    self.client.push(received, None)
                raise
            if reply is not None:
                self.last = (fingerprint, reply)
        # Before the push, whose own answer may be lost where the server stops at once.
        self.is_over = received.kind == self.last_kind and reply is not None
        self.client.push(received, reply)
        self.answered = time.monotonic()
        sent = "no reply" if reply is None else f"{len(reply):,} bytes sent"
        self.progress.debug(
            f"message {received.kind[:LONGEST_KIND]!r}: {len(received.body):,} bytes received, "
            f"{sent}, {1000 * (self.answered - began):.0f} ms"
        )

    def try_to_answer(self, received: Incoming) -> bytes | None:
        """The reply; None if the message cannot be answered.

        The server learns only that an error occurred. Its text, which may name users, is shown to
        the operator of the node. A store that failed will fail again: then the node stops.
        """
        try:
            return self.answer(received.kind, received.body)
        except StoreError:
            raise
        except CoterieError as error:
            self._warn(str(error))
        except Exception as error:  # a message may be anything, and the node must go on
            self._warn(f"a message could not be answered: {error!r}")
        return None

    def _warn(self, text: str) -> None:
        """Show a warning, unless the last one was the same: a server tries again and again."""
        if text != self.last_warning:
            self.progress.warn(text)
        self.last_warning = text


@contextmanager
def heartbeats(client: FleetClient) -> Iterator[None]:
    """Send heartbeats while the body runs, if it takes long."""
    done = threading.Event()

    def beat() -> None:
        if done.wait(HEARTBEAT_SECONDS / 2):
            return
        other = client.another()
        while True:
            try:
                other.send_heartbeat()
            except (Unreachable, Unknown, KeyRejected, Malformed):
                other.close()
            if done.wait(HEARTBEAT_SECONDS / 2):
                other.close()
                return

    threading.Thread(target=beat, name="heartbeats", daemon=True).start()
    try:
        yield
    finally:
        done.set()
