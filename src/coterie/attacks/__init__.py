"""The disclosure report: what an honest-but-curious server learns about the users of a run.

pi is a disclosure rate, not a privacy guarantee.
"""

from __future__ import annotations

from coterie.attacks.replay import report, save
from coterie.attacks.tables import Disclosure

__all__ = ["Disclosure", "report", "save"]
