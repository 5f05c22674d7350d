"""Certificates and keys of a federation: one authority of its own, the server's certificate, and a key for every node.

FOLDER/ca.pem  ca.key  server.pem  server.key       the server's; nodes need ca.pem alone
FOLDER/nodes/NAME.key  NAME.pub                     the key goes to its node, the .pub stays: who has none is not admitted
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.errors import ConfigError, MissingExtra, RunError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

HOST = re.compile(r"[0-9A-Za-z_.:-]{1,253}")
DAYS = 825
"""How long certificates last; what most programs accept."""


def init(folder: Path, hosts: Sequence[str], nodes: Sequence[str]) -> None:
    """Everything for a server that is reached by these names or addresses, and for these nodes."""
    if (folder / "ca.key").exists():
        raise RunError(
            f"{folder} has an authority already; expected a new folder. For another node: coterie federation add {folder} NAME"
        )
    for host in hosts:
        if not HOST.fullmatch(host):
            raise ConfigError(
                f"a host is {host!r}; expected a name or an address by which nodes reach the server, such as 10.0.0.5. Change --host."
            )
    for name in nodes:
        _refuse_name(name)
    hosts = list(
        dict.fromkeys([*hosts, "127.0.0.1"])
    )  # the server's own programs speak to each other there
    (folder / "nodes").mkdir(parents=True, exist_ok=True)
    authority = _key()
    own = _key()
    issuer = _name("Coterie federation")
    _write(folder / "ca.key", _private(authority), secret=True)
    _write(
        folder / "ca.pem", _pem(_signed(authority, issuer, authority, issuer, [], authority=True))
    )
    _write(folder / "server.key", _private(own), secret=True)
    _write(
        folder / "server.pem",
        _pem(_signed(own, _name("Coterie server"), authority, issuer, hosts, authority=False)),
    )
    for name in nodes:
        add(folder, name)


def add(folder: Path, name: str) -> Path:
    """A key for one more node."""
    _refuse_name(name)
    place = folder / "nodes" / f"{name}.key"
    if place.exists() or place.with_suffix(".pub").exists():
        raise RunError(
            f"{place} exists already; expected a new name. Choose another, or revoke it first."
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
    _write(place, private, secret=True)
    _write(place.with_suffix(".pub"), public + b"\n")
    return place


def _refuse_name(name: str) -> None:
    if not name or any(c in name for c in "/\\") or name.startswith("."):
        raise ConfigError(
            f"the node's name is {name!r}; expected one that can be a file's. Change it."
        )


def hosts_of(certificate: Path) -> list[str]:
    """The names and addresses that a certificate is for."""
    _serialization()
    from cryptography import x509

    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def revoke(folder: Path, name: str) -> None:
    """A node whose public key is gone is let in no more."""
    place = folder / "nodes" / f"{name}.pub"
    if not place.exists():
        known = (
            ", ".join(sorted(path.stem for path in (folder / "nodes").glob("*.pub"))) or "nobody"
        )
        raise RunError(
            f"{place} does not exist; expected a node that is admitted ({known}). Check the name."
        )
    place.unlink()
    place.with_suffix(".key").unlink(missing_ok=True)  # else the name could never be used again


def _serialization() -> Any:
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
    made = (
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
        made = made.add_extension(
            x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
        )
    return made.sign(by, hashes.SHA384())


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


def _write(place: Path, data: bytes, secret: bool = False) -> None:
    with os.fdopen(
        os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if secret else 0o644), "wb"
    ) as out:
        out.write(data)
