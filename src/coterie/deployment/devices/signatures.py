"""How a device signs its requests: the keys that WebCrypto makes, and the text that is signed.

    METHOD, path with query, Coterie-Time and the SHA-256 of the body in hexadecimal digits,
    joined by newlines

A key is ECDSA over P-256 (65 bytes, an uncompressed point; signed with SHA-256) or Ed25519
(32 bytes). A signature has 64 bytes: of ECDSA, r and s as WebCrypto writes them (IEEE P1363).
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from coterie.errors import MissingExtra

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
except ImportError:
    raise MissingExtra("coterie serve --devices", "federation") from None

SIGNATURE_BYTES = 64
P256_BYTES = 65
ED25519_BYTES = 32
KEY_RULE = "expected base64url of an ECDSA P-256 key (65 bytes) or an Ed25519 key (32 bytes), raw"


def signed_text(method: str, target: str, time: str, body: bytes) -> bytes:
    """What a device signs of a request; `target` is the path with its query."""
    digest = hashlib.sha256(body).hexdigest()
    return "\n".join((method, target, time, digest)).encode()


def from_base64url(text: str) -> bytes:
    """The bytes; ValueError if it is not base64url. Padding may be left out, as browsers do."""
    try:
        padded = text + "=" * (-len(text) % 4)
        return base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"not base64url ({error})") from None


def to_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def read_key(raw: bytes) -> ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey:
    """The public key of a device; ValueError if these bytes are none."""
    try:
        if len(raw) == ED25519_BYTES:
            return ed25519.Ed25519PublicKey.from_public_bytes(raw)
        if len(raw) == P256_BYTES:
            return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"not a public key ({error})") from None
    raise ValueError(f"{len(raw)} bytes")


def is_signed_by(raw: bytes, text: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key signed a text."""
    if len(signature) != SIGNATURE_BYTES:
        return False
    key = read_key(raw)
    half = SIGNATURE_BYTES // 2
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, text)
        else:
            r = int.from_bytes(signature[:half])
            s = int.from_bytes(signature[half:])
            key.verify(encode_dss_signature(r, s), text, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def fingerprint_of_key(raw: bytes) -> str:
    """SHA-256 of a device's public key, as `coterie device list` shows it."""
    return to_base64url(hashlib.sha256(raw).digest())[:22]
