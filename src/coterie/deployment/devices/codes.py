"""One-time codes, by which a device enrols: short enough to type, too many to guess.

A code has 80 random bits, in Crockford's Base32: letters that look like digits count as those. The
gateway stores only its digest.
"""

from __future__ import annotations

import hashlib
import secrets

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH = 16
GROUP = 4
"""Characters between two hyphens."""
CODE_SECONDS = 7 * 24 * 3600.0
"""How long a code can be used."""
LOOK_ALIKE = str.maketrans({"O": "0", "I": "1", "L": "1", "-": None, " ": None})


def new_code() -> str:
    """A code as it is shown, such as 7QF2-M9XK-0D4R-HT3W."""
    text = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
    return "-".join(text[k : k + GROUP] for k in range(0, LENGTH, GROUP))


def digest_of(code: str) -> bytes:
    """What the gateway stores of a code, however it was typed."""
    return hashlib.sha256(code.upper().translate(LOOK_ALIKE).encode()).digest()
