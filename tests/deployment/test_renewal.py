"""Servers behind other addresses, and with another certificate: nodes find them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from deployment.test_federation import COTERIE, FEDFAST, Site, keyed, site
from deployment.test_fleet import free_port, served
from node_keys import key_of, make_keys

from coterie.deployment import certificates
from coterie.deployment.address import Address
from coterie.deployment.fleet.client import FleetClient

__all__ = ["site"]
pytestmark = pytest.mark.long


def test_a_server_at_all_addresses(site: Site):
    """As in a container: it binds to 0.0.0.0, which no certificate names."""
    site.files(1, FEDFAST)
    site.make_keys("a")
    nodes_use = site.server
    site.server = f"0.0.0.0:{Address.of(nodes_use).port}"
    server = site.serve("--keys", "keys")
    site.wait(lambda: "serving at" in site.log(server), 60)
    assert "is for 127.0.0.1: nodes must connect to one of those, not to 0.0.0.0" in site.log(
        server
    ).replace("\n", " ")
    site.server = nodes_use
    doctor = [*COTERIE, "federation", "doctor", "--server", nodes_use, *keyed("a")]
    subprocess.run(doctor, cwd=site.folder, check=True)
    site.join(0, *keyed("a"))
    site.wait(lambda: server.poll() is not None, 120)
    assert server.returncode == 0, site.log(server)
    assert site.equals_the_simulation()


def test_a_node_returns_to_a_server_with_a_renewed_certificate(tmp_path: Path):
    """It keeps its key, ca.pem and its process, and reaches the server by a new name, too."""
    keys = tmp_path / "keys"
    make_keys(keys, ["127.0.0.1"], ["ann"])
    credentials = key_of(keys, "ann"), keys / "ca.pem"
    port = free_port()
    with served(keys, port=port) as server:
        ann = server.client()
        ann.activate()
        assert server.wait_for(1) == ["ann"]
    ann.close()
    certificates.renew(keys, ["localhost"])
    with served(keys, port=port) as server:
        ann.activate()
        assert server.wait_for(1) == ["ann"]
        renamed = FleetClient.to(Address("localhost", port), *credentials)
        renamed.activate()
        assert server.nodes.joined() == {"ann": 2}
        ann.close()
        renamed.close()
