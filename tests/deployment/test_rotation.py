"""A node's key is rotated in the middle of a federation, with the documented commands."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

pytest.importorskip("flwr")
from deployment.test_federation import COTERIE, PFPL, Site, keyed, site

from coterie.deployment.fleet.nodes import LOOK_SECONDS

__all__ = ["site"]
pytestmark = pytest.mark.long


def test_a_rotated_node_goes_on_with_its_users(site: Site):
    """The node is computing its reply in the third round. The server rejects the old key and waits
    for the new one. Both nodes take part in every round, so that the model is that of the
    simulation, although clients have private state."""
    settings = PFPL.replace("rounds_an_epoch: 2", "rounds_an_epoch: 5")
    site.files(2, settings + "round_seconds: 8\nquorum: 1.0\nwait_seconds: 120\n")
    site.make_keys("a")
    for call in (
        ["node", "key", "b"],
        ["federation", "add", "keys", "b", "b.pub", "--days", "30"],
    ):
        subprocess.run([*COTERIE, *call], cwd=site.folder, check=True)
    site.hook()
    site.hold(1, 3)
    server = site.serve("--keys", "keys")
    site.wait(lambda: "serving at" in site.log(server), 60)
    site.join(0, *keyed("a"))
    old = site.join(1, "--key", "b.key", "--ca", "keys/ca.pem")
    site.wait_until_held(1)
    for call in (
        ["node", "key", "b-2", "--replaces", "b.key"],
        ["federation", "rotate", "keys", "b", "b-2.pub"],
    ):
        subprocess.run([*COTERIE, *call], cwd=site.folder, check=True)
    time.sleep(3 * LOOK_SECONDS)
    site.release(1)
    assert old.wait(60) == 2
    assert "is not registered there, or was revoked" in site.log(old)
    assert site.status()["round"] < 5
    new = site.join(1, "--key", "b-2.key", "--ca", "keys/ca.pem")
    site.wait(lambda: server.poll() is not None, 200)
    assert server.returncode == 0, site.log(server)
    assert site.status()["round"] == 5
    assert site.equals_the_simulation()
    new.send_signal(signal.SIGTERM)
    assert new.wait(30) == 143
