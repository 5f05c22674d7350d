"""Coterie: recommenders that learn across people's devices while what people did stays with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.version import __version__

if TYPE_CHECKING:
    from coterie.api import load, run
    from coterie.core.fixed_point import quantise
    from coterie.data.interactions import Interactions
    from coterie.errors import CoterieError
    from coterie.experiments.run import Recommendation, Run

__all__ = [
    "CoterieError",
    "Interactions",
    "Recommendation",
    "Run",
    "__version__",
    "load",
    "quantise",
    "run",
]

_HOMES = {
    "CoterieError": "coterie.errors",
    "Interactions": "coterie.data.interactions",
    "Recommendation": "coterie.experiments.run",
    "Run": "coterie.experiments.run",
    "load": "coterie.api",
    "quantise": "coterie.core.fixed_point",
    "run": "coterie.api",
}


def __getattr__(name: str) -> Any:
    """Public names are imported on first use: `import coterie` stays fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
