"""The recording of a run: a file beside it, which the console draws.

It is about single users: only its owner can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from coterie.console.recordings.inferred import NO_ITEM, InferredItems
from coterie.console.recordings.received import ReceivedUpdates
from coterie.console.recordings.user_map import UserMap
from coterie.core import npz
from coterie.errors import CoterieError, RunError
from coterie.experiments import run_folder
from coterie.types import Rows

NAME = "recording.npz"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Recording:
    n_rounds: int
    seconds: float
    """What the replay took."""
    difference: float
    """The largest difference of the replay's model from the one that the run saved; NaN if the
    replay ended before that round."""
    user_map: UserMap | None
    """None where users have no embeddings."""
    received: ReceivedUpdates | None
    """None under secure aggregation, where the server receives sums."""
    inferred: InferredItems | None
    """None where there is no attacker for the algorithm."""

    def write(self, folder: Path) -> None:
        about = np.array([FORMAT, self.n_rounds, self.seconds, self.difference])
        arrays: dict[str, np.ndarray] = {"about": about}
        if self.user_map is not None:
            arrays |= _prefixed("map", _arrays(self.user_map))
        if self.received is not None:
            arrays |= _prefixed("received", _arrays(self.received))
        if self.inferred is not None:
            arrays |= _prefixed("inferred", self.inferred.arrays())
        run_folder.write_arrays(folder / NAME, arrays)

    @classmethod
    def read(cls, folder: Path) -> Recording:
        try:
            catalogue = run_folder.read_catalogue(folder)
            sizes = (len(catalogue.user_ids), len(catalogue.item_ids))
            return cls._of(npz.read_file(folder / NAME), *sizes)
        except (ValueError, LookupError, TypeError, CoterieError, OSError) as error:
            raise RunError(
                f"{folder / NAME} cannot be read ({error}). Record the run again: "
                f"coterie record {folder}"
            ) from None

    @classmethod
    def _of(cls, arrays: dict[str, np.ndarray], n_users: int, n_items: int) -> Recording:
        """A recording whose indices are all those of users and items of the run."""
        version, n_rounds, seconds, difference = arrays["about"].tolist()
        if version != FORMAT:
            raise ValueError(f"its format is {version:g}; expected {FORMAT}")
        drawn = _without("map", arrays)
        received = _without("received", arrays)
        inferred = _without("inferred", arrays)
        return cls(
            int(n_rounds),
            seconds,
            difference,
            _checked_map(UserMap(**drawn), n_users) if drawn else None,
            _received(received, n_users, n_items) if received else None,
            _inferred(inferred, n_users, n_items) if inferred else None,
        )


def _received(arrays: dict[str, np.ndarray], n_users: int, n_items: int) -> ReceivedUpdates:
    until = int(arrays.pop("until"))
    found = ReceivedUpdates(**arrays, until=until)
    n = len(found.users)
    columns = (found.rounds, found.samples, found.n_bytes)
    if any(column.shape != (n,) for column in columns) or found.items.shape != found.changes.shape:
        raise ValueError(f"the updates are not {n} rows in every column")
    Rows(found.offsets, found.items).refuse_other_shape(n, n_items)
    _refuse_outside("users of updates", found.users, 0, n_users)
    return found


def _inferred(arrays: dict[str, np.ndarray], n_users: int, n_items: int) -> InferredItems:
    found = InferredItems.from_arrays(arrays)
    n = len(found.attackers)
    times = len(found.after)
    by_user = (found.claims, found.hits, found.popular_hits)
    shapes = [
        found.uses.shape == (n,),
        found.liked.shape == (n_users,),
        all(each.shape == (times, n, n_users) for each in by_user),
        found.observed.shape == (n, n_users),
        found.best.shape[:2] == (n, n_users),
        found.rates.shape in ((0,), (n_users,)),
    ]
    if not times or not all(shapes):
        raise ValueError(f"the inferences are not of {n} attackers and {n_users} users")
    _refuse_outside("items of claims", found.best, NO_ITEM, n_items)
    return found


def _checked_map(found: UserMap, n_users: int) -> UserMap:
    """A map whose arrays have one shape; the page reads them as they are."""
    shape = (len(found.rounds), len(found.users))
    kinds = [each.dtype for each in (found.places, found.selections, found.clusters)]
    shapes = (found.places.shape[:2], found.selections.shape, found.clusters.shape)
    expected = [np.dtype(kind) for kind in (np.uint16, np.uint8, np.int16)]
    if kinds != expected or any(each != shape for each in shapes):
        raise ValueError(f"the map is not of {shape[0]} rounds and {shape[1]} users")
    _refuse_outside("users of the map", found.users, 0, n_users)
    return found


def _refuse_outside(name: str, indices: np.ndarray, first: int, n: int) -> None:
    """Refuse indices before the first one, or beyond n."""
    if indices.dtype.kind not in "iu":
        raise ValueError(f"{name} have type {indices.dtype}; expected whole numbers")
    if indices.size and not first <= indices.min() <= indices.max() < n:
        raise ValueError(f"{name} are not all from {first} to {n - 1}")


def _arrays(record: UserMap | ReceivedUpdates) -> dict[str, np.ndarray]:
    return {each.name: np.asarray(getattr(record, each.name)) for each in fields(record)}


def _prefixed(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{prefix}_{name}": array for name, array in arrays.items()}


def _without(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a part under their own names."""
    start = f"{prefix}_"
    return {
        name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)
    }
