"""Towers: networks that read what is told about an item or a person and make a vector of it. A new one is a file and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from coterie.data.content import TextEncoding
from coterie.errors import UnknownName

if TYPE_CHECKING:
    from torch import Tensor

    from coterie.algorithms.two_tower.reading import Batch

Net: TypeAlias = "dict[str, Tensor]"
Shapes: TypeAlias = dict[str, tuple[int, ...]]

TOWERS = {"dssm": "coterie.algorithms.two_tower.dssm", "clsm": "coterie.algorithms.two_tower.clsm"}


@dataclass(frozen=True, slots=True)
class Tower:
    reads: TextEncoding
    layers: tuple[int, ...]
    """Widths of the layers below the vector, as published."""
    shapes: Callable[[int, tuple[int, ...]], Shapes]
    """(inputs, widths of all layers) -> of the parameters, by name."""
    hidden: Callable[[tuple[int, ...]], int]
    """widths -> how many units dropout may hide."""
    embed: Callable[[Net, Batch], Tensor]
    """(parameters, what some read) -> a vector for each, (n, widths[-1])."""


def tower(name: str) -> Tower:
    """The tower; its file is imported now and not before."""
    if name not in TOWERS:
        raise UnknownName("tower", name, TOWERS)
    found: Tower = importlib.import_module(TOWERS[name]).TOWER
    return found
