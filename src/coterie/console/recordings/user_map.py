"""Users' embeddings in two dimensions, round by round.

One projection serves all rounds, so that a point moves only where its embedding does: the first two
principal components of the embeddings of all recorded rounds together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from coterie.algorithms.local.learner import embeddings
from coterie.algorithms.local.settings import Federated
from coterie.core import streams
from coterie.core.records import Record
from coterie.federated.federation import AnyWorld
from coterie.types import Bools, Doubles, Floats, Ints

MOST_USERS = 10_000
"""Users on a map; of more, a sample."""
MOST_FRAMES = 200
MOST_VALUES = 1 << 26
"""Numbers of all embeddings that are held in memory: 256 MiB."""
STEPS = 65_535
"""A coordinate is one of so many steps from one edge of the map to the other, and 0."""
MARGIN = 0.03
"""Share of the map that stays free at every edge."""
MOST_COUNTED = 255
ROWS = "user_rows"
CLUSTERS = "clusters"
CENTRES = "centres"


@dataclass(frozen=True, slots=True)
class UserMap:
    """What the page of clusters draws. A frame is a recorded round; the first one is round 0."""

    users: Ints  # (users,) indices of the users on the map, ascending
    rounds: Ints  # (frames,)
    places: np.ndarray  # (frames, users, 2) uint16, from the upper left corner
    selections: np.ndarray  # (frames, users) uint8, since the frame before
    clusters: np.ndarray  # (frames, users) int16; -1 where a user has none
    centres: Ints  # (frames, clusters) users at the centres of clusters; no columns without them
    explained: Floats  # (2,) share of the variance along each axis


def has_embeddings(state: Record) -> bool:
    """Whether a state has a row for every user."""
    return ROWS in state.arrays()


@dataclass(slots=True)
class MapRecorder:
    """Collects the states of a replay."""

    world: AnyWorld
    users: Ints
    frames: frozenset[int]
    rounds: list[int] = field(default_factory=list)
    rows: list[Floats] = field(default_factory=list)
    selections: list[np.ndarray] = field(default_factory=list)
    clusters: list[np.ndarray] = field(default_factory=list)
    centres: list[Ints] = field(default_factory=list)
    _since: Ints = field(init=False)

    def __post_init__(self) -> None:
        self._since = np.zeros(self.world.n_users, np.int32)

    @classmethod
    def of(cls, world: AnyWorld, state: Record, last: int) -> MapRecorder:
        """For a replay that begins with this state and has `last` rounds."""
        users = mapped_users(world.members, world.seed)
        width = state.arrays()[ROWS].shape[1]
        most = max(2, min(MOST_FRAMES, MOST_VALUES // max(len(users) * width, 1)))
        return cls(world, users, frames_of(last, most))

    def add(self, n: int, state: Record, selected: Ints) -> None:
        """A round that was played; it is recorded if it is a frame."""
        np.add.at(self._since, selected, 1)
        if n not in self.frames:
            return
        arrays = state.arrays()
        rows = arrays[ROWS]
        settings = self.world.settings
        if isinstance(settings, Federated):
            rows = embeddings(settings, rows)
        self.rounds.append(n)
        self.rows.append(rows[self.users].astype(np.float32))
        counts = np.minimum(self._since[self.users], MOST_COUNTED)
        self.selections.append(counts.astype(np.uint8))
        self._since[:] = 0
        if CLUSTERS in arrays:
            self.clusters.append(arrays[CLUSTERS][self.users].astype(np.int16))
        if CENTRES in arrays:
            self.centres.append(arrays[CENTRES].astype(np.int32))

    def finish(self) -> UserMap:
        rows = np.stack(self.rows)
        shape = rows.shape[:2]
        axes, explained = principal_axes(rows.reshape(-1, rows.shape[2]))
        none = np.full(shape, -1, np.int16)
        no_centres = np.empty((shape[0], 0), np.int32)
        return UserMap(
            self.users,
            np.array(self.rounds, np.int32),
            on_a_map(rows @ axes),
            np.stack(self.selections),
            np.stack(self.clusters) if self.clusters else none,
            np.stack(self.centres) if self.centres else no_centres,
            explained,
        )


def mapped_users(members: Bools, seed: int) -> Ints:
    """The users on a map: all that take part, or an even sample of them."""
    users = np.flatnonzero(members)
    if len(users) > MOST_USERS:
        users = np.sort(streams.at(seed, "map").permutation(users)[:MOST_USERS])
    return users.astype(np.int32)


def frames_of(last: int, most: int) -> frozenset[int]:
    """Rounds 0 to `last`, or so many of them at even distances."""
    n = min(last + 1, most)
    return frozenset(np.rint(np.linspace(0, last, n)).astype(int).tolist())


def principal_axes(rows: Floats) -> tuple[Floats, Floats]:
    """(width, 2) the first principal components of rows, and their shares of the variance.

    The sign of a component is that of its largest entry, so that every computer draws one map.
    """
    centred = rows - rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    # Sums of squares of many rows lose digits in single precision.
    covariance: Doubles = np.zeros((rows.shape[1], rows.shape[1]))
    for block in np.array_split(centred, max(1, len(centred) // 65_536)):
        wide = block.astype(np.float64)
        covariance += wide.T @ wide
    values, vectors = np.linalg.eigh(covariance)
    axes = vectors[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), range(axes.shape[1])])
    shares = np.maximum(values[::-1][:2], 0) / max(values.sum(), np.finfo(float).tiny)
    missing = 2 - axes.shape[1]
    axes = np.pad(axes, ((0, 0), (0, missing)))
    return axes.astype(np.float32), np.pad(shares, (0, missing)).astype(np.float32)


def on_a_map(points: Floats) -> np.ndarray:
    """(frames, users, 2) coordinates as steps, with one scale for both axes; y grows downwards."""
    flat = points.reshape(-1, 2)
    low = flat.min(axis=0)
    high = flat.max(axis=0)
    scale = max(float((high - low).max()), np.finfo(np.float32).tiny)
    middle = (low + high) / 2
    share = (points - middle) / scale * (1 - 2 * MARGIN)
    share[..., 1] *= -1
    steps: np.ndarray = np.rint((share + 0.5) * STEPS).astype(np.uint16)
    return steps
