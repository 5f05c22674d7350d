"""The keys by which nodes authenticate: ECDSA, in the files of `coterie node key`.

A node signs the time of each request. The server knows the public keys in its key folder.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from coterie.deployment.fingerprints import fingerprint_of
from coterie.deployment.fleet.messages import (
    PUBLIC_KEY_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
)
from coterie.deployment.key_dates import is_expired
from coterie.errors import ConfigError, MissingExtra

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError:
    raise MissingExtra("a federation", "node") from None

PUBLIC = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
SIGNED_WITH = ec.ECDSA(hashes.SHA256())
OPEN_TO_ALL = 0o007
"""Bits of a mode for everybody. Those of the group may be set: systemd lets a service read its
credentials by an access list, which a mode shows as its group's."""


@dataclass(frozen=True, slots=True)
class NodeKey:
    """The key of a node."""

    private: ec.EllipticCurvePrivateKey
    public: bytes
    """The public key as PEM, which names the node to a server."""

    @classmethod
    def new(cls) -> NodeKey:
        """A key for one connection, where nodes do not authenticate."""
        return cls.of(ec.generate_private_key(ec.SECP384R1()))

    @classmethod
    def of(cls, private: ec.EllipticCurvePrivateKey) -> NodeKey:
        return cls(private, private.public_key().public_bytes(*PUBLIC))

    @classmethod
    def read(cls, path: Path) -> NodeKey:
        """The key in a file NAME.key, which others must not be able to read."""
        try:
            key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ConfigError(
                f"{path} is not a node's key ({error}); expected a file NAME.key of "
                "coterie node key. Check the path."
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(
                f"{path} is not a key for ECDSA; expected a file NAME.key of "
                "coterie node key. Check the path."
            )
        _refuse_open(path)
        return cls.of(key)

    def sign(self, text: str) -> str:
        """The signature of a text, as base64."""
        return base64.b64encode(self.private.sign(text.encode(), SIGNED_WITH)).decode("ascii")

    def headers(self, clock_offset: float) -> dict[str, str]:
        """The headers that authenticate a request; the offset corrects this machine's clock."""
        now = (datetime.now(UTC) + timedelta(seconds=clock_offset)).isoformat()
        return {
            PUBLIC_KEY_HEADER: base64.b64encode(self.public).decode("ascii"),
            TIMESTAMP_HEADER: now,
            SIGNATURE_HEADER: self.sign(now),
        }


def _refuse_open(path: Path) -> None:
    mode = path.stat().st_mode & 0o777
    if mode & OPEN_TO_ALL:
        raise ConfigError(
            f"{path} can be read or changed by everybody (mode {mode:o}); expected 600: a private "
            f"key is its node's own. Run: chmod 600 {path}. If others use this machine, make a new "
            "key: coterie node key NAME"
        )


def read_public_keys(folder: Path) -> dict[str, bytes]:
    """Node name -> public key, of all files NAME.pub that hold one that has not expired."""
    found = {}
    for path in sorted(folder.glob("*.pub")):
        try:
            line = path.read_text()
            key = serialization.load_ssh_public_key(line.encode())
        except (OSError, ValueError, UnsupportedAlgorithm):
            continue
        if isinstance(key, ec.EllipticCurvePublicKey) and not is_expired(line):
            found[path.stem] = key.public_bytes(*PUBLIC)
    return found


def is_signed(public: bytes, text: str, signature: bytes) -> bool:
    """Whether the owner of a public key signed this text."""
    try:
        key = serialization.load_pem_public_key(public)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        key.verify(signature, text.encode(), SIGNED_WITH)
    except (ValueError, UnicodeError, UnsupportedAlgorithm, InvalidSignature):
        return False
    return True


def fingerprint_of_public(public: bytes) -> str:
    """The fingerprint of a public key as `coterie federation list` shows it; ValueError if none."""
    try:
        key = serialization.load_pem_public_key(public)
        line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("not a public key") from None
    return fingerprint_of(line.decode("ascii"))
