"""When a node's key was made and when it expires: the comment of its file NAME.pub.

ecdsa-sha2-nistp384 AAAA... created=2027-01-31T12:00:00Z expires=2027-03-02T12:00:00Z

The dates are in the same file as the key, so that a rotation replaces both at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

CREATED = "created="
EXPIRES = "expires="
FORMAT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class KeyDates:
    created: datetime | None = None
    """None if the file does not tell."""
    expires: datetime | None = None
    """None if the key does not expire."""

    @classmethod
    def from_now(cls, lifetime: timedelta | None) -> KeyDates:
        """The dates of a new key; without a lifetime it does not expire."""
        now = datetime.now(UTC).replace(microsecond=0)
        return cls(now, None if lifetime is None else now + lifetime)

    @classmethod
    def of(cls, line: str) -> KeyDates:
        """The dates in a line of a .pub file. ValueError if one cannot be read."""
        created = None
        expires = None
        for word in line.split()[2:]:
            if word.startswith(CREATED):
                created = _parse(word.removeprefix(CREATED))
            elif word.startswith(EXPIRES):
                expires = _parse(word.removeprefix(EXPIRES))
        return cls(created, expires)

    @property
    def comment(self) -> str:
        words = []
        if self.created is not None:
            words.append(CREATED + self.created.strftime(FORMAT))
        if self.expires is not None:
            words.append(EXPIRES + self.expires.strftime(FORMAT))
        return " ".join(words)

    @property
    def lifetime(self) -> timedelta | None:
        """How long the key is valid in all; None if it does not expire or this is not known."""
        if self.created is None or self.expires is None:
            return None
        return self.expires - self.created

    @property
    def expired(self) -> bool:
        return self.expires is not None and self.expires <= datetime.now(UTC)


def is_expired(line: str) -> bool:
    """Whether the key of this line is not valid any more. A date that cannot be read is over."""
    try:
        return KeyDates.of(line).expired
    except ValueError:
        return True


def _parse(text: str) -> datetime:
    return datetime.strptime(text, FORMAT).replace(tzinfo=UTC)
