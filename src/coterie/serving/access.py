"""Who may call the API: anybody on this machine, or holders of a token or a client certificate."""

from __future__ import annotations

import hashlib
import hmac
import ssl
from dataclasses import dataclass
from pathlib import Path

from coterie.deployment.address import LOOPBACK, Address
from coterie.errors import ConfigError

LEAST_TOKEN = 16
"""Characters of the shortest token."""
READABLE_BY_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Access:
    address: Address
    token: bytes | None = None
    """Digest of the token; digests have equal lengths, so comparing them takes equal time."""
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    """Callers need a certificate of this authority."""
    other_names: str = "--token-file or --client-ca"

    @classmethod
    def of(
        cls,
        address: Address,
        token_file: Path | None,
        certificate: Path | None,
        key: Path | None,
        client_ca: Path | None,
    ) -> Access:
        """The access that options describe; refused if it is open to other machines."""
        _refuse_incomplete_tls(certificate, key, client_ca)
        if address.host not in LOOPBACK and token_file is None and client_ca is None:
            raise ConfigError(
                f"the address is {address}, which other machines can reach, and callers need "
                "neither token nor certificate; expected one of them. Add --token-file FILE, or "
                "--certificate, --key and --client-ca; or listen on 127.0.0.1."
            )
        token = None if token_file is None else digest(read_token(token_file))
        return cls(address, token, certificate, key, client_ca)

    @property
    def is_encrypted(self) -> bool:
        return self.certificate is not None

    @property
    def is_local(self) -> bool:
        return self.address.host in LOOPBACK

    @property
    def url(self) -> str:
        return f"{'https' if self.is_encrypted else 'http'}://{self.address}"

    def accepts(self, authorization: bytes) -> bool:
        """Whether a request with this Authorization header may pass."""
        if self.token is None:
            return True
        scheme, _, given = authorization.partition(b" ")
        matches = hmac.compare_digest(digest(given.strip()), self.token)
        return matches and scheme.lower() == b"bearer"

    def accepts_host(self, host: bytes) -> bool:
        """Whether a request to this Host may pass.

        Without a token or certificates, a page in a browser could reach this machine under a name
        of its own (DNS rebinding). Only the names of this machine are accepted then.
        """
        if self.token is not None or self.client_ca is not None:
            return True
        return is_loopback(host)

    def tls(self) -> ssl.SSLContext | None:
        """TLS with these files, or an error that names them."""
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"--certificate {self.certificate} with --key {self.key} cannot be loaded "
                f"({error}); expected a certificate and its private key as PEM. Check the files."
            ) from None
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(
                    f"--client-ca {self.client_ca} cannot be loaded ({error}); expected a "
                    "certificate authority as PEM. Check the file."
                ) from None
        return context


def is_loopback(host: bytes) -> bool:
    """Whether a Host header names this machine."""
    name = host.decode("latin-1").lower()
    name = name.rpartition(":")[0] if not name.endswith("]") and ":" in name else name
    return name.strip("[]") in LOOPBACK


def read_token(path: Path) -> bytes:
    """The token in a file that only its owner can read."""
    try:
        mode = path.stat().st_mode
        token = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"--token-file {path} cannot be read ({error.strerror}); expected a file with a "
            f"token. Make one: (umask 077; openssl rand -hex 32 > {path})"
        ) from None
    if mode & READABLE_BY_OTHERS:
        raise ConfigError(
            f"--token-file {path} can be read by others (mode {mode & 0o777:o}); expected 600. "
            f"Run: chmod 600 {path}"
        )
    if len(token) < LEAST_TOKEN or len(token.split()) != 1:
        raise ConfigError(
            f"--token-file {path} holds {len(token)} characters in {len(token.split())} words; "
            f"expected one word of at least {LEAST_TOKEN} characters. "
            f"Make one: (umask 077; openssl rand -hex 32 > {path})"
        )
    return token


def digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _refuse_incomplete_tls(
    certificate: Path | None, key: Path | None, client_ca: Path | None
) -> None:
    given = {"--certificate": certificate, "--key": key, "--client-ca": client_ca}
    if (certificate is None) != (key is None) or (client_ca and certificate is None):
        named = " and ".join(option for option, file in given.items() if file is not None)
        raise ConfigError(
            f"{named} is given alone; expected --certificate and --key together, and --client-ca "
            "only with them. Add what is missing."
        )
