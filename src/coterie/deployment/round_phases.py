"""Where the time of a server goes: seconds by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    ENROL = "enrol"
    """Rosters of nodes that connected."""
    EXCHANGE = "exchange"
    """Messages to nodes, until the last reply or the deadline."""
    COMPUTE = "compute"
    """Selection, validation and aggregation on the server."""
    COMMIT = "commit"
    """Writing a round to disk."""
    EVALUATE = "evaluate"
    """The model to nodes, and their metrics."""
    WATCH = "watch"
    """Looking for conspicuous items and nodes."""
    WAIT = "wait"
    """Waiting for nodes: at the start, and after a round without a quorum."""


@dataclass(slots=True)
class RoundPhases:
    """A phase inside another one counts by itself, so that the seconds add up."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(map(str, Phase), 0.0))
    """The total of each phase."""
    current: str = ""
    since: float = 0.0

    @classmethod
    def resume(cls, before: Mapping[str, float]) -> RoundPhases:
        """Go on with earlier seconds."""
        return cls({str(phase): before.get(phase, 0.0) for phase in Phase})

    @contextmanager
    def measure(self, phase: Phase) -> Iterator[None]:
        outer = self.current
        self._enter(phase)
        try:
            yield
        finally:
            self._enter(outer)

    def _enter(self, phase: str) -> None:
        now = time.perf_counter()
        if self.current:
            self.seconds[self.current] += now - self.since
        self.current = phase
        self.since = now

    def since_then(self, before: Mapping[str, float]) -> dict[str, float]:
        """The seconds since a copy of them, for the phases that took any."""
        spent = {phase: total - before[phase] for phase, total in self.seconds.items()}
        return {phase: seconds for phase, seconds in spent.items() if seconds}
