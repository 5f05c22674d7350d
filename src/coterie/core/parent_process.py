"""Child processes that end with their parent, however that ends."""

from __future__ import annotations

import os
from multiprocessing import parent_process
from threading import Thread


def exit_with_parent() -> None:
    """Called in a child process: end it as soon as its parent has ended.

    A parent that is killed cannot end its children. They would go on alone, and those of a pool
    would wait for their next task for ever.
    """
    Thread(target=_wait_for_parent, name="parent", daemon=True).start()


def _wait_for_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
