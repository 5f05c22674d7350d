"""Where a server listens and nodes connect to, and when that may be without TLS."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from coterie.errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"the address is {text!r}; expected HOST:PORT, such as 127.0.0.1:8000. Change it."
            )
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def refuse_plaintext(self, insecure: bool, certificates: str) -> None:
        """Require TLS; --insecure is allowed on loopback only."""
        if not insecure:
            raise ConfigError(
                f"no certificates are named for {self}; expected {certificates} "
                "(coterie federation init makes them). "
                "Name them, or try it on loopback with --insecure."
            )
        if self.host not in LOOPBACK:
            raise ConfigError(
                f"--insecure is given with {self}, where traffic could be read and changed on the "
                "way; expected TLS, or a loopback address. "
                f"Leave --insecure out and name {certificates}."
            )

    def is_in_use(self) -> bool:
        """Whether something listens here already."""
        try:
            socket.create_connection((self.host, self.port), timeout=1).close()
        except OSError:
            return False
        return True
