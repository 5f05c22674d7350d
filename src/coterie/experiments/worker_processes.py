"""Worker processes that help to run plans.

All processes look for unfinished cells in the same folder and lock the one they run, so that a
worker that dies costs one cell, which another process runs again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context

from coterie.core.parent_process import exit_with_parent
from coterie.errors import ConfigError, CoterieError

THREADS = ("COTERIE_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def check_workers(workers: int) -> None:
    """Refuse a number of processes that makes no sense."""
    if workers < 1:
        raise ConfigError(
            f"workers is {workers}; expected at least 1 process. Change it with --workers N."
        )


@contextmanager
def helped_by(workers: int, work: Callable[[], object]) -> Iterator[None]:
    """Run the body with `workers - 1` more processes that call `work`.

    The processes share the cores: each uses its part of the threads. `work` must be picklable.
    """
    check_workers(workers)
    if workers == 1:
        yield
        return
    with _share_of_threads(workers):
        spawn = get_context("spawn")
        processes = [
            spawn.Process(target=_quietly, args=(work,), daemon=True) for _ in range(workers - 1)
        ]
        for process in processes:
            process.start()
        try:
            yield
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()


def _quietly(work: Callable[[], object]) -> None:
    """An error is raised again by the main process, which runs the cell itself."""
    exit_with_parent()
    try:
        work()
    except (CoterieError, KeyboardInterrupt):
        return


@contextmanager
def _share_of_threads(workers: int) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in THREADS}
    threads = max((os.cpu_count() or 1) // workers, 1)
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
