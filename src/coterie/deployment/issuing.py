"""Key pairs, and certificates that an authority signs (X.509 with ECDSA on P-384)."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coterie.errors import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

SERVER_DAYS = 825
"""Validity of a server's certificate, with the skew. Phones of Apple refuse more."""
AUTHORITY_DAYS = 3650
"""Validity of an authority. Every node holds its certificate, so replacing it is laborious."""
CLOCK_SKEW = datetime.timedelta(minutes=5)
"""How far in the past a certificate begins: clocks of nodes may be behind."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authority that signs certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls) -> Issuer:
        """An authority that signs its own certificate."""
        key = new_key()
        name = _name("Coterie federation")
        until = _now() + datetime.timedelta(days=AUTHORITY_DAYS)
        builder = _builder(key, name, key, name, until, authority=True)
        return cls(key, _signed(builder, key))

    @classmethod
    def read(cls, key: bytes, certificate: bytes) -> Issuer:
        """The authority in ca.key and ca.pem. ValueError if the two do not belong together."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        private = serialization().load_pem_private_key(key, password=None)
        loaded = x509.load_pem_x509_certificate(certificate)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError("the key is not for ECDSA")
        if private.public_key() != loaded.public_key():
            raise ValueError("the key is not that of the certificate")
        return cls(private, loaded)

    def issue(self, key: ec.EllipticCurvePrivateKey, hosts: Sequence[str]) -> x509.Certificate:
        """A server's certificate for these names and addresses. It never outlives the authority."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        # It begins before now, so it ends earlier, too; with a margin, since both ends count.
        until = _now() + datetime.timedelta(days=SERVER_DAYS) - 2 * CLOCK_SKEW
        until = min(until, self.certificate.not_valid_after_utc)
        subject = _name("Coterie server")
        # Phones of Apple refuse a server's certificate that names no purpose.
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        builder = (
            _builder(key, subject, self.key, self.certificate.subject, until, authority=False)
            .add_extension(names, critical=False)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        )
        return _signed(builder, self.key)


def serialization() -> ModuleType:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise MissingExtra("a federation's certificates", "federation") from None
    return serialization


def new_key() -> ec.EllipticCurvePrivateKey:
    serialization()
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    formats = serialization()
    return key.private_bytes(
        formats.Encoding.PEM, formats.PrivateFormat.PKCS8, formats.NoEncryption()
    )


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization().Encoding.PEM)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _name(common: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    until: datetime.datetime,
    *,
    authority: bool,
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - CLOCK_SKEW)
        .not_valid_after(until)
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


def _signed(builder: x509.CertificateBuilder, by: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(by, hashes.SHA384())


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
