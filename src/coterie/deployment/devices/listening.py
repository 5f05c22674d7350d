"""Serves the gateway of a federation while its server runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.core.progress import Progress
from coterie.deployment.address import LOOPBACK, Address
from coterie.deployment.certificates import hosts_of
from coterie.deployment.devices.app import DeviceGate, milliseconds
from coterie.deployment.devices.clients import PublicTerms
from coterie.deployment.devices.freshness import Freshness
from coterie.deployment.devices.gateway import Gateway, gateway_of
from coterie.deployment.devices.pages import read_pages
from coterie.deployment.devices.store import GATEWAY
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.fleet.listener import listening
from coterie.deployment.server_config import ServerConfig
from coterie.deployment.validity import certificate_fingerprint

PAGE = "/device/"


@contextmanager
def serving_devices(
    folder: Path,
    terms: FederationTerms,
    service: ServerConfig,
    address: Address,
    keys: Path | None,
    progress: Progress,
) -> Iterator[Gateway]:
    """The gateway of a run folder, which browsers reach at `address` while the body runs."""
    most = service.limits.most_users(GATEWAY)
    gateway = gateway_of(folder, terms, progress, service.open, service.least_devices, most)
    fingerprint = "" if keys is None else certificate_fingerprint(keys / "ca.pem")
    public = PublicTerms.of(terms, folder.name, fingerprint, service.round_seconds)
    gate = DeviceGate(
        gateway, public, read_pages(), hosts_for(address, keys), Freshness(milliseconds())
    )
    gateway.board.on_message = gate.ring
    url = url_of(address, keys)
    gateway.store.put_url(url)
    with listening(gate, address, keys):
        progress.log(f"{folder}: devices enrol at {url} with a code: coterie device code {folder}")
        if keys is not None:
            progress.log(
                f"before they open it, devices have to trust {keys / 'ca.pem'}, fingerprint "
                f"{fingerprint}. docs/device.md says how a phone does"
            )
        try:
            yield gateway
        finally:
            gateway.board.stop()


def hosts_for(address: Address, keys: Path | None) -> frozenset[str]:
    """The names by which browsers reach the gateway: those of the certificate, or of loopback."""
    if keys is None:
        return frozenset(LOOPBACK)
    return frozenset(host.lower() for host in hosts_of(keys / "server.pem"))


def url_of(address: Address, keys: Path | None) -> str:
    """The address of the page. A server that listens everywhere is reached by its certificate's
    name."""
    if keys is None:
        return f"http://{address}{PAGE}"
    hosts = hosts_of(keys / "server.pem")
    host = address.host if address.host in hosts else hosts[0]
    return f"https://{Address(host, address.port)}{PAGE}"
