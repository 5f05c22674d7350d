"""A ring: members add up numbers through a server that learns the sum and nothing else (STTFedRec, Step 4, made to hold).

Additive shares modulo 2^64 are passed from each member to the next, in boxes that only the next can open (`member`). The paper passes
shares of floating-point gradients as numbers, and one member that vanishes breaks its sum; here integers are added, exactly; what is
passed is a seed; and who vanishes is healed around:

    before it dealt         the ring is formed anew without it, with new seeds, so many times as may be
    before it uploaded      the nearest members on both sides that did take its place: one passes on its share, one mends the sum
    after it uploaded       it counts, and a neighbour says its veil

or the ring is given up and nobody of it counts. That is so when fewer members are left than `fewest`, when somebody vanishes whom there is
nobody to stand in for, and when masks do not cancel: a sum that is larger than it can be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from coterie.federated.secagg.crypto import (
    KEY_BYTES,
    SEED_BYTES,
    TAG_BYTES,
    Lock,
    Seed,
    Words,
    grown,
)
from coterie.federated.secagg.member import Terms
from coterie.types import Bools, Ints

FEWEST = 3
"""Of two, each could tell what the other added."""
ATTEMPTS = 3
"""How often a ring is dealt."""
LARGEST = 1 << 46
"""What one member adds is smaller: a change times a number of samples, or times itself."""

Columns = dict[str, np.ndarray]
Ask = Callable[[str, Ints, Columns], dict[int, Columns]]
"""(stage, users, what each is sent) -> what each that answered said."""


class GivenUp(Exception):
    """Too few are left, or somebody cannot be done without."""


Expected = dict[str, tuple[Any, tuple[int, ...]]]
"""What an answer holds: (dtype, shape) by name."""


class Added(NamedTuple):
    numbers: Words
    users: Ints
    """Who counts, ascending."""
    beside: Columns
    """What they said in the clear, a row for each."""


def fewest(n: int) -> int:
    """Of a ring of n, how many have to stay: half of them, and three."""
    return max(FEWEST, -(-n // 2))


def announced(ask: Ask, users: Ints, beside: Expected) -> dict[int, Columns]:
    """The keys of those who want to be in a ring, and what they say beside."""
    said = heard(ask, "announce", users, {}, {"key": (np.uint8, (KEY_BYTES,))} | beside)
    trial = Lock.fresh()
    said = {user: answer for user, answer in said.items() if trial.fits(answer["key"].tobytes())}
    enough(len(said), fewest(len(users)), "announced themselves")
    return said


@dataclass(frozen=True, slots=True)
class Ring:
    """The server's side. It sees keys, boxes that it cannot open, and uploads behind masks."""

    terms: Terms
    ask: Ask
    at_least: int
    """How many have to stay."""
    beside: Expected = field(default_factory=dict)
    """What members upload in the clear."""
    largest: int = LARGEST

    def add_up(self, keys: dict[int, bytes]) -> Added:
        """The sum over those who stay long enough; keys are in the order of the ring."""
        users, forward, back = self._dealt(keys)
        uploads = self._uploads(users, forward, back)
        counts = np.isin(users, list(uploads))
        enough(int(counts.sum()), self.at_least, "uploaded")
        total: Words = np.zeros(self.terms.length, np.uint64)
        for said in uploads.values():
            total += said["numbers"]
        closed = self._closed(users, counts, keys)
        for veil in self._veils(users, counts, closed):
            total -= grown(veil, self.terms.length)
        for numbers in self._mended(users, counts, keys, closed):
            total += numbers
        there = np.sort(users[counts])
        if (
            np.abs(total.view(np.int64).astype(np.float64)) > float(len(there) * self.largest)
        ).any():
            raise GivenUp("the sum is larger than it can be: something was changed on its way")
        return Added(total, there, {name: _rows(uploads, there, name) for name in self.beside})

    def _dealt(self, keys: dict[int, bytes]) -> tuple[Ints, np.ndarray, np.ndarray]:
        """The ring, and everybody's boxes for the members after and before it."""
        users = np.array(list(keys), np.int32)
        sizes = SEED_BYTES + TAG_BYTES, SEED_BYTES + TAG_BYTES + self._share_bytes
        for attempt in range(ATTEMPTS):
            enough(len(users), self.at_least, "dealt")
            own: Columns = {
                "attempt": np.full(len(users), attempt, np.int32),
                "before": np.roll(users, 1),
                "before_key": _bytes(keys, np.roll(users, 1)),
                "after": np.roll(users, -1),
                "after_key": _bytes(keys, np.roll(users, -1)),
            }
            said = self._said(
                "deal", users, own, back=(np.uint8, (sizes[0],)), forward=(np.uint8, (sizes[1],))
            )
            if len(said) == len(users):
                return users, _rows(said, users, "forward"), _rows(said, users, "back")
            users = users[np.isin(users, list(said))]
        raise GivenUp(f"members vanished {ATTEMPTS} times while the ring was dealt")

    @property
    def _share_bytes(self) -> int:
        return SEED_BYTES if self.terms.way == "seed" else 8 * self.terms.length

    def _uploads(self, users: Ints, forward: np.ndarray, back: np.ndarray) -> dict[int, Columns]:
        own = {"forward": np.roll(forward, 1, axis=0), "back": np.roll(back, -1, axis=0)}
        return self._said(
            "upload", users, own, numbers=(np.uint64, (self.terms.length,)), **self.beside
        )

    def _closed(self, users: Ints, counts: Bools, keys: dict[int, bytes]) -> dict[int, Columns]:
        """What those who count say when they are told so."""
        there = users[counts]
        own: Columns = {
            "before_counts": np.roll(counts, 1)[counts].astype(np.uint8),
            "after_counts": np.roll(counts, -1)[counts].astype(np.uint8),
            "after": np.roll(there, -1),
            "after_key": _bytes(keys, np.roll(there, -1)),
        }
        around = SEED_BYTES + TAG_BYTES
        return self._said(
            "close", there, own, veil=(np.uint8, (SEED_BYTES,)), forward=(np.uint8, (around,))
        )

    def _veils(self, users: Ints, counts: Bools, closed: dict[int, Columns]) -> list[Seed]:
        """Of everybody who counts: from itself, or from a neighbour that is still there."""
        known = {user: Seed(said["veil"].tobytes()) for user, said in closed.items()}
        for stage, neighbours in (
            ("reveal before", np.roll(users, -1)),
            ("reveal after", np.roll(users, 1)),
        ):
            lost = counts & ~np.isin(users, list(known)) & np.isin(neighbours, list(closed))
            if lost.any():
                said = self._said(stage, neighbours[lost], {}, veil=(np.uint8, (SEED_BYTES,)))
                known |= {
                    user: Seed(said[by]["veil"].tobytes())
                    for user, by in zip(
                        users[lost].tolist(), neighbours[lost].tolist(), strict=True
                    )
                    if by in said
                }
        if len(known) < counts.sum():
            raise GivenUp(
                f"{counts.sum() - len(known)} members and their neighbours vanished after they uploaded"
            )
        return list(known.values())

    def _mended(
        self, users: Ints, counts: Bools, keys: dict[int, bytes], closed: dict[int, Columns]
    ) -> list[Words]:
        """Around everybody who dealt and did not upload."""
        gaps = ~np.roll(counts, 1)[counts]  # before whom of those who count is one who does not
        there = users[counts]
        after = there[gaps]
        before = np.roll(there, 1)[gaps]
        if not len(after):
            return []
        if not np.isin(before, list(closed)).all():
            raise GivenUp("a member that had to pass on its share around another vanished")
        own = {
            "before": before,
            "before_key": _bytes(keys, before),
            "forward": np.stack([closed[b]["forward"] for b in before.tolist()]),
        }
        said = self._said("mend", after, own, numbers=(np.uint64, (self.terms.length,)))
        if len(said) < len(after):
            raise GivenUp("a member that had to mend the sum vanished")
        return [columns["numbers"] for columns in said.values()]

    def _said(
        self, stage: str, users: Ints, own: Columns, **expected: tuple[Any, tuple[int, ...]]
    ) -> dict[int, Columns]:
        return heard(self.ask, stage, users, own, expected)


def heard(
    ask: Ask, stage: str, users: Ints, own: Columns, expected: Expected
) -> dict[int, Columns]:
    """The answers that are what was asked for, in the order of the users; any other is as if it had not come."""
    answers = ask(stage, users, own)
    return {
        user: answers[user]
        for user in users.tolist()
        if user in answers and _is(answers[user], expected)
    }


def enough(n: int, at_least: int, did: str) -> None:
    if n < at_least:
        raise GivenUp(f"{n} members {did}; the ring needs {at_least}")


def _is(columns: Columns, expected: Expected) -> bool:
    return set(columns) == set(expected) and all(
        columns[name].dtype == dtype and columns[name].shape == shape
        for name, (dtype, shape) in expected.items()
    )


def _bytes(keys: dict[int, bytes], users: Ints) -> np.ndarray:
    return np.frombuffer(b"".join(keys[user] for user in users.tolist()), np.uint8).reshape(
        len(users), -1
    )


def _rows(said: dict[int, Columns], users: Ints, name: str) -> np.ndarray:
    return np.stack([said[user][name] for user in users.tolist()])
