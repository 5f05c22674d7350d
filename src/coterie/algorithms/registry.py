"""Every algorithm by name.

A line in `ALGORITHMS` puts a file into the command line, the docs and the conformance tests. Other
packages add algorithms by the entry point `coterie.algorithms`: see `coterie.core.plugins`.
"""

from __future__ import annotations

import importlib

from coterie.algorithms.algorithm import Algorithm
from coterie.core import plugins
from coterie.errors import UnknownName

ALGORITHMS: dict[str, str] = {
    "fedavg": "coterie.algorithms.fedavg",
    "fedfast": "coterie.algorithms.fedfast",
    "fedavg+actvsamp": "coterie.algorithms.fedfast:ACTVSAMP_ALONE",
    "fedavg+actvagg": "coterie.algorithms.fedfast:ACTVAGG_ALONE",
    "fedbso": "coterie.algorithms.fedbso",
    "sfpl": "coterie.algorithms.fpl:SEQUENTIAL",
    "sfpl+": "coterie.algorithms.fpl:SEQUENTIAL_PLUS",
    "pfpl": "coterie.algorithms.fpl:PARALLEL",
    "pfpl+": "coterie.algorithms.fpl:PARALLEL_PLUS",
    "fedals": "coterie.algorithms.fedals",
    "fedrecon": "coterie.algorithms.fedrecon",
    "fedncf": "coterie.algorithms.fedncf",
    "fedmf": "coterie.algorithms.fedmf",
    "colr": "coterie.algorithms.colr",
    "lightfr": "coterie.algorithms.lightfr",
    "fedease": "coterie.algorithms.fedease",
    "fedslim": "coterie.algorithms.fedslim",
    "fcf": "coterie.algorithms.fcf",
    "fedmvmf": "coterie.algorithms.fedmvmf",
    "pfedrec": "coterie.algorithms.pfedrec",
    "gpfedrec": "coterie.algorithms.gpfedrec",
    "fedrap": "coterie.algorithms.fedrap",
    "fl-dssm": "coterie.algorithms.fltowers:DSSM",
    "fl-clsm": "coterie.algorithms.fltowers:CLSM",
    "sttfedrec-dssm": "coterie.algorithms.sttfedrec:DSSM",
    "sttfedrec-clsm": "coterie.algorithms.sttfedrec:CLSM",
    "random": "coterie.baselines.random",
    "popular": "coterie.baselines.popular",
    "bpr": "coterie.baselines.bpr",
    "gmf": "coterie.baselines.gmf",
    "neumf": "coterie.baselines.neumf",
    "als": "coterie.baselines.als",
    "ease": "coterie.baselines.ease",
    "slim": "coterie.baselines.slim",
    "userknn": "coterie.baselines.neighbours:BY_USERS",
    "itemknn": "coterie.baselines.neighbours:BY_ITEMS",
    "multivae": "coterie.baselines.multivae",
    "lightgcn": "coterie.baselines.lightgcn",
    "dssm": "coterie.baselines.towers:DSSM",
    "clsm": "coterie.baselines.towers:CLSM",
}


def names() -> list[str]:
    """The names of all algorithms: Coterie's own, then those of plug-ins."""
    return [*ALGORITHMS, *plugins.names(plugins.ALGORITHMS, ALGORITHMS)]


def algorithm(name: str) -> Algorithm:
    """The algorithm of that name. Its file is imported only now."""
    if name not in ALGORITHMS:
        if name not in names():
            raise UnknownName("algorithm", name, names())
        return plugins.load(plugins.ALGORITHMS, name, Algorithm)
    _, _, value = ALGORITHMS[name].partition(":")
    loaded = getattr(importlib.import_module(module_of(name)), value or "ALGORITHM")
    assert isinstance(loaded, Algorithm)
    return loaded


def module_of(name: str) -> str:
    """The module of one of Coterie's own algorithms; "" for any other."""
    return ALGORITHMS.get(name, "").partition(":")[0]


def serves_new_users(name: str) -> bool:
    """Whether the algorithm can recommend to users who were not in training."""
    return algorithm(name).score_new_user is not None


def item_based() -> list[str]:
    """The algorithms whose recommendations name the items of the history they come from."""
    return [name for name in names() if algorithm(name).item_based]
