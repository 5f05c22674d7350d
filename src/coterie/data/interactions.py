"""`Interactions`: (user, item) pairs with ratings and times, as contiguous arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from coterie.core import streams
from coterie.data.coded import CodedColumn
from coterie.data.column_names import FRAME, assign_columns
from coterie.data.ids import number
from coterie.data.read_facts import ReadFacts
from coterie.data.table import LATEST
from coterie.data.times import frame_times
from coterie.errors import DataError, UnknownName
from coterie.types import Bools, Floats, Ids, Ints, Longs, Rows

if TYPE_CHECKING:
    import pandas as pd

LARGEST = float(np.finfo(np.float32).max)
ROW_WITHOUT_TIMES = {"newest": "last row", "oldest": "first row"}
"""Which of several rows of a pair a policy keeps, if there are no times."""


@dataclass(frozen=True, slots=True, repr=False)
class Interactions:
    """Distinct (user, item) pairs, sorted by user, then time.

    Users and items are indexed by their external ids in natural order, so that the order of the
    source's rows does not matter. Equal times of a user are ordered by a fixed hash of the pair,
    which is the tie rule of every temporal split. Item indices would bias the split: on ML-100K low
    indices are popular films. If the test item is the newest with the highest index, GMF's HR@10 is
    0.78; with the lowest index 0.84; with the hash 0.81.
    """

    users: Ints
    items: Ints
    ratings: Floats | None
    times: Longs | None
    """Seconds since 1970."""
    user_ids: Ids
    item_ids: Ids
    item_order: Ints
    """Items by first appearance in the source, which is how published splits number them."""
    item_texts: Ids | None = None
    item_categories: Ids | None = None
    """One tuple of names per item."""
    item_bodies: Ids | None = None
    """Long texts, if items have more than a title."""
    user_features: dict[str, Ids] = field(default_factory=dict)
    user_records: Longs | None = None
    """Rows of each user in the source, repeated pairs included; for filters."""
    name: str = "given"
    """The name of the dataset, or "given" if it is not an unchanged named dataset."""
    notes: tuple[str, ...] = ()
    """What reading and filtering changed, for display."""
    reading: tuple[str, ...] = ()
    """How the file was read: the column of every role, unused columns, and assumptions."""
    read_facts: ReadFacts | None = None
    """The same for programs, if the data is a single file or data frame."""

    @classmethod
    def from_columns(
        cls,
        user_id: Sequence[object] | Ids | CodedColumn,
        item_id: Sequence[object] | Ids | CodedColumn,
        rating: Sequence[float] | Ids | None = None,
        timestamp: Sequence[float] | Ids | None = None,
        *,
        keep: str = "newest",
        notes: tuple[str, ...] = (),
        reading: tuple[str, ...] = (),
        read_facts: ReadFacts | None = None,
    ) -> Interactions:
        """Index the ids, merge repeated pairs (keep the `newest` or the `oldest`), sort."""
        user_ids, users, _ = number(user_id, "user_id")
        item_ids, items, item_order = number(item_id, "item_id")
        if keep not in ("newest", "oldest", "error"):
            raise UnknownName("policy for repeated pairs", keep, ("newest", "oldest", "error"))
        ratings: Floats | None = None
        if rating is not None:
            ratings = _checked("rating", rating, -LARGEST, LARGEST).astype(np.float32)
        times: Longs | None = None
        if timestamp is not None:
            times = _checked("timestamp", timestamp, 0, LATEST).astype(np.int64)
        _check_lengths(user_id=users, item_id=items, rating=ratings, timestamp=times)
        order = canonical_order(users, items, times, ratings)
        kept = order[_one_per_pair(users[order], items[order], len(item_ids), keep)]
        if len(kept) < len(order) and keep == "error":
            row = np.setdiff1d(order, kept)[0]
            raise DataError(
                f"row {row}: user {user_ids[users[row]]!s} and item {item_ids[items[row]]!s} "
                "occur more than once; expected distinct pairs. "
                "Remove one or set duplicates=newest."
            )
        if merged := len(order) - len(kept):
            kept_row = keep if times is not None else ROW_WITHOUT_TIMES[keep]
            what = "repeated user-item pairs merged"
            notes = (*notes, f"{merged:,} {what}, the {kept_row} of each kept")
        records = np.bincount(users, minlength=len(user_ids))
        data = cls(
            users,
            items,
            ratings,
            times,
            user_ids,
            item_ids,
            item_order,
            user_records=records,
            notes=notes,
            reading=reading,
            read_facts=read_facts,
        )
        return data.select(kept)

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, *, keep: str = "newest", **columns: str
    ) -> Interactions:
        """From a data frame; `user_id="userId"` gives the name of a column that differs.

        Other columns are found by common names, as in files.
        """
        names = [str(name) for name in frame.columns]
        roles = assign_columns(FRAME, names, columns)
        present = {role: frame.iloc[:, at] for role, at in roles.positions.items()}
        for role, column in present.items():
            if len(bad := np.flatnonzero(column.isna().to_numpy())):
                raise DataError(
                    f"row {bad[0]}: column {roles.name(role)!r} is {column.to_numpy()[bad[0]]!r}; "
                    "expected a value. Drop or fill the row."
                )
        reading = list(roles.described())
        times = frame_times(present["timestamp"]) if "timestamp" in present else None
        if times is not None:
            reading.append(f"times: {roles.name('timestamp')!r} has {times.note}")
        return cls.from_columns(
            present["user_id"].to_numpy(),
            present["item_id"].to_numpy(),
            present["rating"].to_numpy() if "rating" in present else None,
            None if times is None else times.seconds,
            keep=keep,
            reading=tuple(reading),
            read_facts=ReadFacts(rows=len(frame), skipped=(), columns=roles.used()),
        )

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return (
            f"Interactions({self.name}: {self.n_users:,} users, "
            f"{self.n_items:,} items, {len(self):,} interactions)"
        )

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    @property
    def rows(self) -> Rows:
        return Rows.build(self.users, self.items, self.n_users)

    def fingerprint(self) -> str:
        """A hash of everything that training and evaluation can depend on."""
        digest = hashlib.blake2b(digest_size=16)
        for column in (self.users, self.items, self.ratings, self.times):
            digest.update(b"-" if column is None else np.ascontiguousarray(column).tobytes())
        texts: list[Ids] = [self.user_ids, self.item_ids, self.item_order]
        for feature in sorted(self.user_features):
            digest.update(feature.encode())
            texts.append(self.user_features[feature])
        of_items = (self.item_texts, self.item_categories, self.item_bodies)
        texts += [values for values in of_items if values is not None]
        for values in texts:
            digest.update("\x1f".join(map(str, values)).encode(errors="surrogatepass") + b"\x1e")
        return digest.hexdigest()

    def pairs(self) -> Longs:
        """One number per (user, item) pair."""
        return self.users.astype(np.int64) * self.n_items + self.items

    def select(self, which: Bools | Longs) -> Interactions:
        """A subset of the interactions; users and items keep their indices, also without any."""
        return replace(
            self,
            users=np.ascontiguousarray(self.users[which], np.int32),
            items=np.ascontiguousarray(self.items[which], np.int32),
            ratings=None if self.ratings is None else self.ratings[which],
            times=None if self.times is None else self.times[which],
            name="given",
        )

    def without_ratings(self) -> Interactions:
        return self if self.ratings is None else replace(self, ratings=None)

    def compact(self) -> Interactions:
        """Drop users and items without interactions, and renumber the others."""
        users, new_users = np.unique(self.users, return_inverse=True)
        items, new_items = np.unique(self.items, return_inverse=True)
        return replace(
            self,
            users=new_users.astype(np.int32),
            items=new_items.astype(np.int32),
            user_ids=self.user_ids[users],
            item_ids=self.item_ids[items],
            item_order=_renumbered(self.item_order, items),
            item_texts=None if self.item_texts is None else self.item_texts[items],
            item_categories=None if self.item_categories is None else self.item_categories[items],
            item_bodies=None if self.item_bodies is None else self.item_bodies[items],
            user_features={name: values[users] for name, values in self.user_features.items()},
            user_records=None if self.user_records is None else self.user_records[users],
        )

    def of_users(self, users: Ints | Longs) -> Interactions:
        """The interactions of some users (ascending), who are renumbered; items are not."""
        chosen = self.select(np.isin(self.users, users))
        return replace(
            chosen,
            users=np.searchsorted(users, chosen.users).astype(np.int32),
            user_ids=self.user_ids[users],
            user_features={name: values[users] for name, values in self.user_features.items()},
            user_records=None if self.user_records is None else self.user_records[users],
        )

    def describe_items(
        self,
        texts: Mapping[str, str],
        categories: Mapping[str, tuple[str, ...]],
        bodies: Mapping[str, str] = MappingProxyType({}),
    ) -> Interactions:
        """Attach texts, categories and bodies by external id; missing items get an empty entry."""
        names = [str(i) for i in self.item_ids]
        return replace(
            self,
            item_texts=objects([texts.get(n, "") for n in names]) if texts else None,
            item_categories=objects([categories.get(n, ()) for n in names]) if categories else None,
            item_bodies=objects([bodies.get(n, "") for n in names]) if bodies else None,
        )

    def describe_users(self, features: dict[str, dict[str, str]]) -> Interactions:
        """Attach features given as {feature: {external id: value}}."""
        names = [str(u) for u in self.user_ids]
        columns = {
            feature: objects([values.get(name, "") for name in names])
            for feature, values in features.items()
        }
        return replace(self, user_features=columns)

    def note(self, text: str) -> Interactions:
        return replace(self, notes=(*self.notes, text))

    def to_frame(self) -> pd.DataFrame:
        import pandas as pd

        columns = {"user_id": self.user_ids[self.users], "item_id": self.item_ids[self.items]}
        if self.ratings is not None:
            columns["rating"] = self.ratings
        if self.times is not None:
            columns["timestamp"] = self.times
        return pd.DataFrame(columns)


def contains(pairs: Longs, wanted: Longs) -> Bools:
    """Mask of the `wanted` that are in `pairs`; thirteen times faster than np.isin on millions."""
    if not len(pairs):
        return np.zeros(len(wanted), bool)
    ordered = np.sort(pairs)
    positions = np.searchsorted(ordered, wanted)
    hits: Bools = ordered[np.minimum(positions, len(ordered) - 1)] == wanted
    return hits


def _checked(name: str, values: Sequence[float] | Ids, least: float, most: float) -> np.ndarray:
    """Numbers within a range; the first that is not raises an error."""
    try:
        numbers = np.asarray(values)
        numbers = numbers if numbers.dtype.kind in "iu" else np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"column {name!r} contains a value that is not a number; expected numbers. Convert it."
        ) from None
    good = (numbers >= least) & (numbers <= most)
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(
            f"row {row}: column {name!r} is {numbers[row].item()!r}; "
            f"expected a number from {least:g} to {most:g}. Fix it."
        )
    return numbers


def canonical_order(
    users: Ints, items: Ints, times: Longs | None, ratings: Floats | None = None
) -> Longs:
    """Order by user, then time, then the fixed hash of the pair.

    A pair that occurs twice at the same time is ordered by rating.
    """
    if times is None:
        # One sort of pairs is twice as fast as np.lexsort((items, users)), with the same result.
        width = int(items.max(initial=0)) + 1
        return np.argsort(users.astype(np.int64) * width + items, kind="stable")
    pairs = users.astype(np.uint64) << np.uint64(32) | items.astype(np.uint64)
    last = () if ratings is None else (ratings,)
    return np.lexsort((*last, streams.mix_array(pairs), times, users))


def _one_per_pair(users: Ints, items: Ints, n_items: int, keep: str) -> Longs:
    """Positions of the rows to keep. Rows are in canonical order, so that later means newer."""
    pairs = users.astype(np.int64) * n_items + items
    by_pair = np.argsort(pairs, kind="stable")
    change = np.flatnonzero(np.diff(pairs[by_pair])) if len(pairs) else np.zeros(0, np.int64)
    first = np.concatenate([[0], change + 1]) if len(pairs) else change
    last = np.concatenate([change, [len(pairs) - 1]]) if len(pairs) else change
    return np.sort(by_pair[last if keep == "newest" else first])


def _renumbered(order: Ints, kept: Ints) -> Ints:
    new_index = np.full(len(order), -1, np.int32)
    new_index[kept] = np.arange(len(kept), dtype=np.int32)
    return new_index[order][new_index[order] >= 0]


def objects(values: Sequence[object]) -> Ids:
    """A one-dimensional object array, also if the values are tuples."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _check_lengths(**columns: Ids | None) -> None:
    lengths = {name: len(c) for name, c in columns.items() if c is not None}
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"columns have different lengths ({lengths}); expected one value per interaction. "
            "Pass columns of equal length."
        )
