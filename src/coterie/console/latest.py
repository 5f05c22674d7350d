"""The large files that were read last, so that a page which asks again need not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

Read = TypeVar("Read")
FileStamp = tuple[Path, int, int]

MOST = 2
"""Files that are remembered; each may have hundreds of megabytes."""


@dataclass(slots=True)
class Latest(Generic[Read]):
    """What a function read of a folder, as long as a file in it has not changed."""

    read: Callable[[Path], Read]
    name: str
    known: dict[FileStamp, Read] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, folder: Path) -> Read:
        """Read at most once at a time: a second page waits for the first one's reading."""
        with self.lock:
            stamp = self._stamp(folder)
            found = self.known.pop(stamp, None) if stamp in self.known else self.read(folder)
            assert found is not None
            self.known[stamp] = found
            for old in list(self.known)[:-MOST]:
                del self.known[old]
            return found

    def _stamp(self, folder: Path) -> FileStamp:
        try:
            about = (folder / self.name).stat()
        except OSError:
            return folder, 0, 0
        return folder, about.st_mtime_ns, about.st_size
