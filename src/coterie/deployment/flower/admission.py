"""Whose keys are let in: those whose public part lies in the folder of keys, also while a server runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from coterie.core.progress import Progress
from coterie.deployment.flower.processes import flwr
from coterie.deployment.membership import HOMES
from coterie.errors import RunError
from coterie.experiments import folder as disk


@dataclass(frozen=True, slots=True)
class Admission:
    home: Path
    keys: Path | None
    """None where nobody shows any."""

    @property
    def book(self) -> Path:
        """Public keys that the SuperLink lets in, each with its node's id there."""
        return self.home / "admitted.json"

    def refresh(self) -> None:
        """Let in whose key came, and let those in no more whose key was taken away."""
        if self.keys is None:
            return
        wanted = {place.read_text(): place for place in sorted((self.keys / "nodes").glob("*.pub"))}
        known = self._known()
        for key in wanted.keys() - known.keys():
            said = flwr(self.home, "supernode", "register", str(wanted[key]), "here", but="already")
            self._write(known | {key: str(said.get("node-id", ""))})
            known = self._known()
        for key in [key for key in known.keys() - wanted.keys() if known[key]]:
            flwr(self.home, "supernode", "unregister", known.pop(key), "here", but="not found")
            self._write(known)

    def look(self, progress: Progress) -> None:
        """The same while a server runs, which a key that cannot be read must not stop."""
        try:
            self.refresh()
        except (RunError, OSError, UnicodeDecodeError) as error:
            progress.log(f"{self.keys}: {error}; looked at again in a moment")

    def forget_unnamed(self) -> None:
        """Before the SuperLink starts: where a key was taken away whose id nobody wrote down, it forgets everybody, and all register anew."""
        here = (
            {place.read_text() for place in (self.keys / "nodes").glob("*.pub")}
            if self.keys
            else set()
        )
        if any(key not in here for key, name in self._known().items() if not name):
            for left in (
                *self.home.glob("link.db*"),
                self.book,
                self.home.parent / HOMES,
            ):  # ids will be others
                left.unlink(missing_ok=True)

    def _known(self) -> dict[str, str]:
        known: dict[str, str] = json.loads(self.book.read_text()) if self.book.exists() else {}
        return known

    def _write(self, known: dict[str, str]) -> None:
        disk.write_text(self.home, self.book.name, json.dumps(known))
