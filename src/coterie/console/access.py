"""Where the console listens, and by which names it may be called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coterie.deployment.address import LOOPBACK, Address
from coterie.errors import ConfigError
from coterie.serving.access import Access, is_loopback


@dataclass(frozen=True, slots=True)
class ConsoleAccess:
    """Anybody on this machine may read. Other machines need TLS, and the token also to read."""

    address: Address
    files: Access
    """The files of TLS."""
    other_names: str = "--host HOST with --certificate and --key"

    @classmethod
    def of(cls, address: Address, certificate: Path | None, key: Path | None) -> ConsoleAccess:
        if address.host not in LOOPBACK and certificate is None:
            raise ConfigError(
                f"--host is {address.host!r}, which other machines can reach, and there is no TLS: "
                "the token could be read on the way; expected --certificate and --key with it. "
                "Name them, or leave --host out."
            )
        files = Access.of(Address(LOOPBACK[0], address.port), None, certificate, key, None)
        return cls(address, files)

    @property
    def is_local(self) -> bool:
        return self.address.host in LOOPBACK

    @property
    def url(self) -> str:
        return f"{'https' if self.files.is_encrypted else 'http'}://{self.address}"

    def accepts(self, authorization: bytes) -> bool:
        """The guard checks cookies: a browser sends no Authorization header here."""
        return True

    def accepts_host(self, host: bytes) -> bool:
        """On loopback, only the names of this machine: a page elsewhere could use its own name.

        Beyond loopback a cookie is needed for everything, which a browser sends to one name only.
        """
        return is_loopback(host) if self.is_local else True
