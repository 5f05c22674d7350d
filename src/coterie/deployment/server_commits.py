"""Committed rounds of a server: the last one, and snapshots of earlier ones to return to.

checkpoint.npz, accepted-N.npz      the last committed round, and whose updates it has
snapshots/N/                        the same two files as they were after round N

The files of a snapshot are hard links, where the file system has them. A commit replaces files and
never changes them, so that a snapshot takes no time, and no space before the next commit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from coterie.algorithms.registry import algorithm
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.snapshot_plan import SnapshotPlan
from coterie.experiments import checkpoint, run_folder
from coterie.experiments.history import Point
from coterie.types import Longs

ACCEPTED = "accepted-{}.npz"
SNAPSHOTS = "snapshots"


def commit(
    folder: Path, point: Point, terms: FederationTerms, accepted: Longs, plan: SnapshotPlan
) -> None:
    """Write a round to disk: which updates were accepted, then the state."""
    n = point.history.round
    run_folder.write_arrays(folder / ACCEPTED.format(n), {"accepted": accepted})
    checkpoint.write(folder, point, terms.run, terms.config)
    _drop_other_rounds(folder, n)
    if plan.is_due(n):
        # Also when a round is committed again, with its evaluation.
        _link(folder, snapshot_folder(folder, n), n)
        drop_snapshots(folder, plan.outdated(snapshot_rounds(folder)))


def read_commit(folder: Path, terms: FederationTerms) -> tuple[Point, Longs] | None:
    """The committed round of a run folder or of a snapshot, and its tags; None if there is none."""
    kind = algorithm(terms.experiment.choice.algorithm).state
    point = checkpoint.read(folder, kind, terms.run, terms.config, with_devices=False)
    if point is None:
        return None
    name = ACCEPTED.format(point.history.round)
    return point, run_folder.read_arrays(folder, name)["accepted"]


def snapshot_folder(folder: Path, n: int) -> Path:
    return folder / SNAPSHOTS / str(n)


def snapshot_rounds(folder: Path) -> list[int]:
    """The rounds that have a complete snapshot, in order."""
    found = (folder / SNAPSHOTS).glob(f"*/{checkpoint.NAME}")
    return sorted(int(path.parent.name) for path in found if path.parent.name.isdecimal())


def put_back(folder: Path, n: int) -> None:
    """Make a snapshot the last committed round, unless it is, and drop later snapshots.

    It may be repeated: a roll-back that was killed begins again.
    """
    if n in snapshot_rounds(folder):
        _link(snapshot_folder(folder, n), folder, n)
    _drop_other_rounds(folder, n)
    drop_snapshots(folder, [other for other in snapshot_rounds(folder) if other > n])


def change_snapshots(
    folder: Path, terms: FederationTerms, change: Callable[[Point], Point]
) -> None:
    """Replace the points of all snapshots."""
    for n in snapshot_rounds(folder):
        found = read_commit(snapshot_folder(folder, n), terms)
        if found is not None:
            checkpoint.write(snapshot_folder(folder, n), change(found[0]), terms.run, terms.config)


def drop_snapshots(folder: Path, rounds: Iterable[int]) -> None:
    for n in rounds:
        # Without a checkpoint a folder is no snapshot, so that one goes first.
        (snapshot_folder(folder, n) / checkpoint.NAME).unlink(missing_ok=True)
        shutil.rmtree(snapshot_folder(folder, n), ignore_errors=True)


def _link(origin: Path, to: Path, n: int) -> None:
    """The files of a round in another folder; the checkpoint, which makes it complete, last."""
    for name in (ACCEPTED.format(n), checkpoint.NAME):
        run_folder.link_file(origin / name, to / name)


def _drop_other_rounds(folder: Path, n: int) -> None:
    for old in folder.glob(ACCEPTED.format("*")):
        if old.name != ACCEPTED.format(n):
            old.unlink(missing_ok=True)
