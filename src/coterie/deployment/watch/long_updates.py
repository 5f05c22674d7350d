"""Nodes that send long updates again and again.

A round is conspicuous if a node's updates are HIGH times as long as those of the median node.
Honest clients of FedAvg reach that in first rounds. A node is conspicuous if REPEATED of its last
RECENT rounds are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

HIGH = 10.0
REPEATED = 3
RECENT = 10


@dataclass(slots=True)
class LongUpdates:
    recent: dict[str, deque[bool]] = field(default_factory=dict)
    """Node -> which of its last rounds were conspicuous."""

    def add(self, relative: Mapping[str, float]) -> dict[str, int]:
        """Add a round; returns the conspicuous nodes, with the number of such rounds."""
        for name, times in relative.items():
            self.recent.setdefault(name, deque(maxlen=RECENT)).append(times >= HIGH)
        counts = {name: sum(self.recent[name]) for name in relative}
        return {name: count for name, count in counts.items() if count >= REPEATED}

    def is_calm(self, name: str) -> bool:
        """Whether none of a node's last rounds was conspicuous."""
        return not any(self.recent.get(name, ()))
