"""Numbers of rounds and exchanges through all branches of a run: see `rollback_log.py`."""

from __future__ import annotations

from coterie.federated.trainer import SETUP

BRANCH = 1 << 32
"""More than the rounds of any branch."""
EXCHANGES = 256
"""More than the exchanges of any round."""


def round_number(branch: int, t: int) -> int:
    """A number that identifies a round of a run, in any of its branches."""
    return branch * BRANCH + t


def tag(branch: int, t: int, exchange: int) -> int:
    """A number that identifies an exchange of a run; the opening comes first."""
    return 0 if exchange == SETUP else 1 + round_number(branch, t) * EXCHANGES + exchange
