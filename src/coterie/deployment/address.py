"""Where a server listens and nodes connect to, and when that may be without TLS."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass

from coterie.errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
OBSTACLES = {
    errno.EADDRINUSE: "something listens there already",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "ports below 1024 need the rights of an administrator",
}
"""System error -> why a server cannot listen at an address."""


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

    def obstacle(self) -> str:
        """Why a server cannot listen here; empty if it can."""
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM
            )[0]
            with socket.socket(family, kind, protocol) as trial:
                # As servers do: a port whose last connections are closing is free.
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(place)
        except socket.gaierror:
            return f"no address is known of {self.host}"
        except OSError as error:
            return OBSTACLES.get(error.errno or 0, os.strerror(error.errno or 0))
        return ""
