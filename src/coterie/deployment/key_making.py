"""Makes a node's key, on the node: NAME.key stays there, NAME.pub goes to the server's owner."""

from __future__ import annotations

from pathlib import Path

from coterie.core.atomic_files import OWNER_ONLY_FOLDER, write_file
from coterie.deployment.issuing import new_key, serialization
from coterie.deployment.public_keys import PublicKey, refuse_node_name
from coterie.errors import RunError


def make_key(
    folder: Path, name: str, *, replaces: Path | None = None, overwrite: bool = False
) -> PublicKey:
    """Make NAME.key, which only its owner can read, and NAME.pub; returns the public key.

    `replaces`: the node's old key, which signs the new one.
    """
    from coterie.deployment.fleet.keys import NodeKey

    refuse_node_name(name)
    private_file = folder / f"{name}.key"
    public_file = folder / f"{name}.pub"
    old = None if replaces is None else NodeKey.read(replaces)
    for path in (private_file, public_file):
        if path.exists() and not overwrite:
            raise RunError(
                f"{path} exists already; expected a new name. Choose another. --overwrite replaces "
                "the key for good: a server that knows it rejects this node then."
            )
    formats = serialization()
    key = new_key()
    private = key.private_bytes(
        formats.Encoding.PEM, formats.PrivateFormat.OpenSSH, formats.NoEncryption()
    )
    line = key.public_key().public_bytes(formats.Encoding.OpenSSH, formats.PublicFormat.OpenSSH)
    public = PublicKey(line.decode("ascii"))
    if old is not None:
        public = PublicKey(public.line, old.sign(public.signed_text))
    folder.mkdir(parents=True, exist_ok=True, mode=OWNER_ONLY_FOLDER)
    write_file(private_file, private, owner_only=True)
    write_file(public_file, public.file_text.encode("ascii"), owner_only=False)
    return public
