"""Vectors and slopes of towers, for as many rows as there are in one go. Everything goes in and comes out as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.algorithms.local.batched import find_device
from coterie.algorithms.two_tower import Net, Shapes
from coterie.algorithms.two_tower.matching import losses
from coterie.algorithms.two_tower.reading import Batch, batch, dropout
from coterie.algorithms.two_tower.requests import Requests
from coterie.algorithms.two_tower.resident import back, there
from coterie.algorithms.two_tower.settings import TwoTowers
from coterie.core import streams
from coterie.core.parallel import one_torch_thread
from coterie.core.sampling import Keys
from coterie.core.weak_cache import WeakCache
from coterie.data.content import Content
from coterie.data.text import Ragged
from coterie.types import SCALE, Floats, Ints, Longs

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CHUNK = {"cpu": 512, "cuda": 1 << 14}
"""Rows at a time where a whole catalogue is embedded: few stay in a CPU's caches, and a GPU wants many."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Two towers alike, as arrays: how to read with them, and how the loss changes with what they are."""

    settings: TwoTowers

    @property
    def shapes(self) -> Shapes:
        return self.settings.kind.shapes(self.settings.inputs, self.settings.widths)

    @property
    def size(self) -> int:
        """Parameters of one tower."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def start(self, seed: int, what: str) -> Floats:
        """Weights and biases from N(0, start_scale), as the paper says."""
        drawn = [
            streams.at(seed, f"start {what} {name}").standard_normal(shape)
            for name, shape in self.shapes.items()
        ]
        return (
            np.concatenate([values.ravel() for values in drawn]) * self.settings.start_scale
        ).astype(np.float32)

    # Vectors

    def vectors(self, parameters: Floats, read: Read, content: Content) -> Floats:
        """(n, k) of everything read, as in training. The way there is remembered: `of_items` will want to go back on it."""
        with at_work(self.settings.device) as device:
            net, flat = self._followed(parameters, device)
            made = self.settings.kind.embed(net, self._batch(read, content, device))
            WAYS.put(parameters, Way(read, made, flat))
            return back(made.detach())

    def directions(self, parameters: Floats, read: Ragged, content: Content) -> Floats:
        """Of all rows, and of length one: their product is the cosine."""
        with at_work(self.settings.device) as device:
            import torch

            net = self._net(there(parameters, device))
            rows = Read(read, np.arange(len(read)))
            with torch.no_grad():
                parts = [
                    self.settings.kind.embed(net, self._batch(part, content, device))
                    for part in rows.parts(CHUNK[device.type])
                ]
            made = back(torch.cat(parts))
        lengths = np.sqrt((made * made).sum(axis=1, keepdims=True))
        whole: Floats = (made / np.maximum(lengths, 1e-8)).astype(np.float32)
        return whole

    # Slopes

    def of_people(
        self, parameters: Floats, read: Read, content: Content, items: Floats, drawn: Requests
    ) -> Gradients:
        """Of the sum of everybody's loss: by the user tower (size,), and by the item vectors that each was given (n, T, k)."""
        with at_work(self.settings.device) as device:
            import torch

            given = torch.tensor(items, device=device, requires_grad=True)
            net, flat = self._followed(parameters, device)
            people = self.settings.kind.embed(net, self._batch(read, content, device))
            return Gradients.of(
                torch.autograd.grad(self._loss(people, given, drawn), (flat, given))
            )

    def of_items(self, parameters: Floats, read: Read, content: Content, cut: Floats) -> Floats:
        """Back from the slopes by the items' vectors (n, k) through the item tower."""
        way: Way | None = WAYS.get(parameters)
        if way is None or not way.read.same_as(read):
            self.vectors(parameters, read, content)
            way = WAYS.get(parameters)
        with at_work(self.settings.device) as device:
            import torch

            assert way is not None
            WAYS.forget(parameters)
            (gradients,) = torch.autograd.grad(way.made, (way.parameters,), there(cut, device))
            return back(gradients)

    def of_both(
        self,
        towers: tuple[Floats, Floats],
        people: Read,
        items: Read,
        content: Content,
        places: Ints | Longs,
        drawn: Requests,
    ) -> Gradients:
        """Of the sum of everybody's loss by both towers; places[k, j] is the row of items that k is given as its j-th."""
        with at_work(self.settings.device) as device:
            import torch

            (user_net, user_flat), (item_net, item_flat) = (
                self._followed(flat, device) for flat in towers
            )
            u = self.settings.kind.embed(user_net, self._batch(people, content, device))
            v = self.settings.kind.embed(item_net, self._batch(items, content, device))
            loss = self._loss(u, v[there(places.astype(np.int64), device)], drawn)
            return Gradients.of(torch.autograd.grad(loss, (user_flat, item_flat)))

    def _loss(self, people: Tensor, items: Tensor, drawn: Requests) -> Tensor:
        clicked, asked = (there(array, people.device) for array in (drawn.clicked, drawn.there))
        return losses(people, items, clicked, asked, self.settings.smoothing).sum()

    def _batch(self, read: Read, content: Content, device: torch.device) -> Batch:
        kind = self.settings.kind
        settings = self.settings
        keys = read.keys
        keep_mask = (
            None
            if keys is None
            else dropout(keys, kind.hidden(settings.widths), settings.dropout, device)
        )
        return batch(
            read.whole,
            read.rows,
            content.letters if kind.reads == "words" else None,
            keep_mask,
            device,
        )

    def _net(self, flat: Tensor) -> Net:
        sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        named = zip(self.shapes.items(), flat.split(sizes), strict=True)  # type: ignore[no-untyped-call]
        return {name: part.reshape(shape) for (name, shape), part in named}

    def _followed(self, flat: Floats, device: torch.device) -> tuple[Net, Tensor]:
        """The parameters by name, and the array that slopes are asked for."""
        whole = there(flat, device).detach().requires_grad_()
        return self._net(whole), whole


@dataclass(frozen=True, slots=True)
class Read:
    """Some rows of all that there is to read, and the keys of what dropout hides of each."""

    whole: Ragged
    rows: Ints | Longs
    keys: Keys | None = None

    def parts(self, most: int) -> Iterator[Read]:
        for first in range(0, max(len(self.rows), 1), most):
            part = slice(first, first + most)
            yield Read(self.whole, self.rows[part], None if self.keys is None else self.keys[part])

    def same_as(self, other: Read) -> bool:
        same = self.whole is other.whole and np.array_equal(self.rows, other.rows)
        if self.keys is None or other.keys is None:
            return same and self.keys is other.keys
        return same and np.array_equal(self.keys, other.keys)


@dataclass(frozen=True, slots=True)
class Way:
    """How vectors were made of parameters, for going back."""

    read: Read
    made: Tensor
    parameters: Tensor


WAYS = WeakCache()
"""The last one from each parameters: a server keeps what its tower computed until it hears of the slopes."""


UNIT = 16 * SCALE
"""One, in the fixed point of gradients: their entries are small."""
NO_NUMBER = 1 << 62


def in_units(gradients: Tensor) -> Tensor:
    """Whole numbers of units; what is no number becomes one that is far out of range."""
    import torch

    return torch.nan_to_num(
        (gradients.double() * UNIT).round_(), NO_NUMBER, NO_NUMBER, -NO_NUMBER
    ).long()


@dataclass(frozen=True, slots=True)
class Gradients:
    """By two things, in fixed point."""

    first: Longs
    second: Longs
    largest: tuple[int, int]
    """The size of the largest entry of each."""

    @classmethod
    def of(cls, gradients: Sequence[Tensor]) -> Gradients:
        first, second = (in_units(gradient) for gradient in gradients)
        return cls(back(first), back(second), (int(first.abs().max()), int(second.abs().max())))


def summed_at(at: Ints | Longs, rows: np.ndarray, n: int, name: str) -> Longs:
    """(n, k) of rows (..., k) of whole numbers the sum at every place (...)."""
    with at_work(name) as device:
        import torch

        total = torch.zeros((n, rows.shape[-1]), dtype=torch.int64, device=device)
        places = there(at, device).reshape(-1)
        values = there(rows, device).reshape(-1, rows.shape[-1])
        return back(total.index_add_(0, places.long(), values.long()))


def mean_of(gradients: Longs, n: int, name: str) -> Floats:
    """Of n users, as numbers; slopes are their sum in units."""
    with at_work(name) as device:
        return back(_mean_of(there(gradients, device), n))


def _mean_of(gradients: Tensor, n: int) -> Tensor:
    return gradients.double().mul_(1 / (UNIT * n)).float()


@dataclass(frozen=True, slots=True)
class Moved:
    """A tower, and what Adam remembers of its slopes."""

    parameters: Floats
    mean: Floats
    square: Floats


def fedadam(
    before: Moved, gradients: Floats | Longs, n: int, settings: TwoTowers, rate: float
) -> Moved:
    """Reddi et al. 2021 as in Eqs. 13 and 15, but *down* the slope, and with sqrt(v) + tau as in Eq. 15.

    Slopes are those of n users together, as numbers or in units.
    """
    with at_work(settings.device) as device:
        by = there(gradients, device)
        by = _mean_of(by, n) if gradients.dtype == np.int64 else by / n
        mean = there(before.mean, device).mul(settings.beta1).add_(by, alpha=1 - settings.beta1)
        square = (
            there(before.square, device)
            .mul(settings.beta2)
            .addcmul_(by, by, value=1 - settings.beta2)
        )
        parameters = there(before.parameters, device).addcdiv(
            mean, square.sqrt().add_(settings.tau), value=-rate
        )
        return Moved(back(parameters), back(mean), back(square))


@contextmanager
def at_work(name: str) -> Iterator[torch.device]:
    """Matrix products sum in another order with more threads: with one, any setting gives the same bits."""
    device = find_device(name)
    with one_torch_thread():
        yield device
