"""The exchange that is open now: messages that devices fetch, and the updates that they send.

The server's thread opens an exchange and waits. Requests of devices come from other threads. A
round waits for devices that are there: those that called a short while ago, or have its message.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from coterie.deployment.devices.store import DeviceMessage
from coterie.federated.nodes import write_message
from coterie.types import Message

PRESENT_SECONDS = 30.0
"""A device counts as there for so long after its last call; it holds a call for less."""
LOOK_SECONDS = 1.0
"""How often a round looks whether devices are still there."""


@dataclass(slots=True)
class OpenExchange:
    message: Message
    """The message to all devices, of which each gets its own part."""
    places: Mapping[str, int]
    """Device -> the place of its user in the message."""
    messages: Mapping[str, DeviceMessage]
    updates: dict[str, bytes]
    """Device -> its update, as it was received."""
    fetched: set[str] = field(default_factory=set)

    def part(self, device: str) -> Message:
        """The message to one device. It is made when it is fetched: all together would be as many
        copies of the item table as there are devices."""
        return self.message.to(np.array([self.places[device]]))


class Delivery(NamedTuple):
    """A message to a device."""

    body: bytes
    round: int
    attempt: int


class Board:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.started = clock()
        """All devices count as there when the gateway starts: they call again soon."""
        self.changed = threading.Condition()
        self.calls: dict[str, float] = {}
        """Device -> when it called last."""
        self.exchange: OpenExchange | None = None
        self.without_model: set[str] = set()
        """Devices that have not fetched the final model."""
        self.closed = False
        self.on_message: Callable[[], None] = lambda: None
        """Called when there may be something for devices."""

    def received_call(self, device: str) -> None:
        with self.changed:
            self.calls[device] = self.clock()

    def is_there(self, device: str) -> bool:
        return self.clock() < self.calls.get(device, self.started) + PRESENT_SECONDS

    # The server's side

    def open(self, exchange: OpenExchange) -> None:
        with self.changed:
            self.exchange = exchange
        self.on_message()

    def wait(self, until: float) -> None:
        """Wait until all devices that are there have sent their updates, or the time is up."""
        self._wait_while(self._awaited, until)

    def close(self) -> dict[str, bytes]:
        """Close the exchange; returns the updates. Later ones do not count."""
        with self.changed:
            exchange = self.exchange
            self.exchange = None
        return {} if exchange is None else exchange.updates

    def offer_model(self, devices: set[str], until: float) -> None:
        """Wait until the devices that are there have fetched the final model."""
        with self.changed:
            self.without_model = set(devices)
        self.on_message()
        self._wait_while(lambda: any(map(self.is_there, self.without_model)), until)

    def stop(self) -> None:
        """Nothing is waited for any more: the server stops."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        self.on_message()

    def _wait_while(self, is_awaited: Callable[[], bool], until: float) -> None:
        with self.changed:
            while not self.closed and is_awaited() and self.clock() < until:
                self.changed.wait(min(LOOK_SECONDS, max(0.0, until - self.clock())))

    def _awaited(self) -> bool:
        exchange = self.exchange
        if exchange is None:
            return False
        missing = exchange.places.keys() - exchange.updates.keys()
        return any(device in exchange.fetched or self.is_there(device) for device in missing)

    # The devices' side

    def open_message(self, device: str) -> tuple[OpenExchange, DeviceMessage] | None:
        """What is open for a device, answered or not."""
        with self.changed:
            exchange = self.exchange
            if exchange is None or device not in exchange.places:
                return None
            return exchange, exchange.messages[device]

    def has_message(self, device: str) -> bool:
        """Whether a device has a message to which it has not replied."""
        with self.changed:
            exchange = self.exchange
            return (
                exchange is not None
                and device in exchange.places
                and device not in exchange.updates
            )

    def fetch(self, device: str) -> Delivery | None:
        """The message to a device that has not sent an update for it."""
        found = self.open_message(device)
        if found is None:
            return None
        exchange, sent = found
        with self.changed:
            if device in exchange.updates:
                return None
            exchange.fetched.add(device)
        body = write_message(exchange.part(device))
        return Delivery(body, sent.round, sent.attempt)

    def put(self, device: str, exchange: OpenExchange, update: bytes) -> bool:
        """Take the update of a device; returns False if its exchange is over."""
        with self.changed:
            if self.exchange is not exchange:
                return False
            exchange.updates[device] = update
            self.changed.notify_all()
        return True

    def fetched_model(self, device: str) -> None:
        with self.changed:
            self.without_model.discard(device)
            self.changed.notify_all()

    def drop(self, device: str) -> None:
        """A device was revoked: nothing of it is waited for, or counts."""
        with self.changed:
            self.calls[device] = -PRESENT_SECONDS
            self.without_model.discard(device)
            if self.exchange is not None:
                self.exchange.fetched.discard(device)
            self.changed.notify_all()
