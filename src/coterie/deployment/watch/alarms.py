"""Alarms of a server: raised once for each item or node, until they clear."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from coterie.types import JsonObject

MOST = 20
"""Alarms that the status lists, the newest ones."""


@dataclass(slots=True)
class Alarms:
    active: dict[str, str] = field(default_factory=dict)
    """What an alarm is about -> what is wrong, the oldest first."""
    raised: Counter[str] = field(default_factory=Counter)
    """Alarms so far, by kind."""

    @classmethod
    def resume(cls, status: Mapping[str, JsonObject]) -> Alarms:
        """Go on with the alarms that a status holds."""
        return cls(dict(status.get("alarms", {})), Counter(status.get("alarms_raised", {})))

    def raise_once(self, kind: str, subject: str, text: str) -> bool:
        """Returns whether the alarm is new; one that is active stays as it is."""
        if subject in self.active:
            return False
        self.raised[kind] += 1
        self.active[subject] = text
        if len(self.active) > MOST:
            del self.active[next(iter(self.active))]
        return True

    def clear(self, subject: str) -> bool:
        """Returns whether there was such an alarm."""
        return self.active.pop(subject, None) is not None

    def as_json(self) -> JsonObject:
        return {"alarms": dict(self.active), "alarms_raised": dict(self.raised)}
