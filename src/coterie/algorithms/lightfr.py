"""LightFR: users and items are codes of bits, learned without gradients.

Zhang, Luo, Wu, He, Li. LightFR: lightweight federated recommendation with privacy-preserving matrix
factorization. ACM Transactions on Information Systems 41(4), 2023 (arXiv:2206.11743). With b_u and
d_i vectors of k entries +1 and -1, and ratings r scaled to the interval from -k to k:

    minimise sum over ratings of (r_ui - b_u . d_i)^2

    foreach round
        S sends D to the clients
        each, until no bit of its own code changes, bit by bit:
            b_uj <- sign( sum_i (r_ui - b_u . d_i) d_ij + 2 lambda n_u b_uj )
        and sends for its items and a bit j    (r_ui - b_u . d_i) b_uj
        S adds up, with n_i clients that have item i
            d_ij <- sign( sum_u (r_ui - b_u . d_i) b_uj + w n_i d_ij )

With lambda = 1/2 and w = 1 a bit gets the value with the least error, all other bits being as they
are (discrete coordinate descent). A larger factor holds on to the old value.

A model of k bits has a thirty-second of the bytes of k single-precision numbers, and a score is a
count of differing bits. The number that a client sends is an integer.

What paper and authors' code (hongleizhang/LightFR) leave open, or what differs here. The paper's
text was not at hand beyond its abstract; the box above is that of the code:

- `bits_per_round`: in the authors' simulation the server asks for one bit of one item after the
  other, until none changes: thousands of messages a round, which only a simulation can afford. Here
  a round is one message and changes this many bits of every item, in turns. With 1 the descent is
  exact; several at once need `item_inertia`.
- `item_inertia`: w. `inertia_by=cohort` takes all clients of the round for n_i, as the authors'
  code does; then an item that few rated hardly ever changes.
- `low_ratings`: the authors' code takes ratings that are scaled to zero or less for missing
  (`dropped`), so that a user's dislikes do not count.
- Implicit feedback has targets k, and -k for drawn negatives. An item that was drawn twice counts
  once.
- The authors' code stops when the error no longer falls; ours after so many rounds.
- Users of a round are drawn without replacement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from coterie import kernels
from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local.samples import Samples, draw_from
from coterie.algorithms.local.settings import CohortSettings
from coterie.core import parallel, streams
from coterie.core.records import Record
from coterie.core.settings import DataSize, SearchSpace
from coterie.federated.federation import (
    ON_CLIENTS,
    Accepted,
    ClientResult,
    Exchange,
    Federation,
    NodeData,
    PrivateState,
    Sums,
    World,
    unweighted,
)
from coterie.models.binary_codes import BinaryCodes, packed, unpacked
from coterie.models.new_user import NewUser, targets_and_weights
from coterie.types import Floats, Ints, Longs, Message, Octets, Signs, Sizes, Updates


class LightFR(CohortSettings):
    search_space: ClassVar[SearchSpace] = {
        "inertia": (0.3, 3.0),
        "item_inertia": (0.5, 16.0),
        "negatives": [2, 4, 8],
        "bits": [32, 64, 128],
    }

    rounds: int = Field(100, ge=1)
    """Communication rounds."""
    participation: float = Field(0.6, gt=0, le=1)
    """Share of the users in the cohort of a round; 0.6 in the authors' code."""
    bits: int = Field(64, ge=1, le=4096)
    """Length of every code (k); 64 in the authors' code."""
    bits_per_round: int = Field(8, ge=1, le=4096)
    """Bits of every item that a round changes, in turns; at most all."""
    inertia: float = Field(0.6, ge=0)
    """What holds a user's bits (lambda): 0.5 is none; 0.6 in the authors' code."""
    item_inertia: float = Field(4.0, ge=0)
    """What holds an item's bits (w): 1 is none for one bit at a time; 1 in the authors' code."""
    inertia_by: Literal["raters", "cohort"] = "raters"
    """Clients that `item_inertia` counts: those with the item, or all of the round."""
    local_sweeps: int = Field(20, ge=1)
    """Most passes of a client over its bits in a round; the authors' code has no limit."""
    negatives: int = Field(2, ge=1)
    """Negatives drawn per positive (implicit feedback)."""
    lowest_rating: float = Field(1.0, ge=0)
    """The rating that is -k (explicit feedback)."""
    highest_rating: float = Field(5.0, gt=0)
    """The rating that is k (explicit feedback)."""
    low_ratings: Literal["kept", "dropped"] = "kept"
    """Whether ratings below the middle of the scale count, or are taken for missing."""

    @model_validator(mode="after")
    def _ratings_have_a_range(self) -> LightFR:
        if self.lowest_rating >= self.highest_rating:
            raise ValueError(
                f"setting 'lowest_rating' is {self.lowest_rating}, and 'highest_rating' "
                f"{self.highest_rating}; expected a lower one. Set both to those of the data"
            )
        return self

    def for_data(self, size: DataSize) -> Self:
        return self.model_copy(update={"bits_per_round": min(self.bits_per_round, self.bits)})


@dataclass(frozen=True, slots=True)
class LightFRState(Record):
    private: ClassVar[tuple[str, ...]] = ("user_codes",)
    item_codes: Octets  # (items, bytes) D
    user_codes: Octets  # (users, bytes) b, on the clients


def random_codes(keys: np.ndarray, bits: int) -> Octets:
    """Signs of Gaussian numbers, a row for every key."""
    drawn = streams.normal(keys, bits)
    return packed(np.where(drawn > 0, 1, -1).astype(np.int8))


def init(world: World[LightFR]) -> LightFRState:
    keys = streams.keys(world.seed, "start items", last=np.arange(world.n_items))
    return LightFRState(random_codes(keys, world.settings.bits), ON_CLIENTS)


def init_clients(world: World[LightFR], node: NodeData) -> PrivateState:
    """The initial code of every user."""
    keys = streams.keys(node.seed, "start users", last=node.users)
    return {"user_codes": random_codes(keys, world.settings.bits)}


def bits_of(settings: LightFR, t: int) -> Longs:
    """The bits of items that change in round t."""
    return (t * settings.bits_per_round + np.arange(settings.bits_per_round)) % settings.bits


def broadcast(world: World[LightFR], state: LightFRState, cohort: Ints, t: int) -> Message:
    """D"""
    return Message(t, cohort, {"item_codes": state.item_codes}, {})


# Clients set their own bits


def client_update(world: World[LightFR], message: Message, node: NodeData) -> ClientResult:
    """(r_ui - b_u . d_i) b_uj of a client's items and the bits of the round, and its next code."""
    s = world.settings
    keys = streams.keys(node.seed, "samples", message.round, last=message.users)
    samples = draw_from(node.training, node.positions(message.users), s.negatives, 1, keys)
    offsets, items, targets = codes_to_reach(s, samples, node.training.ratings is not None)
    before = unpacked(message.private_state["user_codes"], s.bits)
    after = np.empty_like(before)
    pulls = np.empty((len(items), s.bits_per_round), np.int32)
    item_codes = unpacked(message.common["item_codes"], s.bits)
    kernel = kernels.load("lightfr").train
    parallel.over(
        lambda first, last: kernel(
            offsets,
            items,
            targets,
            before,
            item_codes,
            bits_of(s, message.round),
            s.inertia,
            s.local_sweeps,
            first,
            last,
            after,
            pulls,
        ),
        offsets,
    )
    n = len(message.users)
    none = np.empty((n, 0), np.int32)
    updates = Updates(
        users=message.users,
        samples=np.ones(n, np.int64),
        offsets=offsets,
        items=items,
        item_rows=pulls,
        user_rows=none,
        dense=none,
    )
    return updates, {"user_codes": packed(after)}


def codes_to_reach(s: LightFR, samples: Samples, rated: bool) -> tuple[Longs, Ints, Ints]:
    """Offsets of users, their items, and what b_u . d_i should be: r, a whole number."""
    value = np.empty(len(samples.items), np.float64)
    place = samples.places + np.repeat(samples.offsets[:-1], samples.counts)
    value[place] = samples.targets
    low, high = (s.lowest_rating, s.highest_rating) if rated else (0.0, 1.0)
    share = np.clip((value - low) / (high - low), 0, 1)
    targets = np.rint(s.bits * (2 * share - 1)).astype(np.int32)
    if not rated or s.low_ratings == "kept":
        return samples.offsets, samples.items, targets
    kept = targets > 0
    ends = np.concatenate([[0], np.cumsum(kept)])
    return ends[samples.offsets], samples.items[kept], targets[kept]


def sizes(world: World[LightFR], state: LightFRState) -> Sizes:
    return Sizes(world.n_items, world.settings.bits_per_round, 0, 0)


# S sets the bits of items


def add_up(world: World[LightFR], message: Message, updates: Updates) -> Sums:
    """sum_u (r_ui - b_u . d_i) b_uj, n_i, and the number of clients."""
    sums = fedavg.weigh_by_samples(world, message, updates)
    return {name: sums[name] for name in ("items", "touched", "samples")}


def server_update(
    world: World[LightFR], state: LightFRState, sums: Sums, accepted: Accepted, t: int
) -> LightFRState:
    """d_ij <- sign( sum_u (r_ui - b_u . d_i) b_uj + w n_i d_ij ); a sum of zero changes nothing."""
    s = world.settings
    D = unpacked(state.item_codes, s.bits)
    chosen = bits_of(s, t)
    n = sums["touched"][:, None] if s.inertia_by == "raters" else sums["samples"]
    before = D[:, chosen]
    total = sums["items"] + s.item_inertia * n * before
    D[:, chosen] = np.where(total == 0, before, np.sign(total)).astype(np.int8)
    return replace(state, item_codes=packed(D))


def model(world: World[LightFR], state: LightFRState) -> BinaryCodes:
    """b_u . d_i; with ratings, scaled back to them."""
    s = world.settings
    scale = 1.0
    offset = 0.0
    if world.rated:
        scale = (s.highest_rating - s.lowest_rating) / (2 * s.bits)
        offset = (s.highest_rating + s.lowest_rating) / 2
    return BinaryCodes(
        state.user_codes,
        state.item_codes,
        np.array([s.bits]),
        np.array([scale], np.float32),
        np.array([offset], np.float32),
    )


def score_new_user(model: BinaryCodes, user: NewUser, settings: LightFR) -> Floats:
    """A new user sets the bits of a code as a client does, all other items being negatives.

    They have the weight of drawn ones. The descent starts from the signs of the weighted sum of
    codes. Without items, a bit is that of most users.
    """
    if not len(user.items):
        return model.score_signs(majority(unpacked(model.user_codes, settings.bits)))
    D = unpacked(model.item_codes, settings.bits).astype(np.float64)
    target, weight = targets_and_weights(len(D), user.items, settings.negatives)
    r = settings.bits * (2 * target - 1)
    b = np.where((weight * r) @ D >= 0, 1.0, -1.0)
    for _ in range(settings.local_sweeps):
        before = b.copy()
        for j in range(len(b)):
            pull = (weight * (r - D @ b)) @ D[:, j]
            if (pull + 2 * settings.inertia * weight.sum() * b[j]) * b[j] < 0:
                b[j] = -b[j]
        if (b == before).all():
            break
    return model.score_signs(b.astype(np.int8))


def majority(codes: Signs) -> Signs:
    return np.where(codes.sum(axis=0, dtype=np.int64) >= 0, 1, -1).astype(np.int8)


EXCHANGE: Exchange[LightFRState, LightFR] = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=add_up,
    server_update=server_update,
    sizes=sizes,
    secure_sum=unweighted(by_item=("items", "touched")),
)

ALGORITHM = Algorithm(
    "users and items are codes of bits, set by discrete coordinate descent",
    LightFR,
    Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(EXCHANGE,),
        model=model,
        init_clients=init_clients,
    ),
    state=LightFRState,
    kernels=("lightfr", "samples", "sums", "clusters"),
    explicit=True,
    paper="Zhang et al. 2023",
    score_new_user=score_new_user,
    in_the_clear="numbers of the items it trained on, which give away its code and its history",
)
