"""Which nodes a SuperLink admits: those whose public key is in the key folder, checked live."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from coterie.core.progress import Progress
from coterie.deployment.flower.processes import CONNECTION, flwr
from coterie.deployment.membership import HOSTS
from coterie.errors import RunError
from coterie.experiments import run_folder


@dataclass(frozen=True, slots=True)
class Admission:
    home: Path
    keys: Path | None
    """The key folder; None if nodes do not authenticate."""

    @property
    def registered_file(self) -> Path:
        """Public keys registered with the SuperLink, each with its node's id there."""
        return self.home / "admitted.json"

    def refresh(self) -> None:
        """Register new keys, and unregister keys that were removed."""
        if self.keys is None:
            return
        wanted = {path.read_text(): path for path in sorted((self.keys / "nodes").glob("*.pub"))}
        known = self._registered()
        for key in wanted.keys() - known.keys():
            command = ("supernode", "register", str(wanted[key]), CONNECTION)
            reply = flwr(self.home, *command, tolerate="already")
            self._write(known | {key: str(reply.get("node-id", ""))})
            known = self._registered()
        for key in [key for key in known.keys() - wanted.keys() if known[key]]:
            command = ("supernode", "unregister", known.pop(key), CONNECTION)
            flwr(self.home, *command, tolerate="not found")
            self._write(known)

    def refresh_or_log(self, progress: Progress) -> None:
        """Refresh while a server runs: an unreadable key is logged and does not stop it."""
        try:
            self.refresh()
        except (RunError, OSError, UnicodeDecodeError) as error:
            progress.log(f"{self.keys}: {error}; trying again")

    def reset_if_unknown(self) -> None:
        """Reset the SuperLink's database if a removed key cannot be unregistered.

        A key without a known node id cannot be unregistered. With an empty database all remaining
        keys register anew. Call this before the SuperLink starts.
        """
        present = set()
        if self.keys:
            present = {path.read_text() for path in (self.keys / "nodes").glob("*.pub")}
        if all(key in present for key, node_id in self._registered().items() if not node_id):
            return
        # Node ids change with the database, so the hosts of users are unknown, too.
        stale = (*self.home.glob("link.db*"), self.registered_file, self.home.parent / HOSTS)
        for path in stale:
            path.unlink(missing_ok=True)

    def _registered(self) -> dict[str, str]:
        path = self.registered_file
        known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return known

    def _write(self, known: dict[str, str]) -> None:
        run_folder.write_text(self.home, self.registered_file.name, json.dumps(known))
