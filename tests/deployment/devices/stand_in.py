"""A stand-in for a browser: an FPL client of one user, over the gateway's HTTP protocol.

It knows the protocol from docs/device.md, not from the gateway's code. Its arithmetic is the
product's kernel; what it keeps between rounds is its own, as a page keeps it.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from coterie.algorithms import fpl
from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.federated.federation import NodeData, World
from coterie.federated.wire import decode, encode
from coterie.types import Message

RAW = serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint


def unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Ecdsa:
    """A key as WebCrypto makes it: P-256, signatures as r and s of 32 bytes each."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.public = self.private.public_key().public_bytes(*RAW)

    def sign(self, text: bytes) -> bytes:
        r, s = decode_dss_signature(self.private.sign(text, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


class Ed25519:
    def __init__(self) -> None:
        self.private = ed25519.Ed25519PrivateKey.generate()
        self.public = self.private.public_key().public_bytes_raw()

    def sign(self, text: bytes) -> bytes:
        return self.private.sign(text)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


@dataclass
class Browser:
    """The calls of a page, one at a time."""

    url: str
    trust: ssl.SSLContext | None = None
    key: Ecdsa | Ed25519 = field(default_factory=Ecdsa)
    device: str = ""
    seconds: float = 40.0

    def call(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if self.trust is None:
            connection = http.client.HTTPConnection(
                parts.hostname, parts.port, timeout=self.seconds
            )
        else:
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=self.seconds, context=self.trust
            )
        try:
            connection.request(method, path, body or None, headers or {})
            reply = connection.getresponse()
            found = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(reply.status, found, reply.read())
        finally:
            connection.close()

    def signed_headers(
        self, method: str, path: str, body: bytes = b"", at: int | None = None
    ) -> dict[str, str]:
        now = str(time.time_ns() // 1_000_000 if at is None else at)
        text = "\n".join([method, path, now, hashlib.sha256(body).hexdigest()]).encode()
        return {
            "Coterie-Device": self.device,
            "Coterie-Time": now,
            "Coterie-Signature": unpadded(self.key.sign(text)),
        }

    def signed(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        # Two requests of one millisecond would be one and a repeat.
        time.sleep(0.002)
        return self.call(
            method, path, body, self.signed_headers(method, path, body) | (headers or {})
        )

    def enrol(self, code: str, name: str = "a phone") -> Answer:
        given = {"code": code, "public_key": unpadded(self.key.public), "name": name}
        answer = self.call("POST", "/device/enrol", json.dumps(given).encode())
        if answer.status == 200:
            self.device = json.loads(answer.body)["device"]
        return answer

    def message(self, wait: int = 20) -> Answer:
        return self.signed("GET", f"/device/message?wait={wait}")

    def update(self, to: Answer, body: bytes) -> Answer:
        names = ("coterie-run", "coterie-round", "coterie-attempt")
        return self.signed("POST", "/device/update", body, {n: to.headers[n] for n in names})

    def read(self, path: str) -> Any:
        return json.loads(self.call("GET", path).body)


@dataclass
class Client:
    """A user of pfpl+ behind a browser, with private rows of two generations."""

    browser: Browser
    training: TrainingSet
    """Of this one user."""
    committed: tuple[int, np.ndarray | None] = (-1, None)
    """The tag of the last update that counts, and the user's row after it."""
    pending: tuple[int, np.ndarray] | None = None
    sent: dict[int, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    """Round -> the messages, and the bytes that were sent for each."""
    refused: list[str] = field(default_factory=list)
    receipts: list[dict[str, Any]] = field(default_factory=list)
    model: tuple[int, dict[str, np.ndarray]] | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    hold_round: int = -1
    """A round whose update is sent when `released` is set."""
    held: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Take part until stopped; a gateway that is away is called again."""
        self.terms = self.browser.read("/device/terms")
        while not self.stop.is_set():
            try:
                self.once()
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)

    def once(self) -> None:
        found = self.browser.message(2)
        if found.status == 200:
            body = self.reply_to(found.body)
            if int(found.headers["coterie-round"]) == self.hold_round:
                self.held.set()
                self.released.wait(60)
            answer = self.browser.update(found, body)
            if answer.status == 200:
                self.receipts.append(json.loads(answer.body))
            else:
                self.refused.append(answer.error)
        elif found.status == 204 and found.headers["coterie-state"] == "finished":
            if self.model is None:
                answer = self.browser.signed("GET", "/device/model")
                decoded = decode(answer.body)
                self.model = (int(answer.headers["coterie-round"]), decoded.common)
        elif found.status != 204:
            self.refused.append(found.error)
            time.sleep(0.05)

    def reply_to(self, data: bytes) -> bytes:
        decoded = decode(data)
        for message, body in self.sent.get(decoded.round, []):
            if message == data:
                return body
        (user,) = decoded.arrays["users"].tolist()
        (accepted,) = decoded.arrays["accepted"].tolist()
        world = self.world()
        node = NodeData(
            decoded.arrays["users"], self.training, streams.key(self.terms["seed"], "devices")
        )
        if self.committed[1] is None:
            self.committed = (-1, fpl.init_clients(world, node)["user_rows"])
        if self.pending is not None and self.pending[0] == accepted:
            self.committed = self.pending
        assert self.committed[0] == accepted, (user, self.committed[0], accepted)
        state = {"user_rows": self.committed[1]}
        message = Message(decoded.round, decoded.arrays["users"], decoded.common, {}, 0, state)
        made = fpl.client_update(world, message, node)
        assert isinstance(made, tuple)
        updates, after = made
        self.pending = (1 + 256 * decoded.round, after["user_rows"])
        body = encode(decoded.round, updates.columns())
        self.sent.setdefault(decoded.round, []).append((data, body))
        return body

    def world(self) -> World:
        told = self.terms["settings"]
        settings = fpl.FPL.of(told)
        return World(settings, self.terms["seed"], 1, self.terms["items"], np.ones(1, bool), {})
