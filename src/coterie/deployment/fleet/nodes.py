"""The nodes of a server, by name, and messages to them with a deadline."""

from __future__ import annotations

import binascii
import os
import time
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coterie.deployment.fleet.keys import fingerprint_of_public, is_signed, read_public_keys
from coterie.deployment.fleet.link import Link

LOOK_SECONDS = 1.0
"""How often the key folder is looked at for changes."""
READ_SECONDS = 60.0
"""How often its files are read in any case: keys expire."""


@dataclass(slots=True)
class KeyRegistry:
    """The keys that may join: those in the key folder, which is read again and again."""

    link: Link
    folder: Path | None
    """The folder of public keys; None if nodes need none."""
    node_ids: dict[str, int] = field(default_factory=dict)
    """Name -> the id of the node with that key."""
    keys: dict[str, bytes] = field(default_factory=dict)
    looked: float = 0.0
    was_read: float = 0.0
    stamp: frozenset[tuple[str, int]] = frozenset()
    """The names and times of the files that were read."""

    def refresh(self) -> None:
        """Register new keys, and unregister those that were removed or replaced."""
        now = time.monotonic()
        if self.folder is None or now < self.looked + LOOK_SECONDS:
            return
        self.looked = now
        stamp = stamp_of(self.folder)
        if stamp and stamp == self.stamp and now < self.was_read + READ_SECONDS:
            return
        self.stamp = stamp
        self.was_read = now
        found = read_public_keys(self.folder)
        for name in [name for name, key in self.keys.items() if found.get(name) != key]:
            self.link.unregister(self.node_ids.pop(name))
        for name, key in found.items():
            if name not in self.node_ids:
                self.node_ids[name] = self.link.register(key)
        self.keys = found

    def knows(self, key: bytes) -> bool:
        """Whether a node with this key may call."""
        return self.folder is None or key in self.keys.values()

    def names(self) -> dict[int, str]:
        """Node id -> name, of the connected nodes. Without keys the id is the name."""
        online = self.link.online()
        if self.folder is None:
            return {node_id: str(node_id) for node_id in online}
        return {node_id: name for name, node_id in self.node_ids.items() if node_id in online}


def stamp_of(folder: Path) -> frozenset[tuple[str, int]]:
    """The names and times of the files of a folder; nothing if they change just now."""
    try:
        return frozenset((file.name, file.stat().st_mtime_ns) for file in os.scandir(folder))
    except OSError:
        return frozenset()


@dataclass(frozen=True, slots=True)
class FleetNodes:
    """The nodes that are connected to a link."""

    link: Link
    registry: KeyRegistry
    deadline: float
    """Seconds after which a reply does not count."""
    refused: Mapping[str, int] = field(default_factory=dict)
    last_refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def keyed(self) -> bool:
        return self.registry.folder is not None

    def fingerprint(self, name: str) -> str:
        key = self.registry.keys.get(name)
        return "" if key is None else fingerprint_of_public(key)

    def limit_replies(self, kind: str, most_bytes: Mapping[str, int]) -> None:
        ids = {name: node_id for node_id, name in self.registry.names().items()}
        with self.link.lock:
            for name, most in most_bytes.items():
                if name in ids:
                    self.link.most_bytes[ids[name], kind] = most

    def signed(self, name: str, text: str, signature: str) -> bool:
        key = self.registry.keys.get(name)
        try:
            return key is not None and is_signed(key, text, b64decode(signature, validate=True))
        except (binascii.Error, ValueError):
            return False

    def joined(self) -> dict[str, int]:
        self.link.keep_alive()
        self.registry.refresh()
        names = self.registry.names()
        return {name: self.link.activations.get(node_id, 0) for node_id, name in names.items()}

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        """Send one message to each node; nodes without a reply in time are left out."""
        seconds = self.deadline if seconds is None else min(seconds, self.deadline)
        ids = {name: node_id for node_id, name in self.registry.names().items()}
        waiting = {
            ids[name]: name
            for name, data in out.items()
            if name in ids and self.link.post(ids[name], kind, data, seconds)
        }
        replies: dict[str, bytes] = {}
        until = time.monotonic() + seconds
        while waiting and time.monotonic() < until:
            for node_id, body in self._wait_for_replies(until).items():
                name = waiting.pop(node_id, None)
                if name is not None and body is not None:
                    replies[name] = body
            # A node that is refused from now on has no message any more.
            waiting = {node_id: name for node_id, name in waiting.items() if self.link.has(node_id)}
        for node_id in waiting:
            self.link.withdraw(node_id)
        return replies

    def _wait_for_replies(self, until: float) -> dict[int, bytes | None]:
        """The next replies, or none after a second: keys and connections change, too."""
        with self.link.changed:
            came = bool(self.link.pushed)
            if not came:
                came = self.link.changed.wait(min(1.0, max(0.0, until - time.monotonic())))
            found = self.link.take_replies(everywhere=not came)
        self.link.keep_alive()
        self.registry.refresh()
        return found
