"""A node's public key as its owner sends it: one line in OpenSSH's format, in a file NAME.pub.

ecdsa-sha2-nistp384 AAAA... replaces=MGUCMQ...

`replaces` is there if the node had a key before: the signature of the old key. The file comes from
another organisation. The server checks it, stores the key alone, and adds dates of its own.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path

from coterie.core.plain_files import read_text
from coterie.deployment.fingerprints import fingerprint_of
from coterie.deployment.issuing import serialization
from coterie.errors import ConfigError, DataError

KEY_TYPE = "ecdsa-sha2-nistp384"
OTHER_TYPES = ("ssh-", "ecdsa-", "sk-")
"""How the types of other public keys of OpenSSH begin."""
MOST_BYTES = 1 << 13
"""A file has 200 bytes, or 350 with a signature."""
REPLACES = "replaces="
LONGEST_NAME = 60
"""Characters, so that a name and its ending are a valid file name everywhere."""
NODE_NAME = re.compile(rf"\w[\w.-]{{0,{LONGEST_NAME - 1}}}")
SIGNED_TEXT = "coterie replaces a node's key\n"
"""Precedes what is signed, so that a signature means nothing anywhere else."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    line: str
    """Type and key, without a comment."""
    signature: str = ""
    """Base64: what the node's old key signed; empty if the node did not sign it."""

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.line)

    @property
    def signed_text(self) -> str:
        return SIGNED_TEXT + self.line

    @property
    def file_text(self) -> str:
        """The content of a file NAME.pub that a node sends."""
        return self.line + (f" {REPLACES}{self.signature}" if self.signature else "") + "\n"

    def is_signed_by(self, old: str) -> bool:
        """Whether the owner of another public key, a line of a .pub file, made this one."""
        try:
            pem = _as_pem(old)
        except ValueError:
            return False
        return self._has_signature_of(pem)

    def replaces(self, old_pem: str, new_pem: str) -> bool:
        """Whether this is the new key, and the owner of the old one made it; both as PEM."""
        return _as_pem(self.line).decode() == new_pem and self._has_signature_of(old_pem.encode())

    def _has_signature_of(self, pem: bytes) -> bool:
        from coterie.deployment.fleet.keys import is_signed

        try:
            signature = base64.b64decode(self.signature, validate=True)
        except binascii.Error:
            return False
        return is_signed(pem, self.signed_text, signature)


def _as_pem(line: str) -> bytes:
    """A key in OpenSSH's format as PEM. ValueError if it is not one."""
    from coterie.deployment.fleet.keys import PUBLIC

    pem: bytes = serialization().load_ssh_public_key(line.encode()).public_bytes(*PUBLIC)
    return pem


def read_public_key(path: Path) -> PublicKey:
    """The public key in a file that a node sent. Messages never quote what the file holds."""
    if not path.is_file():
        raise ConfigError(
            f"{path} does not exist or is no file; expected the public key of a node. On the node, "
            "run: coterie node key NAME, and bring NAME.pub here."
        )
    text = read_text(path, MOST_BYTES)
    if "PRIVATE KEY" in text:
        raise DataError(
            f"{path} holds a private key; expected the public one, NAME.pub. Nothing was stored. "
            "Delete it, unless this machine is the node. A private key that left its node is not "
            "secret any more: make another one there (coterie node key NAME), and send NAME.pub."
        )
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) != 1:
        raise _not_a_key(path, f"has {len(lines)} lines")
    return _parse(path, lines[0].split())


def _parse(path: Path, words: list[str]) -> PublicKey:
    if words[0] != KEY_TYPE:
        found = f"has type {words[0][:40]}" if words[0].startswith(OTHER_TYPES) else "has no type"
        raise _not_a_key(path, found)
    line = " ".join(words[:2])
    try:
        serialization().load_ssh_public_key(line.encode())
    except ValueError:
        raise _not_a_key(path, "is damaged") from None
    signed = [word for word in words[2:] if word.startswith(REPLACES)]
    return PublicKey(line, signed[0].removeprefix(REPLACES) if signed else "")


def _not_a_key(path: Path, found: str) -> DataError:
    return DataError(
        f"{path} {found}; expected one line that begins with {KEY_TYPE}, as in a file NAME.pub of "
        "coterie node key. Nothing was stored. Ask the node's owner for that file."
    )


def refuse_node_name(name: str) -> None:
    """A node's name is that of a file, and an argument of commands."""
    if not NODE_NAME.fullmatch(name):
        raise ConfigError(
            f"the node's name is {name[:80]!r}, of {len(name):,} characters; expected 1 to "
            f"{LONGEST_NAME} letters, digits, '.', '_' and '-', the first a letter, a digit or "
            "'_'. Choose another."
        )
