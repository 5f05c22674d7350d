"""Keys for tests: nodes make their own, in a folder next to the server's, which has public ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coterie.deployment import certificates


def make_keys(folder: Path, hosts: Sequence[str], names: Sequence[str]) -> None:
    """The folder of a server that accepts these nodes."""
    certificates.init(folder, hosts)
    for name in names:
        add_node(folder, name)


def add_node(folder: Path, name: str, days: int | None = None) -> Path:
    """Make a key as the node does, and add it as the server's owner does; returns NAME.key."""
    from coterie.deployment.key_making import make_key

    path = key_of(folder, name)
    make_key(path.parent, name)
    certificates.add(folder, name, path.with_suffix(".pub"), days)
    return path


def replace_key(folder: Path, name: str, days: int | None = None) -> Path:
    """Make a node's next key, which the old one signs, and rotate to it; returns the new file."""
    from coterie.deployment.key_making import make_key

    old = key_of(folder, name)
    made = make_key(old.parent, f"{name}-next", replaces=old, overwrite=True)
    new = key_of(folder, f"{name}-next")
    assert made.signature
    certificates.rotate(folder, name, new.with_suffix(".pub"), days)
    return new.replace(old)


def key_of(folder: Path, name: str) -> Path:
    """The private key of a node."""
    return folder.with_name(f"{folder.name}-nodes") / f"{name}.key"
