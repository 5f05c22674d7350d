"""What a folder of certificates and keys holds, and how long each of them is valid."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from coterie.deployment.certificates import hosts_of
from coterie.deployment.fingerprints import fingerprint_of
from coterie.deployment.key_dates import FORMAT, KeyDates
from coterie.deployment.validity import (
    Validity,
    certificate_fingerprint,
    days_until,
    read_certificate,
)
from coterie.errors import RunError
from coterie.types import JsonObject

VALID = "valid"
EXPIRED = "expired"
UNREADABLE = "unreadable"
"""State of a key that a server rejects because its file is damaged."""


@dataclass(frozen=True, slots=True)
class ListedCertificate:
    file: str
    hosts: list[str]
    """The names and addresses that it is for; none for the authority."""
    fingerprint: str
    """SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` shows it."""
    created: str
    expires: str
    days_left: int
    state: str


@dataclass(frozen=True, slots=True)
class ListedKey:
    name: str
    fingerprint: str
    """As `ssh-keygen -lf NAME.pub` shows it."""
    created: str | None
    expires: str | None
    days_left: int | None
    state: str


@dataclass(frozen=True, slots=True)
class KeyListing:
    certificates: list[ListedCertificate]
    keys: list[ListedKey]

    def to_json(self) -> JsonObject:
        return asdict(self)


def list_folder(folder: Path) -> KeyListing:
    """The certificates and node keys in a folder of `coterie federation init`."""
    if not (folder / "ca.pem").exists():
        raise RunError(
            f"{folder} holds no ca.pem; expected a folder of coterie federation init. "
            "Check the path."
        )
    files = [name for name in ("ca.pem", "server.pem") if (folder / name).exists()]
    return KeyListing(
        [_certificate(folder / name) for name in files],
        [_key(path) for path in sorted((folder / "nodes").glob("*.pub"))],
    )


def _certificate(path: Path) -> ListedCertificate:
    valid = Validity.of(read_certificate(path))
    return ListedCertificate(
        path.name,
        hosts_of(path),
        certificate_fingerprint(path),
        valid.begins.strftime(FORMAT),
        valid.ends.strftime(FORMAT),
        valid.days_left,
        EXPIRED if valid.over else VALID,
    )


def _key(path: Path) -> ListedKey:
    try:
        line = path.read_text()
        dates = KeyDates.of(line)
        fingerprint = fingerprint_of(line)
    except (OSError, ValueError):
        return ListedKey(path.stem, "", None, None, None, UNREADABLE)
    return ListedKey(
        path.stem,
        fingerprint,
        _text(dates.created),
        _text(dates.expires),
        None if dates.expires is None else days_until(dates.expires),
        EXPIRED if dates.expired else VALID,
    )


def _text(date: datetime | None) -> str | None:
    return None if date is None else date.strftime(FORMAT)
