"""How long a certificate is valid, and whether a server can use the files in a folder of keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.deployment.issuing import serialization
from coterie.errors import RunError

if TYPE_CHECKING:
    from cryptography import x509

WARN_DAYS = 30
"""Days before the end from which a server warns."""


@dataclass(frozen=True, slots=True)
class Validity:
    """The time for which a certificate or a key is valid."""

    begins: datetime
    ends: datetime

    @classmethod
    def of(cls, certificate: x509.Certificate) -> Validity:
        return cls(certificate.not_valid_before_utc, certificate.not_valid_after_utc)

    @property
    def days_left(self) -> int:
        """Whole days until the end; negative after it."""
        return days_until(self.ends)

    @property
    def begun(self) -> bool:
        return self.begins <= datetime.now(UTC)

    @property
    def over(self) -> bool:
        return self.ends <= datetime.now(UTC)


def days_until(end: datetime) -> int:
    return math.floor((end - datetime.now(UTC)).total_seconds() / 86400)


def read_certificate(path: Path) -> x509.Certificate:
    serialization()
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise RunError(
            f"{path} is not a certificate ({error}); expected a file of coterie federation init. "
            "Restore it from a backup."
        ) from None


def certificate_fingerprint(path: Path) -> str:
    """SHA-256 of the certificate in a file, as `openssl x509 -fingerprint -sha256` shows it."""
    certificate = read_certificate(path)
    from cryptography.hazmat.primitives import hashes

    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def check_server_files(folder: Path) -> list[str]:
    """Refuse certificates that nodes would reject; returns warnings about those that end soon."""
    authority = read_certificate(folder / "ca.pem")
    certificate = read_certificate(folder / "server.pem")
    _refuse_mismatch(folder, authority, certificate)
    renewal = f"Run: coterie federation renew {folder}"
    remedies = {
        "ca.pem": (
            "Make a new folder with coterie federation init, add the nodes, and give every node a "
            "new invitation."
        ),
        "server.pem": f"{renewal} (nodes keep ca.pem), and start the server again.",
    }
    warnings = []
    for name, loaded in (("ca.pem", authority), ("server.pem", certificate)):
        valid = Validity.of(loaded)
        if not valid.begun:
            raise RunError(
                f"{folder / name} is valid from {valid.begins:%Y-%m-%d %H:%M} UTC; expected a "
                "certificate that is valid now. Check this machine's clock."
            )
        if valid.over:
            raise RunError(
                f"{folder / name} expired on {valid.ends:%Y-%m-%d}; expected a valid certificate. "
                f"{remedies[name]}"
            )
        if valid.days_left < WARN_DAYS:
            warnings.append(
                f"{folder / name} expires in {valid.days_left} days, on {valid.ends:%Y-%m-%d}. "
                f"{remedies[name]}"
            )
    return warnings


def _refuse_mismatch(
    folder: Path, authority: x509.Certificate, certificate: x509.Certificate
) -> None:
    """Refuse a certificate of another authority, or one for another key."""
    from cryptography.exceptions import InvalidSignature

    remedy = f"Restore the folder from a backup, or run: coterie federation renew {folder}"
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise RunError(
            f"{folder / 'server.pem'} is not signed by {folder / 'ca.pem'}; expected files of one "
            f"federation. {remedy}"
        ) from None
    try:
        key = serialization().load_pem_private_key(
            (folder / "server.key").read_bytes(), password=None
        )
    except (ValueError, TypeError) as error:
        raise RunError(
            f"{folder / 'server.key'} is not a private key ({error}); expected one. {remedy}"
        ) from None
    if key.public_key() != certificate.public_key():
        raise RunError(
            f"{folder / 'server.key'} is not the key of server.pem; expected the two to belong "
            f"together. {remedy}"
        )
