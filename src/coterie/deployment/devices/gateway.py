"""The gateway: a node of the federation on behalf of browsers, which it cannot train for.

It forwards the server's messages to devices and their updates back, each as it was received. It
holds no histories and no private rows, so that it can neither train nor evaluate for a device that
does not answer: its user has dropped out of the round.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coterie.core.progress import Progress
from coterie.deployment.branch_rounds import BRANCH
from coterie.deployment.devices.board import Board, OpenExchange
from coterie.deployment.devices.refusals import DeviceRefused
from coterie.deployment.devices.store import Device, DeviceStore
from coterie.deployment.enrolment import FederationTerms, Roster, UserIndices
from coterie.deployment.membership import MEMBERS
from coterie.deployment.node_evaluation import KIND, NodeMetrics
from coterie.deployment.node_limits import reply_bytes_a_user, reply_limits
from coterie.deployment.node_service import ENROL, FINISH, TRAIN, split_preamble
from coterie.deployment.traffic import read_status
from coterie.deployment.world import node_world
from coterie.errors import CoterieError, StoreError
from coterie.federated.federation import exchanges_with_clients
from coterie.federated.nodes import read_message, read_reply
from coterie.federated.validation import REMEDIES, Expected, no_updates, validate
from coterie.federated.wire import Malformed, decode, encode
from coterie.types import Message, Sizes, Updates

FINAL_SECONDS = 30.0
"""How long the end of a federation waits for devices to fetch the final model."""
LONGEST_NAME = 64


class Receipt(NamedTuple):
    """What the gateway received of a device."""

    size: int
    sha256: str

    @classmethod
    def of(cls, update: bytes) -> Receipt:
        return cls(len(update), hashlib.sha256(update).hexdigest())


class Place(NamedTuple):
    """What an update belongs to, as its headers say."""

    run: str
    round: str
    attempt: str


@dataclass(frozen=True, slots=True)
class UpdateRules:
    """What the update of a device has to be, for the exchanges of a federation."""

    sizes: tuple[Sizes, ...]
    """By exchange."""
    most_bytes: int

    @classmethod
    def of(cls, terms: FederationTerms) -> UpdateRules:
        """The sizes do not depend on the users, so that one stands for all."""
        world = node_world(terms, UserIndices({}, 1, [0], 1))
        state = terms.federation.init(world)
        exchanges = exchanges_with_clients(terms.federation, world)
        a_user = reply_bytes_a_user(terms.federation, world, state)
        sizes = tuple(exchange.sizes(world, state) for exchange in exchanges)
        return cls(sizes, reply_limits(a_user, {"": 1})[""])

    def expected(self, message: Message) -> Expected:
        return Expected.of(message, self.sizes[message.exchange])


@dataclass(slots=True)
class Gateway:
    folder: Path
    terms: FederationTerms
    store: DeviceStore
    board: Board
    rules: UpdateRules
    progress: Progress
    is_open: bool
    """Whether devices may enrol after the federation began."""
    least_devices: int
    """Devices that must be enrolled before the gateway joins a federation that has not begun."""
    most_devices: int
    model: tuple[int, bytes] | None = None
    """The round of the newest model, and its wire bytes."""
    finished: bool = False
    listed: int = -1
    """The changes of the devices when the last roster was made."""
    unlisted: int = 0
    """The last number of a connection whose devices are not on a roster."""
    refused: Counter[str] = field(default_factory=Counter)
    last_refused: dict[str, str] = field(default_factory=dict)

    @property
    def has_begun(self) -> bool:
        return (self.folder / MEMBERS).exists()

    def connection(self) -> int | None:
        """A number that changes with the enrolled devices, upon which the server requests
        them again; None if the gateway has no part in the federation."""
        counts = self.store.counts()
        least = 1 if self.has_begun else self.least_devices
        if counts.active < least and not (self.has_begun and counts.forgotten):
            return None
        if counts.changes == self.listed:
            return 1 + self.listed
        # A device may enrol between a roster and its registration, so that no number that the
        # server has seen before means the devices of now.
        self.unlisted -= 1
        return self.unlisted

    # As a node: messages of the server

    def answer(self, kind: str, data: bytes, until: float) -> bytes | None:
        """The reply to a message of the server, before the deadline; None if there is none."""
        try:
            if kind == ENROL:
                return self.roster().to_json().encode()
            preamble, data = split_preamble(data, self.terms.to_json())
            if preamble is not None:
                indices = preamble[1]
                self.store.put_numbers(indices.numbers, indices.forgotten)
            message = read_message(data)
            if kind == TRAIN:
                return self.train(message, until)
            return self.receive_model(message, kind == FINISH, until)
        except StoreError:
            raise
        except (CoterieError, Malformed) as error:
            self.progress.warn(f"the gateway of devices could not answer: {error}")
            return None

    def roster(self) -> Roster:
        """The users of all devices. How many interactions they have is unknown."""
        counts = self.store.counts()
        users = [device.user for device in self.store.active()]
        forgotten = list(counts.forgotten)
        self.listed = counts.changes
        # Browsers have no snapshots, so that they cannot follow a roll-back to any round.
        return Roster(users, [True] * len(users), len(users), forgotten, unchanged_since=BRANCH)

    def train(self, message: Message, until: float) -> bytes:
        """Forward an exchange to the devices of its users, and their updates back."""
        self.model = (message.round, encode(message.round, {}, message.common))
        numbers = {device.number: device.id for device in self.store.active()}
        places = {
            numbers[user]: k for k, user in enumerate(message.users.tolist()) if user in numbers
        }
        messages = self.store.put_messages(
            (message.round, message.exchange), digests_of_parts(message, places)
        )
        received = {
            device: sent.reply for device, sent in messages.items() if sent.reply is not None
        }
        self.board.open(OpenExchange(message, places, messages, received))
        self.board.wait(until)
        updates = self.board.close()
        revoked = {device.id for device in self.store.devices() if device.revoked is not None}
        parts = [
            Updates(**decode(update).arrays)
            for device, update in updates.items()
            if device not in revoked
        ]
        self.progress.debug(
            f"round {message.round + 1}: {len(parts)} of {len(places)} devices sent an update"
        )
        if not any(len(part) for part in parts):
            columns = no_updates(self.rules.expected(message)).columns()
        else:
            columns = Updates.joined(parts).columns()
        return encode(message.round, columns, exchange=message.exchange)

    def receive_model(self, message: Message, final: bool, until: float) -> bytes:
        """Store a model for devices to fetch. The gateway has nothing to evaluate it on."""
        common = {name: array for name, array in message.common.items() if name != KIND}
        self.model = (message.round, encode(message.round, {}, common))
        self.store.put_model(*self.model)
        if final:
            self.finished = True
            soon = min(until, time.monotonic() + FINAL_SECONDS)
            self.board.offer_model({device.id for device in self.store.active()}, soon)
        return NodeMetrics(0, "", {}).to_json().encode()

    # As a server: requests of devices

    def enrol(self, code: str, key: bytes, name: str) -> Device:
        """Enrol a device. It takes part from the next round that begins."""
        if self.finished:
            raise DeviceRefused(
                409,
                "a federation that is finished",
                f"the federation {self.folder.name} is finished; expected one that trains. Ask its "
                "owner for the next one.",
            )
        if self.has_begun and not self.is_open:
            raise DeviceRefused(
                403,
                "a federation that is not open",
                f"the federation {self.folder.name} began, and its users are fixed (open: false); "
                "expected one that is open. Ask its owner to begin the next one with open: true.",
            )
        return self.store.enrol(code, key, name, self.most_devices)

    def refuse_too_late(self, device: Device) -> None:
        """Refuse a device that enrolled while the federation began, and is not among its users."""
        if self.model is None or self.is_open or device.number is not None:
            return
        known = self.store.device(device.id)
        if known is not None and known.number is None:
            raise DeviceRefused(
                403,
                "a device that came too late",
                f"device {device.id} enrolled when the federation {self.folder.name} had just "
                "begun, and its users are fixed (open: false); expected one that enrols before. "
                "Ask its owner for a code of the next one.",
            )

    def receive(self, device: Device, place: Place, body: bytes) -> Receipt:
        """Take the update of a device, for the message that it was sent, once."""
        found = self.board.open_message(device.id)
        if found is None:
            self._accept_repeated(device, place, body)
            return Receipt.of(body)
        exchange, sent = found
        expected = Place(self.terms.run, str(sent.round), str(sent.attempt))
        if place != expected:
            raise DeviceRefused(
                409,
                "an update for another round",
                f"device {device.id} sends an update for run {place.run!r}, round {place.round!r}, "
                f"attempt {place.attempt!r}; expected {expected.run!r}, {expected.round!r}, "
                f"{expected.attempt!r}. Fetch the message again.",
            )
        self._refuse_faulty(device, exchange, body)
        if not self.store.put_reply(device.id, sent.digest, body):
            raise other_bytes(device, sent.round)
        if not self.board.put(device.id, exchange, body):
            raise too_late(device, place)
        return Receipt.of(body)

    def _accept_repeated(self, device: Device, place: Place, body: bytes) -> None:
        """The bytes that were received in time may come again: the reply to them was lost."""
        last = self.store.last_message(device.id)
        if last is None or (self.terms.run, str(last.round)) != (place.run, place.round):
            raise too_late(device, place)
        if last.reply is None:
            raise too_late(device, place)
        if last.reply != body:
            raise other_bytes(device, last.round)

    def _refuse_faulty(self, device: Device, exchange: OpenExchange, body: bytes) -> None:
        """Validate an update exactly as the server validates that of a node."""
        part = exchange.part(device.id)
        reply = read_reply(part, body)
        faults = validate([reply], self.rules.expected(part)).refused
        for fault in faults:
            raise DeviceRefused(
                422,
                f"an update that is invalid: {fault}",
                f"the update of device {device.id} for round {part.round} is refused ({fault}); "
                f"expected an update of user {int(part.users[0])} as in docs/device.md. "
                f"{REMEDIES[fault]}",
            )


def digests_of_parts(message: Message, places: Mapping[str, int]) -> dict[str, bytes]:
    """Device -> the digest of its message, without a copy of the common arrays for each."""
    common = encode(message.round, {}, message.common, message.exchange)
    shared = hashlib.sha256(common).digest()
    digests = {}
    for device, k in places.items():
        part = message.to(np.array([k]))
        own = encode(message.round, {"users": part.users, **part.own}, {}, message.exchange)
        digests[device] = hashlib.sha256(shared + own).digest()
    return digests


def other_bytes(device: Device, round_: int) -> DeviceRefused:
    return DeviceRefused(
        409,
        "a second update",
        f"device {device.id} sent another update for round {round_} before; expected the same "
        "bytes again, or none. Repeat what was sent.",
    )


def too_late(device: Device, place: Place) -> DeviceRefused:
    return DeviceRefused(
        409,
        "an update for a closed round",
        f"device {device.id} sends an update for round {place.round[:20]!r} of run "
        f"{place.run[:40]!r}, which is not open; expected one for a message that was just "
        "fetched. Drop it, and fetch the next message.",
    )


def gateway_of(
    folder: Path,
    terms: FederationTerms,
    progress: Progress,
    is_open: bool,
    least_devices: int,
    most_devices: int,
    clock: Callable[[], float] = time.monotonic,
) -> Gateway:
    """The gateway of a run folder, as it was when the server stopped."""
    store = DeviceStore.make(folder)
    return Gateway(
        folder,
        terms,
        store,
        Board(clock),
        UpdateRules.of(terms),
        progress,
        is_open,
        least_devices,
        most_devices,
        model=store.model(),
        finished=read_status(folder).get("state") == "finished",
    )
