"""The watch of a server: after every round it compares items and nodes, and raises alarms.

It reads the model and the lengths of updates. Neither the model nor any draw depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coterie.core.progress import Progress
from coterie.core.records import Record
from coterie.deployment.traffic import read_status
from coterie.deployment.watch.alarms import Alarms
from coterie.deployment.watch.exposure import item_tables, mean_exposure
from coterie.deployment.watch.exposure_shifts import CALM, ExposureShifts
from coterie.deployment.watch.long_updates import HIGH, RECENT, LongUpdates
from coterie.deployment.watch.norms import FEWEST_NODES
from coterie.deployment.watch.row_lengths import LEAD, leader
from coterie.federated.federation import AnyFederation, AnyWorld
from coterie.types import JsonObject

EVERY = 2
"""Rounds between two looks at items, so that they cost less than 5 % of a round."""
MOST_NODES = 20
"""Nodes whose norms the status lists, the largest ones."""
EXPOSURE = "exposure of an item"
ROW = "row of an item"
NORM = "norm of a node"
NOT_AVAILABLE = "not available: secure aggregation ({}) hides single updates"
TOO_FEW_NODES = (
    f"not available: fewer than {FEWEST_NODES} nodes sent updates, too few to compare them"
)


@dataclass(slots=True)
class Watch:
    items: Sequence[str]
    """Item ids by index."""
    alarms: Alarms
    progress: Progress
    shifts: ExposureShifts = field(default_factory=ExposureShifts)
    long_updates: LongUpdates = field(default_factory=LongUpdates)
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
                EXPOSURE,
                f"item {self.items[shift.item]}",
                f"its exposure grew {shift.growth:,.0f} times in {in_rounds(shift.rounds)}, to "
                f"{shift.now:.2f} in round {n:,}",
            )
        leaders = [found for table in tables if (found := leader(table)) and found.lead >= LEAD]
        for found in leaders:
            self._raise(
                ROW,
                f"item {self.items[found.item]}",
                f"its row was {found.lead:.1f} times as long as that of any other item in round "
                f"{n:,}",
            )
        leading = {found.item for found in leaders}
        quiet = [k for k in np.flatnonzero(exposures < CALM).tolist() if k not in leading]
        self._clear({f"item {self.items[k]}" for k in quiet}, n)

    def look_at_nodes(self, n: int, relative: Mapping[str, float]) -> None:
        """Compare the nodes of round n with each other."""
        self.norms = dict(relative)
        for name, count in self.long_updates.add(relative).items():
            self._raise(
                NORM,
                f"node {name}",
                f"its updates were {HIGH:g} or more times as long as those of the median node in "
                f"{count} of its last {RECENT} rounds, and {relative[name]:,.0f} times in round "
                f"{n:,}",
            )
        self._clear({f"node {name}" for name in relative if self.long_updates.is_calm(name)}, n)

    def status(self, secure_aggregation: str) -> JsonObject:
        """What `coterie status` shows."""
        if secure_aggregation != "none":
            return self.alarms.as_json() | {
                "norms_by_node": NOT_AVAILABLE.format(secure_aggregation)
            }
        largest = sorted(self.norms.items(), key=lambda entry: -entry[1])[:MOST_NODES]
        norms = {name: round(times, 3) for name, times in largest}
        return self.alarms.as_json() | {"norms_by_node": norms or TOO_FEW_NODES}

    def _raise(self, kind: str, subject: str, text: str) -> None:
        if self.alarms.raise_once(kind, subject, text):
            self.progress.warn(f"alarm: {subject}: {text}")

    def _clear(self, calm: set[str], n: int) -> None:
        for subject in [each for each in self.alarms.active if each in calm]:
            self.alarms.clear(subject)
            self.progress.log(f"alarm cleared: {subject}, after round {n:,}")


def in_rounds(n: int) -> str:
    return "1 round" if n == 1 else f"{n} rounds"
