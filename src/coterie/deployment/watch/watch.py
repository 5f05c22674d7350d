"""The watch of a server: after every round it compares items and nodes, and raises alarms.

It reads the model and the lengths of updates. Neither the model nor any draw depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coterie.core.progress import Progress
from coterie.core.records import Record
from coterie.deployment.traffic import read_status
from coterie.deployment.watch.alarms import Alarms
from coterie.deployment.watch.exposure import item_tables, mean_exposure
from coterie.deployment.watch.exposure_shifts import CALM, LEAST, ExposureShifts
from coterie.federated.federation import AnyFederation, AnyWorld
from coterie.types import JsonObject

EVERY = 2
"""Rounds between two looks at the model, which then take less than 5 % of the time."""
HIGH = 10.0
"""A node whose updates are so many times as long as those of the median node is conspicuous."""
MOST_NODES = 20
"""Nodes whose norms the status lists, the largest ones."""
ITEM = "item exposure"
NODE = "node norm"
NOT_AVAILABLE = "not available: secure aggregation ({}) hides single updates"


@dataclass(slots=True)
class Watch:
    items: Sequence[str]
    """Item ids by index."""
    alarms: Alarms
    progress: Progress
    shifts: ExposureShifts = field(default_factory=ExposureShifts)
    norms: dict[str, float] = field(default_factory=dict)
    """Node -> length of its updates in the last round, in median nodes."""

    @classmethod
    def resume(cls, folder: Path, items: Sequence[str], progress: Progress) -> Watch:
        """Go on with the alarms of a folder's status."""
        return cls(items, Alarms.resume(read_status(folder)), progress)

    def look_at_items(
        self, n: int, federation: AnyFederation, world: AnyWorld, state: Record
    ) -> None:
        """Compare the exposures after round n with those of recent rounds."""
        if n % EVERY:
            return
        tables = item_tables(federation, world, state)
        if not tables:
            return
        exposures = mean_exposure(tables)
        for shift in self.shifts.add(n, exposures):
            self._raise(
                ITEM,
                f"item {self.items[shift.item]}",
                f"its exposure grew {shift.growth:,.0f} times in {shift.rounds} rounds, to "
                f"{shift.now:.2f} in round {n:,}",
            )
        calm = {
            f"item {self.items[k]}" for k in range(len(exposures)) if exposures[k] < CALM * LEAST
        }
        self._clear(calm, n)

    def look_at_nodes(self, n: int, relative: Mapping[str, float]) -> None:
        """Compare the nodes of round n with each other."""
        self.norms = dict(relative)
        for name, times in relative.items():
            if times >= HIGH:
                self._raise(
                    NODE,
                    f"node {name}",
                    f"its updates were {times:,.0f} times as long as those of the median node in "
                    f"round {n:,}",
                )
        self._clear({f"node {name}" for name, times in relative.items() if times < HIGH / 2}, n)

    def status(self, secure_aggregation: str) -> JsonObject:
        """What `coterie status` shows."""
        if secure_aggregation != "none":
            return self.alarms.as_json() | {
                "norms_by_node": NOT_AVAILABLE.format(secure_aggregation)
            }
        largest = sorted(self.norms.items(), key=lambda entry: -entry[1])[:MOST_NODES]
        norms = {name: round(times, 3) for name, times in largest}
        return self.alarms.as_json() | {"norms_by_node": norms}

    def _raise(self, kind: str, subject: str, text: str) -> None:
        if self.alarms.raise_once(kind, subject, text):
            self.progress.warn(f"alarm: {subject}: {text}")

    def _clear(self, calm: set[str], n: int) -> None:
        for subject in [each for each in self.alarms.active if each in calm]:
            self.alarms.clear(subject)
            self.progress.log(f"alarm cleared: {subject}, after round {n:,}")
