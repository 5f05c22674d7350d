"""A small gateway for tests of the device page: its protocol, with one device and no federation.

After every update it applies Eq. 7 to its item table and opens the next round.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from javascript import STATIC

from coterie.algorithms.fpl import FPL, FPLState, add_up, aggregate, init
from coterie.deployment.branch_rounds import tag
from coterie.deployment.devices.app import HEADERS
from coterie.federated.federation import Accepted, World
from coterie.federated.nodes import write_message
from coterie.federated.wire import decode, encode
from coterie.types import Message, Updates

TYPES = {
    ".html": "text/html",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
CODE = "7QF2-M9XK-0D4R-HT3W"
RUN = "run-1"
USER = 5


@dataclass
class FakeGateway:
    titles: list[str]
    settings: FPL
    n_rounds: int
    state: FPLState = field(init=False)
    round: int = 0
    accepted: int = -1
    key: ec.EllipticCurvePublicKey | None = None
    codes: set[str] = field(default_factory=lambda: {CODE})
    received: list[bytes] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    is_revoked: bool = False
    is_open: bool = True
    """Whether rounds go on."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.state = init(self.world)

    @property
    def world(self) -> World[FPL]:
        return World(self.settings, 0, USER + 1, len(self.titles), np.ones(USER + 1, bool), {}, 100)

    def message(self, t: int) -> Message:
        common = {"item_rows": self.state.item_rows, "item_bias": self.state.item_bias}
        own = {"accepted": np.array([self.accepted], np.int64)}
        return Message(t, np.array([USER], np.int32), common, own)

    def terms(self) -> dict[str, object]:
        reg_user, reg_positive, reg_negative = self.settings.regularisation()
        return {
            "name": "Films of the town",
            "run": RUN,
            "algorithm": "pfpl+",
            "seed": 0,
            "items": len(self.titles),
            "rounds": self.n_rounds,
            "round_seconds": 60,
            "messages": "plain",
            "fingerprint": "3f:9a:77:02",
            "settings": {
                **self.settings.model_dump(),
                "reg_user": reg_user,
                "reg_positive": reg_positive,
                "reg_negative": reg_negative,
            },
        }

    def take(self, body: bytes) -> None:
        """An update: Eq. 7, and the next round. One of no users declines."""
        with self.changed:
            self.received.append(body)
            updates = Updates(**decode(body).arrays)
            if len(updates):
                message = self.message(self.round)
                accepted = Accepted(updates.users, updates.samples, updates.user_rows)
                sums = add_up(self.world, message, updates)
                self.state = aggregate(self.world, self.state, sums, accepted, self.round)
                self.accepted = tag(0, self.round, 0)
            self.round += 1
            self.changed.notify_all()

    def wait_for_round(self, seconds: float) -> bool:
        """Whether a round is open, after at most so long."""

        def is_ready() -> bool:
            return self.is_open

        with self.changed:
            return self.changed.wait_for(is_ready, min(seconds, 0.5))


class Calls(BaseHTTPRequestHandler):
    gateway: FakeGateway
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Tests read `requests` instead."""

    def reply(self, status: int, body: bytes = b"", kind: str = "", **more: str) -> None:
        self.send_response(status)
        headers = {
            **{name.decode(): value.decode() for name, value in HEADERS},
            "Content-Length": str(len(body)),
        }
        if kind:
            headers["Content-Type"] = kind
        for name, value in {**headers, **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def json(self, status: int, value: object) -> None:
        self.reply(status, json.dumps(value).encode(), "application/json")

    def do_GET(self) -> None:
        gateway = self.gateway
        gateway.requests.append(f"GET {self.path}")
        name = urlsplit(self.path).path.removeprefix("/device/")
        if name == "terms":
            self.json(200, gateway.terms())
        elif name == "catalogue":
            items = [{"id": f"i{k}", "title": title} for k, title in enumerate(gateway.titles)]
            self.json(200, {"items": items})
        elif name in ("message", "model"):
            if self.is_signed(b""):
                self.to_device(name)
        else:
            self.static(name or "index.html")

    def to_device(self, name: str) -> None:
        gateway = self.gateway
        common = {"item_rows": gateway.state.item_rows, "item_bias": gateway.state.item_bias}
        if name == "model":
            self.reply(200, encode(gateway.round, {}, common), "application/octet-stream")
            return
        if gateway.round >= gateway.n_rounds:
            self.reply(204, **{"Coterie-State": "finished"})
            return
        seconds = float(parse_qs(urlsplit(self.path).query)["wait"][0])
        if not gateway.wait_for_round(seconds):
            self.reply(204, **{"Coterie-State": "training"})
            return
        place = {
            "Coterie-Run": RUN,
            "Coterie-Round": str(gateway.round),
            "Coterie-Attempt": "0",
            "Coterie-State": "training",
        }
        body = write_message(gateway.message(gateway.round))
        self.reply(200, body, "application/octet-stream", **place)

    def do_POST(self) -> None:
        gateway = self.gateway
        gateway.requests.append(f"POST {self.path}")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/device/enrol":
            self.enrol(json.loads(body))
        elif self.is_signed(body):
            place = (self.headers["Coterie-Run"], self.headers["Coterie-Round"])
            if place != (RUN, str(gateway.round)):
                self.json(409, {"error": f"the update is for round {place[1]}, which is closed"})
                return
            gateway.take(body)
            self.json(200, {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()})

    def enrol(self, told: dict[str, str]) -> None:
        gateway = self.gateway
        if told["code"] not in gateway.codes:
            self.json(403, {"error": "the code is not known; expected one that was not used"})
            return
        gateway.codes.discard(told["code"])
        raw = from_base64url(told["public_key"])
        gateway.key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw)
        # A federation that has not begun has no index for its user.
        self.json(200, {"device": "d-1", "user": None})

    def is_signed(self, body: bytes) -> bool:
        gateway = self.gateway
        text = "\n".join(
            (
                self.command,
                self.path,
                self.headers["Coterie-Time"],
                hashlib.sha256(body).hexdigest(),
            )
        )
        signature = from_base64url(self.headers["Coterie-Signature"])
        pair = (int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))
        try:
            assert gateway.key is not None
            gateway.key.verify(
                encode_dss_signature(*pair), text.encode(), ec.ECDSA(hashes.SHA256())
            )
        except InvalidSignature:
            self.json(401, {"error": "the signature is wrong"})
            return False
        if gateway.is_revoked:
            self.json(401, {"error": "device d-1 was revoked. Ask for a new code."})
            return False
        return True

    def static(self, name: str) -> None:
        path = STATIC / name
        if path.parent != STATIC or not path.is_file():
            self.json(404, {"error": "no such file"})
            return
        self.reply(200, path.read_bytes(), TYPES[path.suffix])


def from_base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@contextmanager
def serving(gateway: FakeGateway) -> Iterator[str]:
    """The address of the page."""
    calls = type("CallsOfOneGateway", (Calls,), {"gateway": gateway})
    server = ThreadingHTTPServer(("127.0.0.1", 0), calls)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/device/"
    finally:
        server.shutdown()
        server.server_close()
