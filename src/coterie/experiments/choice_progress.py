"""The time of a choice: what each method may take, and what is left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import mean

from coterie.core.progress import Advance


class MethodTimes:
    """Divides a time among methods: what one does not use, the later ones share."""

    def __init__(self, names: Sequence[str], seconds: float) -> None:
        self.waiting = list(names)
        self.deadline = time.monotonic() + seconds
        self.seconds: dict[str, float] = {}
        self.began = time.monotonic()
        self.share = 0.0
        """The share of the current method's steps that is done."""
        self.allowed = 0.0
        """Seconds that the current method may take."""
        self.running = ""

    def begin(self, name: str) -> None:
        self.allowed = self.allowance()
        self.waiting.remove(name)
        self.running = name
        self.began = time.monotonic()
        self.share = 0.0

    def allowance(self) -> float:
        """Seconds for the next method: its share of the time that is left."""
        return max(self.deadline - time.monotonic(), 0.0) / max(len(self.waiting), 1)

    def move(self, advance: Advance, share: float) -> None:
        """So much of the current method is done."""
        advance(share - self.share, self.running)
        self.share = share

    def end(self) -> None:
        self.seconds[self.running] = time.monotonic() - self.began

    def left(self) -> float | None:
        """Seconds until all methods are finished: later ones take what finished ones took."""
        if not self.seconds and not self.share:
            return None
        spent = time.monotonic() - self.began
        whole = min(spent / self.share, self.allowed) if self.share else self.allowed
        usual = mean(self.seconds.values()) if self.seconds else whole
        later = min(usual * len(self.waiting), max(self.deadline - time.monotonic(), 0.0))
        return max(whole - spent, 0.0) + later
