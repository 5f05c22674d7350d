"""Towers: networks that embed the text of an item, or the profile of a user, as a vector.

A new tower is a file and a line here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from coterie.data.content import TextEncoding
from coterie.errors import UnknownName

if TYPE_CHECKING:
    from torch import Tensor

    from coterie.algorithms.two_tower.batches import PaddedBatch, TextBatch

TowerParameters: TypeAlias = "dict[str, Tensor]"
"""Parameters of a tower, by name."""
Shapes: TypeAlias = dict[str, tuple[int, ...]]
"""Shapes of the parameters, by name and in the order of the flat array."""

TOWERS = {"dssm": "coterie.algorithms.two_tower.dssm", "clsm": "coterie.algorithms.two_tower.clsm"}


@dataclass(frozen=True, slots=True)
class Tower:
    """An architecture: a record of functions."""

    reads: TextEncoding
    """Whether it reads bags of letter trigrams, or words in their order."""
    layers: tuple[int, ...]
    """Widths of the layers below the vector, as published."""
    shapes: Callable[[int, tuple[int, ...]], Shapes]
    """(inputs, widths of all layers) -> shapes of the parameters"""
    hidden: Callable[[tuple[int, ...]], int]
    """widths -> number of units that dropout applies to"""
    embed: Callable[[TowerParameters, TextBatch], Tensor]
    """(parameters, a batch of n texts) -> vectors (n, widths[-1]), on the CPU"""
    embed_padded: Callable[[TowerParameters, PaddedBatch], Tensor]
    """The same for rows of one length, on a GPU: its shapes do not depend on what is in them."""
    multiplications: Callable[[int, tuple[int, ...], int], int]
    """(inputs, widths of all layers, words of a text) -> multiplications of its forward pass, as
    Section 4.3 counts them: every input of a layer with every unit, zeros included"""


@cache
def tower(name: str) -> Tower:
    """The tower of that name. Its file is imported now and not before."""
    if name not in TOWERS:
        raise UnknownName("tower", name, TOWERS)
    chosen: Tower = importlib.import_module(TOWERS[name]).TOWER
    return chosen
