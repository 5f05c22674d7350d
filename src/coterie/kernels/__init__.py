"""Compiled inner loops, one family per file, each imported only when it is needed.

A kernel has one explicit signature that accepts read-only inputs, no fastmath and no
parallel=True, so that the same seed gives the same bits; see `common.kernel`. Every kernel has a
slow, obvious twin in the tests. Inner loops index with np.uint64 where it pays: Numba tests whether
a signed index is negative. Numba's disk cache does not notice an edit of a helper in another
file, so the cache folder is named by a hash of all kernel sources. Without Numba, `fallback` is
used instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from coterie.core.paths import cache_folder
from coterie.core.progress import SILENT, Progress

_loaded: dict[str, ModuleType] = {}


def load(name: str, progress: Progress = SILENT) -> ModuleType:
    """Import a kernel family. The first import on a machine compiles it and logs that it does."""
    # Algorithms call this many times per round; only the first call may touch the disk.
    if name not in _loaded:
        _loaded[name] = _import(name, progress)
    return _loaded[name]


def _import(name: str, progress: Progress) -> ModuleType:
    try:
        import numba
    except ModuleNotFoundError as error:
        # Numba is installed but broken: falling back to slow training would hide that.
        if error.name != "numba":
            raise
        return _fallback(name, progress)
    folder = _folder()
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    ready = folder / f"{name}.ready"
    if ready.exists():
        return importlib.import_module(f"coterie.kernels.{name}")
    with (
        progress.task(f"Compiling the {name} kernels (first start only)", None),
        _turn(folder / f"{name}.lock"),
    ):
        module = importlib.import_module(f"coterie.kernels.{name}")
        # If the cache folder cannot be written, the next start compiles again.
        with contextlib.suppress(OSError):
            ready.touch()
    return module


@contextlib.contextmanager
def _turn(lock: Path) -> Iterator[None]:
    """Wait until no other process compiles this family: afterwards it is in the cache.

    A server and its nodes start at the same time. Without locks, each of them compiles.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            lock.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context(lock.open("a")), fcntl.LOCK_EX)
        yield


def _fallback(name: str, progress: Progress) -> ModuleType:
    """The NumPy version of a kernel family, for a machine without Numba."""
    try:
        module = importlib.import_module(f"coterie.kernels.fallback.{name}")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"the {name} kernels need Numba, which is not installed; they have no NumPy fallback. "
            "Run: pip install numba",
            name="numba",
        ) from None
    progress.log(f"Numba is not installed: the {name} kernels use the slower NumPy fallback.")
    return module


def _folder() -> Path:
    """Where this version of the kernels is cached."""
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return cache_folder() / "kernels" / digest.hexdigest()
