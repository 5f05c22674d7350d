"""Keeps the newest model loaded: a changed one is loaded beside the old one, then replaces it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from coterie.errors import CoterieError
from coterie.serving.model import ServedModel
from coterie.serving.sources import ModelSource, Stamp
from coterie.types import JsonObject

RETRY_SECONDS = 30.0
"""A model that could not be loaded is tried again after this long, or when it changes."""


@dataclass(frozen=True, slots=True)
class FailedLoad:
    error: str
    at: datetime


@dataclass(slots=True)
class ModelWatcher:
    """The model that requests use. A request reads `current` once and keeps what it read."""

    source: ModelSource
    log: Callable[[str], None] = lambda line: None
    current: ServedModel = field(init=False)
    failed: FailedLoad | None = None
    tried: Stamp = ()
    """The stamp of the last model that was loaded or failed to load."""
    retry_at: float = float("inf")
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.tried = self.source.stamp()
        self.current = self.source.load()

    def check(self) -> None:
        """Load the model if it changed. A failure keeps the current one."""
        try:
            stamp = self.source.stamp()
            if stamp == self.tried and time.monotonic() < self.retry_at:
                return
            self.tried = stamp
            model = self.source.load()
        except Exception as error:  # whatever is in the files, the current model still serves
            self._fail(error)
            return
        replaced = self.current.version
        self.current = model
        self.failed = None
        self.retry_at = float("inf")
        if model.version != replaced:
            self.log(f"{self.source.path}: version {model.version} replaces {replaced}.")

    def _fail(self, error: Exception) -> None:
        self.retry_at = time.monotonic() + RETRY_SECONDS
        reason = str(error) if isinstance(error, CoterieError) else type(error).__name__
        self.failed = FailedLoad(reason, datetime.now(UTC))
        self.log(
            f"{self.source.path}: the new model cannot be loaded ({reason}). "
            f"Version {self.current.version} stays."
        )

    def run(self, seconds: float) -> None:
        """Check every so many seconds until stopped."""
        while not self.stopping.wait(seconds):
            self.check()

    def start(self, seconds: float) -> None:
        """Check in a thread of its own."""
        threading.Thread(target=self.run, args=(seconds,), name="model", daemon=True).start()

    def stop(self) -> None:
        self.stopping.set()

    def health(self) -> JsonObject:
        """What `GET /health` replies."""
        failed = self.failed
        return {
            "status": "ok" if failed is None else "outdated",
            "version": self.current.version,
            "failed_load": failed
            and {"error": failed.error, "at": failed.at.isoformat(timespec="seconds")},
        }
