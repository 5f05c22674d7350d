"""Fingerprints of public keys, as `ssh-keygen -l` shows them."""

from __future__ import annotations

import base64
import binascii
import hashlib


def fingerprint_of(line: str) -> str:
    """The fingerprint of a key in OpenSSH's format. ValueError if it is not one."""
    words = line.split()
    if len(words) < 2:
        raise ValueError("not a public key")
    try:
        key = base64.b64decode(words[1], validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode("ascii")
    return f"SHA256:{digest.rstrip('=')}"
