"""What a node needs to join a federation, as one file without secrets, the same for all nodes.

# An invitation to a federation of Coterie. Nothing in it is secret.
server: 10.0.0.5:8000
trains: fcf, secure aggregation ring, no epsilon
-----BEGIN CERTIFICATE-----
...

The certificate is that of the authority that signs the server's. Text before a certificate is
allowed (RFC 7468), so that the file serves as ca.pem, too. A node that joined with an invitation
refuses runs that train anything else than `trains` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coterie.core.atomic_files import write_file
from coterie.core.missing_files import remedy_for
from coterie.core.plain_files import read_text
from coterie.deployment.address import Address
from coterie.deployment.certificates import hosts_of
from coterie.deployment.issuing import serialization
from coterie.deployment.validity import read_certificate
from coterie.errors import ConfigError, RunError

FILE = "invitation.txt"
MOST_BYTES = 1 << 15
HEAD = "# An invitation to a federation of Coterie. Nothing in it is secret.\n"
BEGIN = "-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Invitation:
    server: str
    """Where nodes reach the server, HOST:PORT."""
    trains: str
    """Algorithm and protection, as `protection_of` says it."""
    certificate: str
    """The authority's, as PEM."""

    @property
    def text(self) -> str:
        return f"{HEAD}server: {self.server}\ntrains: {self.trains}\n{self.certificate}"


def write_invitation(folder: Path, server: str, trains: str) -> Path:
    """Write the invitation to the server of a key folder, which nodes reach at this address."""
    address = Address.of(server)
    for name in ("ca.pem", "server.pem"):
        if not (folder / name).exists():
            raise RunError(
                f"{folder} holds no {name}; expected a folder of coterie federation init. "
                "Check the path."
            )
    hosts = hosts_of(folder / "server.pem")
    if address.host not in hosts:
        raise ConfigError(
            f"--server is {address}, and the server's certificate is for {', '.join(hosts)}; "
            "expected one of those: nodes reject a server under another name. Change it, or run: "
            f"coterie federation renew {folder} --host {address.host}"
        )
    authority = read_certificate(folder / "ca.pem")
    pem = authority.public_bytes(serialization().Encoding.PEM).decode("ascii")
    path = folder / FILE
    write_file(path, Invitation(str(address), trains, pem).text.encode(), owner_only=False)
    return path


def read_invitation(path: Path) -> Invitation:
    """The invitation in a file that the server's owner sent."""
    if not path.is_file():
        raise ConfigError(
            f"{path} does not exist; expected an invitation of coterie federation invite. "
            f"{remedy_for(path)}"
        )
    head, begin, rest = read_text(path, MOST_BYTES).partition(BEGIN)
    values = {}
    for line in head.splitlines():
        key, _, value = line.partition(": ")
        values[key] = value.strip()
    if not begin or not values.get("server") or not values.get("trains"):
        raise ConfigError(
            f"{path} is not an invitation; expected lines `server:` and `trains:` and a "
            "certificate, as coterie federation invite writes them. Ask the server's owner for it."
        )
    if BEGIN in rest:
        # Both would be trusted, and the fingerprint of one is shown.
        raise ConfigError(
            f"{path} holds several certificates; expected one, that of the server's authority. "
            "Ask the server's owner for the invitation."
        )
    read_certificate(path)
    return Invitation(values["server"], values["trains"], begin + rest)
