"""The cache folder and the data folder on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The platform's cache folder for Coterie."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "coterie"


def data_folder() -> Path:
    """The folder of datasets: COTERIE_DATA, by default inside the cache folder."""
    return Path(os.environ.get("COTERIE_DATA") or cache_folder() / "data").expanduser()
