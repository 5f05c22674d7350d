"""Compiled inner loops. One family a file, imported only when needed; each has a slow obvious twin in the tests.

Rules: `nogil=True, cache=True`, one explicit signature that accepts read-only inputs, no fastmath, no parallel=True, so
that the same seed gives the same bits. Numba's disk cache does not notice an edit of a helper in another file: the
cache folder is therefore named by a hash of all kernel sources. Where Numba is not installed, `fallback` stands in.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
from pathlib import Path
from types import ModuleType

from coterie.core.paths import cache_folder
from coterie.core.progress import SILENT, Progress

_loaded: dict[str, ModuleType] = {}


def load(name: str, progress: Progress = SILENT) -> ModuleType:
    """Import a kernel family; the first time on a machine it is compiled, which takes seconds and is said."""
    if name not in _loaded:  # asked for many times a round: only the first one looks at files
        _loaded[name] = _import(name, progress)
    return _loaded[name]


def _import(name: str, progress: Progress) -> ModuleType:
    try:
        import numba
    except ModuleNotFoundError as error:
        if error.name != "numba":  # it is there and broken: slow training would only hide that
            raise
        return _stand_in(name, progress)
    folder = _folder()
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    ready = folder / f"{name}.ready"
    if ready.exists():
        return importlib.import_module(f"coterie.kernels.{name}")
    with progress.task(f"Compiling the {name} kernels (first start only)", None):
        module = importlib.import_module(f"coterie.kernels.{name}")
    with contextlib.suppress(OSError):  # nowhere to keep it: compile again next time
        ready.parent.mkdir(parents=True, exist_ok=True)
        ready.touch()
    return module


def _stand_in(name: str, progress: Progress) -> ModuleType:
    """Plain NumPy in place of a kernel family, on a machine without Numba."""
    try:
        module = importlib.import_module(f"coterie.kernels.fallback.{name}")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"the {name} kernels need Numba, which is not installed, and nothing stands in for them. Run: pip install numba",
            name="numba",
        ) from None
    progress.log(
        f"Numba is not installed: plain NumPy, which is slower, stands in for the {name} kernels."
    )
    return module


def _folder() -> Path:
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return cache_folder() / "kernels" / digest.hexdigest()
