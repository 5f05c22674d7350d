"""Certificates and keys of a federation: an authority, the server's certificate, public keys.

FOLDER/ca.pem  ca.key  server.pem  server.key    the server's files
FOLDER/invitation.txt                            what a node needs to join (`invitation`)
FOLDER/nodes/NAME.pub                            the nodes that the server accepts

A node's private key is made on the node (`key_making`) and never comes here. ca.key signs server
certificates and is needed for nothing else: it may be stored elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from coterie.core.atomic_files import write_file
from coterie.deployment.address import LOOPBACK
from coterie.deployment.issuing import Issuer, new_key, pem, private_pem, serialization
from coterie.deployment.key_dates import KeyDates
from coterie.deployment.public_keys import PublicKey, read_public_key, refuse_node_name
from coterie.errors import ConfigError, RunError

HOST = re.compile(r"[0-9A-Za-z_.:-]{1,253}")
WILDCARDS = ("0.0.0.0", "::")
"""Addresses that a server binds to, and to which no node can connect."""


def init(folder: Path, hosts: Sequence[str]) -> None:
    """Make the files of a server with these names or addresses."""
    if (folder / "ca.key").exists() or (folder / "ca.pem").exists():
        raise RunError(
            f"{folder} has an authority already; expected a new folder. "
            f"For another node, run: coterie federation add {folder} NAME NAME.pub"
        )
    _refuse_hosts(hosts)
    # So that the server can be checked from its own machine.
    hosts = list(dict.fromkeys([*hosts, LOOPBACK[0]]))
    (folder / "nodes").mkdir(parents=True, exist_ok=True)
    authority = Issuer.new()
    server = new_key()
    _write_new(folder / "ca.key", private_pem(authority.key), secret=True)
    _write_new(folder / "ca.pem", pem(authority.certificate))
    _write_new(folder / "server.key", private_pem(server), secret=True)
    _write_new(folder / "server.pem", pem(authority.issue(server, hosts)))


def renew(folder: Path, hosts: Sequence[str] = ()) -> list[str]:
    """Replace the server's key and certificate, for the same hosts and these; returns all hosts.

    The authority stays, and with it ca.pem on every node.
    """
    _refuse_hosts(hosts)
    authority = _authority(folder)
    if authority.certificate.not_valid_after_utc <= datetime.now(UTC):
        raise RunError(
            f"{folder / 'ca.pem'} expired on {authority.certificate.not_valid_after_utc:%Y-%m-%d}; "
            "expected a valid authority. Make a new folder with coterie federation init, and give "
            "every node a new invitation."
        )
    before = hosts_of(folder / "server.pem") if (folder / "server.pem").exists() else LOOPBACK[:1]
    everything = list(dict.fromkeys([*before, *hosts]))
    server = new_key()
    certificate = authority.issue(server, everything)
    write_file(folder / "server.key", private_pem(server), owner_only=True)
    write_file(folder / "server.pem", pem(certificate), owner_only=False)
    return everything


def add(folder: Path, name: str, public_key: Path, days: int | None = None) -> PublicKey:
    """Accept one more node with this public key, for so many days or for good."""
    refuse_node_name(name)
    path = folder / "nodes" / f"{name}.pub"
    if path.exists():
        raise RunError(
            f"{path} exists already; expected a new name. Choose another, or replace the key of "
            f"this node: coterie federation rotate {folder} {name} NEW.pub"
        )
    if not (folder / "ca.pem").exists():
        raise RunError(
            f"{folder} has no authority; expected one. Run: coterie federation init {folder}"
        )
    key = read_public_key(public_key)
    _refuse_known(folder, public_key, key)
    _write_public(path, key, _lifetime(days))
    return key


def rotate(
    folder: Path,
    name: str,
    public_key: Path,
    days: int | None = None,
    *,
    unsigned: bool = False,
) -> PublicKey:
    """Replace the public key of a node; its users stay with the name.

    The old key must have signed the new one, unless `unsigned`. Without `days` the new key is valid
    as long as the old one was when it was new.
    """
    path = _public_key_file(folder, name)
    lifetime = _lifetime(days)
    if days is None:
        lifetime = read_dates(path).lifetime
    key = read_public_key(public_key)
    _refuse_known(folder, public_key, key)
    if not unsigned and not key.is_signed_by(path.read_text()):
        raise RunError(
            f"{public_key} is not signed with the key that {name} has now; expected a file of: "
            f"coterie node key NEW --replaces {name}.key. If that key is lost, compare the "
            f"fingerprint {key.fingerprint} with the node's owner, and add --unsigned."
        )
    _write_public(path, key, lifetime)
    _delete_private(path)
    return key


def revoke(folder: Path, name: str) -> None:
    """Revoke a node: the server rejects nodes whose public key is missing."""
    path = _public_key_file(folder, name)
    path.unlink()
    _delete_private(path)


def private_keys(folder: Path) -> list[Path]:
    """Private keys of nodes in the server's folder, where earlier versions made them."""
    return sorted((folder / "nodes").glob("*.key"))


def read_dates(path: Path) -> KeyDates:
    """When the key in a file NAME.pub was made, and when it expires."""
    try:
        return KeyDates.of(path.read_text())
    except ValueError as error:
        raise RunError(
            f"{path} has a date that cannot be read ({error}); expected one such as "
            "expires=2027-01-31T12:00:00Z. Correct it, or revoke the node and add it again."
        ) from None


def hosts_of(certificate: Path) -> list[str]:
    """The names and addresses that a certificate is for."""
    serialization()
    from cryptography import x509

    loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    try:
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def _authority(folder: Path) -> Issuer:
    for name in ("ca.key", "ca.pem"):
        if not (folder / name).exists():
            raise RunError(
                f"{folder} holds no {name}; expected the authority of the federation, which signs "
                "the certificate. Check the path, or bring the file back from where it is stored."
            )
    serialization()
    try:
        return Issuer.read((folder / "ca.key").read_bytes(), (folder / "ca.pem").read_bytes())
    except ValueError as error:
        raise RunError(
            f"{folder} has no usable authority ({error}); expected ca.key and ca.pem of one "
            "coterie federation init. Restore them from a backup."
        ) from None


def _public_key_file(folder: Path, name: str) -> Path:
    path = folder / "nodes" / f"{name}.pub"
    known = sorted(pub.stem for pub in (folder / "nodes").glob("*.pub"))
    # A key that was admitted can always be revoked, whatever names were valid then.
    if name not in known:
        refuse_node_name(name)
        raise RunError(
            f"{path} does not exist; expected an admitted node ({', '.join(known) or 'none'}). "
            "Check the name."
        )
    return path


def _refuse_known(folder: Path, public_key: Path, key: PublicKey) -> None:
    """Refuse a key that another node has: a key is one node."""
    for path in sorted((folder / "nodes").glob("*.pub")):
        if path.read_bytes().split()[:2] == key.line.encode().split():
            raise RunError(
                f"{public_key} is the key of {path.stem} already; expected a key for each node. "
                "On the node, make another one: coterie node key NAME"
            )


def _write_public(path: Path, key: PublicKey, lifetime: timedelta | None) -> None:
    """Write NAME.pub: nothing of the file that came but the key, and the server's own dates."""
    dates = KeyDates.from_now(lifetime)
    write_file(path, f"{key.line} {dates.comment}\n".encode("ascii"), owner_only=False)


def _delete_private(public: Path) -> None:
    """Delete the private key next to a public one, where an earlier version made it."""
    public.with_suffix(".key").unlink(missing_ok=True)


def _lifetime(days: int | None) -> timedelta | None:
    return None if days is None else timedelta(days=days)


def _refuse_hosts(hosts: Sequence[str]) -> None:
    for host in hosts:
        if not HOST.fullmatch(host) or host in WILDCARDS:
            raise ConfigError(
                f"the host is {host!r}; expected a name or address by which nodes reach the "
                "server, such as 10.0.0.5. Change --host."
            )


def _write_new(path: Path, data: bytes, secret: bool = False) -> None:
    mode = 0o600 if secret else 0o644
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    with os.fdopen(file, "wb") as out:
        out.write(data)
