"""Coterie: federated recommendation. Training data stays on users' devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.version import __version__

if TYPE_CHECKING:
    from coterie.api import choose, compare, load, run
    from coterie.core.fixed_point import quantise
    from coterie.data.interactions import Interactions
    from coterie.errors import CoterieError
    from coterie.evaluation.list_metrics import Metric, RankedLists
    from coterie.experiments.finished_run import Recommendation, Run
    from coterie.experiments.reasons import Reason

__all__ = [
    "CoterieError",
    "Interactions",
    "Metric",
    "RankedLists",
    "Reason",
    "Recommendation",
    "Run",
    "__version__",
    "choose",
    "compare",
    "load",
    "quantise",
    "run",
]

_MODULE_OF = {
    "CoterieError": "coterie.errors",
    "Interactions": "coterie.data.interactions",
    "Metric": "coterie.evaluation.list_metrics",
    "RankedLists": "coterie.evaluation.list_metrics",
    "Reason": "coterie.experiments.reasons",
    "Recommendation": "coterie.experiments.finished_run",
    "Run": "coterie.experiments.finished_run",
    "choose": "coterie.api",
    "compare": "coterie.api",
    "load": "coterie.api",
    "quantise": "coterie.core.fixed_point",
    "run": "coterie.api",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that `import coterie` stays fast."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
