"""Certificates and keys of a federation: an authority, the server's certificate, a key per node.

FOLDER/ca.pem  ca.key  server.pem  server.key    the server's files; nodes need ca.pem only
FOLDER/nodes/NAME.key  NAME.pub                  the key goes to its node; the server keeps the .pub
                                                 and rejects nodes without one
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.errors import ConfigError, MissingExtra, RunError

if TYPE_CHECKING:
    from types import ModuleType

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

HOST = re.compile(r"[0-9A-Za-z_.:-]{1,253}")
DAYS = 825
"""Validity of certificates; most programs accept no more."""


def init(folder: Path, hosts: Sequence[str], nodes: Sequence[str]) -> None:
    """Make all files for a server with these names or addresses, and for these nodes."""
    if (folder / "ca.key").exists():
        raise RunError(
            f"{folder} has an authority already; expected a new folder. "
            f"For another node, run: coterie federation add {folder} NAME"
        )
    for host in hosts:
        if not HOST.fullmatch(host):
            raise ConfigError(
                f"the host is {host!r}; expected a name or address by which nodes reach the "
                "server, such as 10.0.0.5. Change --host."
            )
    for name in nodes:
        _refuse_name(name)
    # The server's own programs connect to each other on loopback.
    hosts = list(dict.fromkeys([*hosts, "127.0.0.1"]))
    (folder / "nodes").mkdir(parents=True, exist_ok=True)
    authority = _key()
    server = _key()
    issuer = _name("Coterie federation")
    subject = _name("Coterie server")
    root = _signed(authority, issuer, authority, issuer, [], authority=True)
    certificate = _signed(server, subject, authority, issuer, hosts, authority=False)
    _write(folder / "ca.key", _private(authority), secret=True)
    _write(folder / "ca.pem", _pem(root))
    _write(folder / "server.key", _private(server), secret=True)
    _write(folder / "server.pem", _pem(certificate))
    for name in nodes:
        add(folder, name)


def add(folder: Path, name: str) -> Path:
    """Make a key for one more node."""
    _refuse_name(name)
    path = folder / "nodes" / f"{name}.key"
    if path.exists() or path.with_suffix(".pub").exists():
        raise RunError(
            f"{path} exists already; expected a new name. Choose another, or revoke it first."
        )
    if not (folder / "ca.key").exists():
        raise RunError(
            f"{folder} has no authority; expected one. Run: coterie federation init {folder}"
        )
    serialization = _serialization()
    key = _key()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    _write(path, private, secret=True)
    _write(path.with_suffix(".pub"), public + b"\n")
    return path


def _refuse_name(name: str) -> None:
    if not name or any(c in name for c in "/\\") or name.startswith("."):
        raise ConfigError(
            f"the node's name is {name!r}; expected a valid file name. Choose another."
        )


def hosts_of(certificate: Path) -> list[str]:
    """The names and addresses that a certificate is for."""
    _serialization()
    from cryptography import x509

    loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def revoke(folder: Path, name: str) -> None:
    """Revoke a node: the server rejects nodes whose public key is missing."""
    path = folder / "nodes" / f"{name}.pub"
    if not path.exists():
        known = ", ".join(sorted(pub.stem for pub in (folder / "nodes").glob("*.pub"))) or "none"
        raise RunError(
            f"{path} does not exist; expected an admitted node ({known}). Check the name."
        )
    path.unlink()
    # A key that stays would block the name for good.
    path.with_suffix(".key").unlink(missing_ok=True)


def _serialization() -> ModuleType:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise MissingExtra("a federation's certificates", "federation") from None
    return serialization


def _key() -> ec.EllipticCurvePrivateKey:
    _serialization()
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _name(common: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _signed(
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    hosts: Sequence[str],
    *,
    authority: bool,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(
            x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=authority,
                crl_sign=authority,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
        )
    return builder.sign(by, hashes.SHA384())


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    serialization = _serialization()
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(_serialization().Encoding.PEM)


def _write(path: Path, data: bytes, secret: bool = False) -> None:
    mode = 0o600 if secret else 0o644
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    with os.fdopen(file, "wb") as out:
        out.write(data)
