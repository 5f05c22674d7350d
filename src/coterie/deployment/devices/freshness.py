"""Each signed request counts once: old times and repeats are refused.

Of each device the newest requests are remembered. What is older than the oldest of them is refused
without looking, and so is what was signed before the gateway started: it may be a repeat.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from coterie.deployment.devices.refusals import DeviceRefused

CLOCK_MS = 300_000
"""How far the clock of a device may be off, in milliseconds."""
MOST_REMEMBERED = 32
"""Requests of a device that are remembered. More than that do not overtake each other."""
MOST_TIME_DIGITS = 15


@dataclass(slots=True)
class DeviceTimes:
    """The newest requests of a device."""

    floor: int
    """The newest time that is refused without looking, in milliseconds."""
    newest: list[tuple[int, bytes]] = field(default_factory=list)
    """A heap of (time, digest of the signed text), the oldest first."""
    digests: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class Freshness:
    started: int
    """When the gateway started, in milliseconds since 1970."""
    devices: dict[str, DeviceTimes] = field(default_factory=dict)

    def refuse_stale(self, text: str, now: int) -> int:
        """The time of a request, in milliseconds; refused if it is none, or too far from now."""
        is_number = text.isascii() and text.isdigit() and len(text) <= MOST_TIME_DIGITS
        time = int(text) if is_number else -1
        if abs(now - time) > CLOCK_MS:
            raise DeviceRefused(
                401,
                "a clock that is wrong",
                f"Coterie-Time is {text[:30]!r}, and the gateway's clock {now}; expected "
                f"milliseconds since 1970, at most {CLOCK_MS // 1000} seconds off. Set the "
                "device's clock.",
            )
        return time

    def refuse_repeat(self, device: str, time: int, digest: bytes) -> None:
        """Remember a request whose signature is valid; refused if it may have come before.

        `digest` is of the signed text, not of the signature: one text has several signatures.
        """
        known = self.devices.setdefault(device, DeviceTimes(self.started))
        if time <= known.floor or digest in known.digests:
            raise DeviceRefused(
                409,
                "a repeated request",
                f"device {device} sent a request with Coterie-Time {time} again, or one older than "
                f"{known.floor}; expected a new time for each request. Sign the request again.",
            )
        heapq.heappush(known.newest, (time, digest))
        known.digests.add(digest)
        if len(known.newest) > MOST_REMEMBERED:
            known.floor, oldest = heapq.heappop(known.newest)
            known.digests.discard(oldest)

    def forget(self, device: str) -> None:
        """A revoked device sends nothing that has to be remembered."""
        self.devices.pop(device, None)
