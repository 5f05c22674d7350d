"""Roll-backs of a federation of processes, by the documented commands."""

from __future__ import annotations

import signal
import subprocess

import numpy as np
import pytest
from deployment.test_federation import COTERIE, Site, kill_9, site  # noqa: F401  a fixture
from deployment.test_rollback import LEFT_OUT, NODES, private_rows, simulated, since

from coterie.deployment.hosting import read_hosts
from coterie.deployment.server_commits import snapshot_rounds

ROUNDS = 60
HOOK = """
import os, sys, time
from pathlib import Path
if "join" in sys.orig_argv:
    from coterie.deployment.node_private_store import NodeStore
    restore = NodeStore.restore_snapshot
    hold = Path(os.environ["CONTROL"]) / "hold"

    def restore_snapshot(self, n):
        restore(self, n)
        if hold.exists():
            hold.with_name("restoring").touch()
            while hold.exists():
                time.sleep(0.05)

    NodeStore.restore_snapshot = restore_snapshot
"""
"""A sitecustomize of a node's process, which waits in the middle of the transaction."""


def roll_back(site: Site, n: int) -> str:  # noqa: F811
    """Leave the last node out; returns what the command prints."""
    host = read_hosts(site.folder / "run")[str(site.people.user_ids[LEFT_OUT])]
    command = ["federation", "rollback", "run", "--round", str(n), "--without", host]
    done = subprocess.run(
        [*COTERIE, *command], cwd=site.folder, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", ["fcf", "fedfast"])
def test_a_federation_of_processes_goes_back(name: str, site: Site):  # noqa: F811
    """Nodes with private state are killed while they restore it, and started again."""
    settings = f"algorithm: {name}\nembedding_size: 5\nrounds: {ROUNDS}\nparticipation: 0.3\n"
    site.files(NODES, settings + "quorum: 1.0\nsnapshot_every: 5\n")
    site.hook()
    (site.folder / "hook" / "sitecustomize.py").write_text(HOOK)
    server = site.serve("--insecure")
    site.wait(lambda: "serving at" in site.log(server))
    nodes = [site.join(node, "--insecure") for node in range(NODES)]
    site.wait(lambda: site.status().get("round", 0) >= 12, 150)
    server.send_signal(signal.SIGTERM)
    server.wait(60)
    n = snapshot_rounds(site.folder / "run")[0]
    assert "least_nodes is 3, and nodes left are 2" in roll_back(site, n)
    config = site.folder / "fed.yaml"
    config.write_text(config.read_text().replace("least_nodes: 3", "least_nodes: 2"))
    hold = site.folder / "hold"
    hold.touch()
    server = site.serve("--insecure")
    if name == "fcf":
        site.wait((site.folder / "restoring").exists, 150)
        for node in nodes[:LEFT_OUT]:
            kill_9(node)
        hold.unlink()
        for node in range(LEFT_OUT):
            site.join(node, "--insecure")
    site.wait(lambda: server.poll() is not None, 300)
    assert server.returncode == 0, site.log(server)
    assert site.status()["round"] == ROUNDS
    expected = simulated(site.terms, site.people, since(n), ROUNDS)
    assert site.equals(expected.arrays())
    private = expected.private_arrays()
    for node in range(LEFT_OUT):
        for user, row in private_rows(site.folder / f"{node}.db").items():
            assert np.array_equal(row, private["user_rows"][user])
