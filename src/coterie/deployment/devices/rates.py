"""How often a device or an address may call: a bucket of tokens each, which fills with time."""

from __future__ import annotations

from dataclasses import dataclass, field

from coterie.deployment.devices.refusals import DeviceRefused

MOST_BUCKETS = 65_536
"""Names that are remembered; a forgotten one begins with a full bucket."""


@dataclass(slots=True)
class RateLimit:
    what: str
    """What is limited, for errors: "device" or "address"."""
    burst: float
    """Requests at once."""
    a_second: float
    """Requests in the long run."""
    buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Name -> tokens left, and when that was."""

    def take(self, name: str, now: float) -> None:
        """Count a request; refused if there were too many."""
        left, then = self.buckets.get(name, (self.burst, now))
        left = min(self.burst, left + (now - then) * self.a_second)
        if left < 1:
            raise DeviceRefused(
                429,
                f"too many requests of one {self.what}",
                f"the {self.what} {name} calls too often; expected at most {self.a_second:g} "
                f"requests a second. Wait {(1 - left) / self.a_second:.0f} seconds.",
            )
        # The order of the buckets is that of their last use.
        self.buckets.pop(name, None)
        self.buckets[name] = (left - 1, now)
        if len(self.buckets) > MOST_BUCKETS:
            del self.buckets[next(iter(self.buckets))]
