"""Vectors and slopes of towers, for as many rows as there are in one go. Everything goes in and comes out as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie import streams
from coterie.content import Content
from coterie.draws import Keys
from coterie.learners.batched import find_device
from coterie.texts import Ragged
from coterie.towers import Net, Shapes
from coterie.towers.matching import losses
from coterie.towers.reading import Batch, batch, dropout
from coterie.towers.requests import Requests
from coterie.towers.settings import TwoTowers
from coterie.types import Floats, Ints

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CHUNK = 512
"""Rows at a time where a whole catalogue is embedded."""


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
        drawn = [streams.at(seed, f"start {what} {name}").standard_normal(shape) for name, shape in self.shapes.items()]
        return (np.concatenate([values.ravel() for values in drawn]) * self.settings.start_scale).astype(np.float32)

    # Vectors

    def vectors(self, parameters: Floats, read: Ragged, content: Content, keys: Keys | None = None) -> Floats:
        """(n, k) of everything read; with keys, units are hidden as in training."""
        with at_work(self.settings.device) as device:
            import torch

            net = self._net(parameters, device)
            with torch.no_grad():
                made = [self.settings.kind.embed(net, part) for part in self._batches(read, content, keys, device)]
            whole: Floats = torch.cat(made).cpu().numpy()
        return whole

    def directions(self, parameters: Floats, read: Ragged, content: Content) -> Floats:
        """The same, of length one: their product is the cosine."""
        made = self.vectors(parameters, read, content)
        lengths = np.sqrt((made * made).sum(axis=1, keepdims=True))
        whole: Floats = (made / np.maximum(lengths, 1e-8)).astype(np.float32)
        return whole

    # Slopes

    def of_people(
        self, parameters: Floats, read: Ragged, content: Content, keys: Keys, items: Floats, drawn: Requests
    ) -> tuple[Floats, Floats]:
        """Of the sum of everybody's loss: by the user tower (size,), and by the item vectors that each was given (n, T, k)."""
        with at_work(self.settings.device) as device:
            import torch

            given = torch.tensor(items, device=device, requires_grad=True)
            net, flat = self._followed(parameters, device)
            people = self.settings.kind.embed(net, self._batch(read, content, keys, device))
            by = torch.autograd.grad(self._loss(people, given, drawn), (flat, given))
            slopes, cut = (slope.cpu().numpy() for slope in by)
        return slopes, cut

    def of_items(self, parameters: Floats, read: Ragged, content: Content, keys: Keys, cut: Floats) -> Floats:
        """Back from the slopes by the items' vectors (n, k) through the item tower."""
        with at_work(self.settings.device) as device:
            import torch

            net, flat = self._followed(parameters, device)
            made = self.settings.kind.embed(net, self._batch(read, content, keys, device))
            (slopes,) = torch.autograd.grad(made, (flat,), torch.tensor(cut, device=device))
            whole: Floats = slopes.cpu().numpy()
        return whole

    def of_both(
        self,
        towers: tuple[Floats, Floats],
        people: tuple[Ragged, Keys],
        items: tuple[Ragged, Keys],
        content: Content,
        places: Ints,
        drawn: Requests,
    ) -> tuple[Floats, Floats]:
        """Of the sum of everybody's loss by both towers; places[k, j] is the row of items that k is given as its j-th."""
        with at_work(self.settings.device) as device:
            import torch

            (user_net, user_flat), (item_net, item_flat) = (self._followed(flat, device) for flat in towers)
            u = self.settings.kind.embed(user_net, self._batch(people[0], content, people[1], device))
            v = self.settings.kind.embed(item_net, self._batch(items[0], content, items[1], device))
            loss = self._loss(u, v[torch.from_numpy(places.astype(np.int64)).to(device)], drawn)
            by = torch.autograd.grad(loss, (user_flat, item_flat))
            of_users, of_items = (slope.cpu().numpy() for slope in by)
        return of_users, of_items

    def _loss(self, people: Tensor, items: Tensor, drawn: Requests) -> Tensor:
        import torch

        clicked, there = (torch.from_numpy(a).to(people.device) for a in (drawn.clicked, drawn.there))
        return losses(people, items, clicked, there, self.settings.smoothing).sum()

    def _batches(self, read: Ragged, content: Content, keys: Keys | None, device: torch.device) -> Iterator[Batch]:
        for first in range(0, max(len(read), 1), CHUNK):
            rows = np.arange(first, min(first + CHUNK, len(read)))
            yield self._batch(read.take(rows), content, None if keys is None else keys[rows], device)

    def _batch(self, read: Ragged, content: Content, keys: Keys | None, device: torch.device) -> Batch:
        kind, settings = self.settings.kind, self.settings
        kept = None if keys is None else dropout(keys, kind.hidden(settings.widths), settings.dropout, device)
        return batch(read, content.letters if kind.reads == "words" else None, kept, device)

    def _net(self, flat: Any, device: torch.device) -> Net:
        import torch

        whole = flat if isinstance(flat, torch.Tensor) else torch.tensor(flat, device=device)
        sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        named = zip(self.shapes.items(), torch.split(whole, sizes), strict=True)
        return {name: part.reshape(shape) for (name, shape), part in named}

    def _followed(self, flat: Floats, device: torch.device) -> tuple[Net, Tensor]:
        """The parameters by name, and the array that slopes are asked for."""
        import torch

        whole = torch.tensor(flat, device=device, requires_grad=True)
        return self._net(whole, device), whole


@dataclass(frozen=True, slots=True)
class Moved:
    """A tower, and what Adam remembers of its slopes."""

    parameters: Floats
    mean: Floats
    square: Floats


def fedadam(before: Moved, slopes: Floats, settings: TwoTowers, rate: float) -> Moved:
    """Reddi et al. 2021 as in Eqs. 13 and 15, but *down* the slope, and with sqrt(v) + tau as in Eq. 15."""
    with at_work(settings.device) as device:
        import torch

        arrays = before.parameters, before.mean, before.square, slopes
        parameters, mean, square, by = (torch.tensor(array, device=device) for array in arrays)
        mean.mul_(settings.beta1).add_(by, alpha=1 - settings.beta1)
        square.mul_(settings.beta2).addcmul_(by, by, value=1 - settings.beta2)
        parameters.addcdiv_(mean, square.sqrt().add_(settings.tau), value=-rate)
        return Moved(*(moved.cpu().numpy() for moved in (parameters, mean, square)))


@contextmanager
def at_work(name: str) -> Iterator[torch.device]:
    """Matrix products sum in another order with more threads: with one, any setting gives the same bits."""
    device = find_device(name)
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield device
    finally:
        torch.set_num_threads(before)
