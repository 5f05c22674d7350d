"""The roll-backs of a run: what its folder records of them, and what follows from that.

Rounds between two roll-backs are a branch. A round of a later branch is another round than the one
of the same number before, so that tags and ledgers number rounds through all branches.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from coterie.deployment.enrolment import JsonMessage
from coterie.deployment.server_folder import read_message
from coterie.experiments import run_folder
from coterie.types import JsonObject

ROLLBACKS = "rollbacks.json"


@dataclass(frozen=True, slots=True)
class Rollback:
    """One return to an earlier round, and the nodes that take no part from then on."""

    round: int
    """The committed round that the run returned to."""
    undone: int
    """Committed rounds after it, which do not count any more."""
    without: list[str]
    """Names of the nodes."""
    when: str
    who: str
    """The operating system's user who asked for it."""
    metrics: list[JsonObject] = field(default_factory=list)
    """Evaluations of the undone rounds."""
    is_done: bool = False
    """Whether the folder is that of the earlier round; a roll-back may be killed before."""


@dataclass(frozen=True, slots=True)
class RollbackLog(JsonMessage):
    """All roll-backs of a run, the oldest first."""

    rollbacks: list[Rollback] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> RollbackLog:
        """The log in a run folder; empty if there is none."""
        if not (folder / ROLLBACKS).exists():
            return cls()
        return read_message(folder, ROLLBACKS, cls)

    def write(self, folder: Path) -> None:
        run_folder.write_text(folder, ROLLBACKS, self.to_json() + "\n")

    def to_json(self) -> str:
        listed = [asdict(one) for one in self.rollbacks]
        return json.dumps({"rollbacks": listed}, indent=2, allow_nan=False)

    @property
    def branch(self) -> int:
        """The number of the present branch; 0 before the first roll-back."""
        return len(self.rollbacks)

    @property
    def rounds(self) -> list[int]:
        """The rounds that the run returned to."""
        return [one.round for one in self.rollbacks]

    @property
    def quarantined(self) -> frozenset[str]:
        """Names of the nodes that take no part."""
        return frozenset(name for one in self.rollbacks for name in one.without)

    @property
    def undone(self) -> int:
        """Rounds that were played and do not count any more."""
        return sum(one.undone for one in self.rollbacks)

    @property
    def unfinished(self) -> Rollback | None:
        """The last roll-back, if it was killed before its end."""
        last = self.rollbacks[-1] if self.rollbacks else None
        return None if last is None or last.is_done else last

    def done(self) -> RollbackLog:
        """With the last roll-back as done."""
        last = replace(self.rollbacks[-1], is_done=True)
        return RollbackLog([*self.rollbacks[:-1], last])
