"""What of a gateway is reachable: the device page, and eight calls of bounded size and number.

Host, path, device, time and announced length are checked before a body is read; the signature,
which covers the body, before anything is made of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

from coterie.core.http_body import (
    MOST_DIGITS,
    BodyTooLarge,
    ConnectionBroke,
    check_length,
    read_body,
)
from coterie.core.page_files import PageFile
from coterie.core.page_headers import page_headers
from coterie.core.printable import one_line
from coterie.deployment.devices.board import Delivery
from coterie.deployment.devices.clients import PublicTerms
from coterie.deployment.devices.freshness import Freshness
from coterie.deployment.devices.gateway import LONGEST_NAME, Gateway, Place
from coterie.deployment.devices.rates import RateLimit
from coterie.deployment.devices.refusals import DeviceRefused
from coterie.deployment.devices.signatures import (
    KEY_RULE,
    from_base64url,
    is_signed_by,
    read_key,
    signed_text,
)
from coterie.deployment.devices.store import Device
from coterie.errors import StoreError

if TYPE_CHECKING:
    from coterie.deployment.fleet.gate import Receive, Scope, Send

PREFIX = "/device/"
BODY_SECONDS = 20.0
"""Time in which a body must arrive."""
MOST_ENROL_BYTES = 4096
MOST_WAIT = 25.0
"""Longest time for which a call for a message is held; less than a device counts as there."""
WIRE = "application/octet-stream"
JSON = "application/json"
HEADERS = (
    *page_headers(img="data:", worker="", manifest=""),
    (b"cache-control", b"no-store"),
)
"""What every response carries."""
Fields = dict[str, str]
"""Header fields by name, in lower case."""


class DeviceRequest(NamedTuple):
    """A request as it arrived, before its body."""

    method: str
    path: str
    query: str
    fields: Fields
    address: str

    @property
    def target(self) -> str:
        """The path with the query, as it is signed."""
        return f"{self.path}?{self.query}" if self.query else self.path


class DeviceResponse(NamedTuple):
    status: int
    body: bytes = b""
    kind: str = ""
    more: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(slots=True)
class DeviceGate:
    """An ASGI app over a gateway."""

    gateway: Gateway
    public: PublicTerms
    pages: dict[str, PageFile]
    hosts: frozenset[str]
    """Names by which browsers may reach the gateway; others could be those of another site."""
    freshness: Freshness
    devices: RateLimit = field(default_factory=lambda: RateLimit("device", 120, 20))
    addresses: RateLimit = field(default_factory=lambda: RateLimit("address", 240, 20))
    """Requests without a valid signature, by address."""
    enrolments: RateLimit = field(default_factory=lambda: RateLimit("address", 20, 0.5))
    waiting: dict[str, asyncio.Event] = field(default_factory=dict)
    """Device -> what ends its held call."""
    loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.loop = asyncio.get_running_loop()
        request = request_of(scope)
        try:
            response = await self._respond(request, receive)
        except DeviceRefused as refused:
            self._count(request, refused)
            body = json.dumps({"error": str(refused)}).encode()
            # The rest of a body is not read, so that the connection cannot be used again.
            now = (b"coterie-now", str(milliseconds()).encode())
            more = ((b"connection", b"close"), now)
            response = DeviceResponse(refused.status, body, JSON, more)
        except StoreError as error:
            # The server's thread meets the same fault, and stops with it.
            self.gateway.progress.warn(str(error))
            response = DeviceResponse(503, b'{"error": "the gateway cannot write"}', JSON)
        await respond(send, response)

    def _count(self, request: DeviceRequest, refused: DeviceRefused) -> None:
        self.gateway.refused[refused.reason] += 1
        now = datetime.now(UTC).isoformat(timespec="seconds")
        who = one_line(request.fields.get("coterie-device", "no device"))[:40]
        text = f"{request.address} ({who}), {now}: {one_line(refused)[:400]}"
        self.gateway.last_refused[refused.reason] = text

    async def _respond(self, request: DeviceRequest, receive: Receive) -> DeviceResponse:
        self._refuse_host(request)
        calls: dict[tuple[str, str], Callable[..., Awaitable[DeviceResponse]]] = {
            ("GET", "message"): self._message,
            ("POST", "update"): self._update,
            ("GET", "model"): self._model,
        }
        name = request.path.removeprefix(PREFIX)
        if request.path.startswith(PREFIX) and (request.method, name) in calls:
            return await self._signed(request, receive, calls[request.method, name])
        self.addresses.take(request.address, time.monotonic())
        if (request.method, request.path) == ("POST", f"{PREFIX}enrol"):
            return await self._enrol(request, receive)
        return self._public(request)

    def _refuse_host(self, request: DeviceRequest) -> None:
        host = request.fields.get("host", "").lower()
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
        if name.strip("[]") not in self.hosts:
            raise DeviceRefused(
                421,
                "a foreign Host",
                f"the Host is {host[:80]!r}; expected one of {', '.join(sorted(self.hosts))}. Open "
                "the address that coterie device code prints.",
            )

    # Without a signature

    def _public(self, request: DeviceRequest) -> DeviceResponse:
        name = request.path.removeprefix(PREFIX)
        if request.method not in ("GET", "HEAD"):
            raise self._unknown(request)
        if request.path in ("/", PREFIX.rstrip("/")):
            return DeviceResponse(308, more=((b"location", PREFIX.encode()),))
        if name == request.path:
            raise self._unknown(request)
        if name == "terms":
            return DeviceResponse(200, self.public.terms, JSON)
        if name == "catalogue":
            return DeviceResponse(200, self.public.catalogue, JSON)
        if name not in self.pages:
            raise self._unknown(request)
        return DeviceResponse(200, self.pages[name].content, self.pages[name].media_type)

    def _unknown(self, request: DeviceRequest) -> DeviceRefused:
        return DeviceRefused(
            404,
            "an unknown path",
            f"{request.method} {request.path[:80]!r} does not exist; expected a file of the device "
            "page, or a call of docs/device.md. Check the address.",
        )

    async def _enrol(self, request: DeviceRequest, receive: Receive) -> DeviceResponse:
        self.enrolments.take(request.address, time.monotonic())
        body = await read_bounded(request, receive, MOST_ENROL_BYTES)
        code, key, name = parse_enrolment(body)
        device = await asyncio.to_thread(self.gateway.enrol, code, key, name)
        self.gateway.board.received_call(device.id)
        reply = json.dumps({"device": device.id, "user": device.number}).encode()
        return DeviceResponse(200, reply, JSON)

    # With a signature

    async def _signed(
        self,
        request: DeviceRequest,
        receive: Receive,
        call: Callable[[DeviceRequest, Device, bytes], Awaitable[DeviceResponse]],
    ) -> DeviceResponse:
        try:
            device, body = await self._authenticated(request, receive)
        except DeviceRefused:
            self.addresses.take(request.address, time.monotonic())
            raise
        self.devices.take(device.id, time.monotonic())
        self.gateway.board.received_call(device.id)
        return await call(request, device, body)

    async def _authenticated(
        self, request: DeviceRequest, receive: Receive
    ) -> tuple[Device, bytes]:
        """The device that signed a request, and the body."""
        time_text = request.fields.get("coterie-time", "")
        signed_at = self.freshness.refuse_stale(time_text, milliseconds())
        device = await self._known_device(request)
        most = self.gateway.rules.most_bytes if request.method == "POST" else 0
        body = await read_bounded(request, receive, most)
        text = signed_text(request.method, request.target, time_text, body)
        try:
            signature = from_base64url(request.fields.get("coterie-signature", ""))
        except ValueError:
            signature = b""
        if not is_signed_by(device.key, text, signature):
            raise DeviceRefused(
                401,
                "a wrong signature",
                f"the signature of device {device.id} does not match the request; expected one "
                "over method, path with query, Coterie-Time and SHA-256 of the body. Sign the "
                "request with the key that was enrolled.",
            )
        self.freshness.refuse_repeat(device.id, signed_at, hashlib.sha256(text).digest())
        return device, body

    async def _known_device(self, request: DeviceRequest) -> Device:
        name = request.fields.get("coterie-device", "")
        device = await asyncio.to_thread(self.gateway.store.device, name)
        if device is None:
            raise DeviceRefused(
                401,
                "an unknown device",
                f"Coterie-Device is {name[:40]!r}; expected the id of an enrolled device. Enrol "
                "with a one-time code.",
            )
        if device.revoked is not None:
            self.freshness.forget(device.id)
            self.gateway.board.drop(device.id)
            raise DeviceRefused(
                401,
                "a revoked device",
                f"device {device.id} was revoked; expected one that takes part. Ask the "
                "federation's owner for a new code.",
            )
        return device

    async def _message(self, request: DeviceRequest, device: Device, body: bytes) -> DeviceResponse:
        """The server's message to this device's user; the call is held until there is one."""
        wait = wait_of(request)
        board = self.gateway.board
        await asyncio.to_thread(self.gateway.refuse_too_late, device)
        found = await asyncio.to_thread(board.fetch, device.id)
        if found is None and wait and not board.closed:
            await self._hold(device.id, wait)
            found = await asyncio.to_thread(board.fetch, device.id)
        if found is None:
            return DeviceResponse(204, more=self._state())
        return DeviceResponse(200, found.body, WIRE, self._place(found) + self._state())

    async def _update(self, request: DeviceRequest, device: Device, body: bytes) -> DeviceResponse:
        names = ("coterie-run", "coterie-round", "coterie-attempt")
        place = Place(*(request.fields.get(name, "") for name in names))
        receipt = await asyncio.to_thread(self.gateway.receive, device, place, body)
        reply = json.dumps({"bytes": receipt.size, "sha256": receipt.sha256}).encode()
        return DeviceResponse(200, reply, JSON)

    async def _model(self, request: DeviceRequest, device: Device, body: bytes) -> DeviceResponse:
        model = self.gateway.model
        if model is None:
            raise DeviceRefused(
                404,
                "a model that does not exist yet",
                f"the federation {self.gateway.folder.name} has no model yet; expected one after "
                "the first round began. Try again later.",
            )
        if self.gateway.finished:
            self.gateway.board.fetched_model(device.id)
        more = ((b"coterie-round", str(model[0]).encode()),)
        return DeviceResponse(200, model[1], WIRE, more)

    def _place(self, found: Delivery) -> tuple[tuple[bytes, bytes], ...]:
        return (
            (b"coterie-run", self.gateway.terms.run.encode()),
            (b"coterie-round", str(found.round).encode()),
            (b"coterie-attempt", str(found.attempt).encode()),
        )

    def _state(self) -> tuple[tuple[bytes, bytes], ...]:
        """Whether training goes on, and the round of the newest model."""
        state = (b"coterie-state", b"finished" if self.gateway.finished else b"training")
        model = self.gateway.model
        if model is None:
            return (state,)
        return (state, (b"coterie-model", str(model[0]).encode()))

    # Held calls

    async def _hold(self, device: str, seconds: float) -> None:
        """Wait for a message. A device whose connection broke calls again, which ends the earlier
        call."""
        earlier = self.waiting.get(device)
        if earlier is not None:
            earlier.set()
        mine = asyncio.Event()
        self.waiting[device] = mine
        # A message may have come between the look and this line.
        if not self.gateway.board.has_message(device):
            with suppress(TimeoutError):
                await asyncio.wait_for(mine.wait(), seconds)
        if self.waiting.get(device) is mine:
            del self.waiting[device]

    def ring(self) -> None:
        """End all held calls, from any thread: there may be messages."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for event in self.waiting.values():
            event.set()


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


def request_of(scope: Scope) -> DeviceRequest:
    fields = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
    return DeviceRequest(
        scope["method"],
        scope["raw_path"].decode("latin-1"),
        scope["query_string"].decode("latin-1"),
        fields,
        (scope.get("client") or ["an unknown address"])[0],
    )


def wait_of(request: DeviceRequest) -> float:
    """For how long a call may be held: `wait` of the query, in seconds."""
    text = parse_qs(request.query).get("wait", ["0"])[0]
    if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS:
        raise DeviceRefused(
            400,
            "a wait that is no number",
            f"wait is {text[:20]!r}; expected a whole number of seconds. Change it.",
        )
    return min(float(text), MOST_WAIT)


def parse_enrolment(body: bytes) -> tuple[str, bytes, str]:
    """The code, the public key and the name of a device that enrols."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    wanted = ("code", "public_key", "name")
    if not isinstance(given, dict) or not all(isinstance(given.get(k), str) for k in wanted):
        raise DeviceRefused(
            400,
            "a malformed enrolment",
            "the body is not an enrolment; expected a JSON object with the texts code, public_key "
            "and name. Send these.",
        )
    try:
        key = from_base64url(given["public_key"])
        read_key(key)
    except ValueError as error:
        raise DeviceRefused(
            400,
            "a malformed key",
            f"public_key is {given['public_key'][:20]!r} ({error}); {KEY_RULE}. Export the key as "
            "raw.",
        ) from None
    return given["code"], key, one_line(given["name"])[:LONGEST_NAME]


async def read_bounded(request: DeviceRequest, receive: Receive, most: int) -> bytes:
    """The body of a request, of at most so many bytes, in time."""
    announced = request.fields.get("content-length")
    try:
        check_length(announced, most)
        return await asyncio.wait_for(read_body(receive, most), BODY_SECONDS)
    except BodyTooLarge:
        size = "more" if announced is None else announced[:MOST_DIGITS]
        raise DeviceRefused(
            413,
            "a body that is too large",
            f"the body of {request.path} has {size} bytes; expected at most {most:,}. Send less.",
        ) from None
    except ConnectionBroke:
        raise DeviceRefused(
            400, "a connection that broke", "the connection broke. Send the request again."
        ) from None
    except TimeoutError:
        raise DeviceRefused(
            408,
            "a body that arrived too slowly",
            f"the body of {request.path} did not arrive in {BODY_SECONDS:.0f} seconds; expected "
            "all of it. Send the request again.",
        ) from None


async def respond(send: Send, response: DeviceResponse) -> None:
    headers = [*HEADERS, *response.more]
    if response.kind:
        headers.append((b"content-type", response.kind.encode("ascii")))
    if response.status != 204:
        headers.append((b"content-length", str(len(response.body)).encode("ascii")))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
