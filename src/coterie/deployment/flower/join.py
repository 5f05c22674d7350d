"""`coterie join`: runs a SuperNode over the store of a node's users."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from coterie.core.progress import Progress
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.deployment import certificates
from coterie.deployment.flower.processes import (
    LOOPBACK,
    Address,
    exit_on_sigterm,
    find_program,
    free_port,
    gate_command,
    running,
    wait_for,
)
from coterie.deployment.node_evaluation import LEAST_GROUP
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import SIMULATED, NodeService
from coterie.errors import ConfigError, RunError
from coterie.experiments import run_folder

PAUSE = 0.5
"""Seconds between two looks at a SuperNode."""
RETRY_AFTER = 2.0
"""Seconds before a node joins again."""


@dataclass(frozen=True, slots=True)
class NodeUsers:
    """The users that a node takes part for, and how."""

    data: Path
    options: ReadOptions
    """How the file is read."""
    simulated: bool = False
    """Whether clients draw as in a simulation."""
    least_group: int = LEAST_GROUP

    def put(self, store: NodeStore) -> tuple[str, ...]:
        """Write the users and their settings to a store; returns how the file was read."""
        # A copy in the cache would be a second place that holds this node's interactions.
        data = read(self.data, replace(self.options, cache=False))
        store.put_interactions(data)
        store.put_meta(least_group=str(self.least_group))
        NodeService(store).set_seed(SIMULATED if self.simulated else "")
        return (*data.reading, *data.notes)


def join(
    users: NodeUsers,
    path: Path,
    server: str,
    credentials: tuple[Path | None, Path | None],
    insecure: bool,
    progress: Progress,
) -> None:
    """Join a federation with the store at `path` until interrupted.

    `credentials`: this node's key, and the certificate of the server's authority.
    """
    address = Address.of(server)
    key, ca = credentials
    if (key is None) != (ca is None):
        given, missing = ("--ca", "--key") if key is None else ("--key", "--ca")
        raise ConfigError(
            f"{given} is given without {missing}; expected both: the node's key, and the "
            f"authority that verifies the server. Add {missing}."
        )
    if key is None:
        address.refuse_plaintext(insecure, "--key NAME.key and --ca ca.pem")
    for file in filter(None, credentials):
        if not file.is_file():
            raise ConfigError(f"{file} does not exist; expected a file. Check the path.")
    verify_server(address, ca, progress)
    exit_on_sigterm()
    home = path.with_suffix(".flower")
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked_store(home, path):
        store = NodeStore.open(path) if path.exists() else NodeStore.create(path)
        for line in users.put(store):
            progress.log(line)
        n_users = len(store.users())
        progress.log(f"{path}: joining {address} with {n_users:,} users. Stop with Ctrl-C.")
        log = path.with_suffix(".log")
        inside = Address(LOOPBACK[0], free_port())
        trusted, options = gate_credentials(home / "inside", key, ca)
        command = gate_command("node", inside, address.url(ca is not None), *trusted)
        with running(command, log, home) as gate:
            wait_for(inside, gate, log)
            while True:
                supernode = [
                    find_program("flower-supernode"),
                    *options,
                    "--superlink",
                    str(inside),
                    "--host",
                    inside.host,
                    "--port",
                    str(free_port()),
                    "--node-config",
                    f"store={json.dumps(str(path.resolve()))}",
                ]
                run_supernode(supernode, log, home, store, key, progress)
                progress.log(f"{address} no longer knows this node; joining again")
                time.sleep(RETRY_AFTER)


def gate_credentials(
    folder: Path, key: Path | None, ca: Path | None
) -> tuple[list[Path], list[str]]:
    """The files of the node gate, and the options of the SuperNode behind it.

    A SuperNode sends its key only over TLS, so the gate gets a certificate of its own.
    """
    if key is None or ca is None:
        return [], ["--insecure"]
    shutil.rmtree(folder, ignore_errors=True)
    certificates.init(folder, [LOOPBACK[0]], [])
    options = [
        "--root-certificates",
        str(folder / "ca.pem"),
        "--auth-supernode-private-key",
        str(key),
    ]
    return [ca, folder / "server.pem", folder / "server.key"], options


def run_supernode(
    command: Sequence[str],
    log: Path,
    home: Path,
    store: NodeStore,
    key: Path | None,
    progress: Progress,
) -> None:
    """Run a SuperNode until it is dismissed, and show the node's log lines.

    A restarted server dismisses all nodes.
    """
    shown = store.last_log()
    with running(command, log, home) as supernode:
        while supernode.poll() is None:
            last = store.last_log()
            if last != shown:
                progress.log(last[1])
                shown = last
            time.sleep(PAUSE)
        if supernode.returncode:
            cause = "the server refused it"
            if key:
                cause = f"{key} is not registered there, was revoked, or is used by another node"
            raise RunError(
                f"the node was rejected (code {supernode.returncode}): {cause}. "
                f"Ask the server's operator; {log} has Flower's own messages."
            )


@contextmanager
def locked_store(home: Path, path: Path) -> Iterator[None]:
    """Refuse a store that another node uses."""
    try:
        with run_folder.locked(home):
            yield
    except RunError as error:
        if "another process" not in str(error):
            raise
        raise RunError(
            f"{path} is in use by another coterie join; expected a store of its own for every "
            "node. Stop that process, or name another store."
        ) from None


def verify_server(address: Address, ca: Path | None, progress: Progress) -> None:
    """Reject a server that the authority does not vouch for; wait for one that is not up yet."""
    try:
        with socket.create_connection((address.host, address.port), timeout=5) as plain:
            if ca is not None:
                context = ssl.create_default_context(cafile=str(ca))
                context.wrap_socket(plain, server_hostname=address.host).close()
    except ssl.SSLError as error:
        raise ConfigError(
            f"{address} is not trusted by {ca} ({error.reason or error}); expected a server of the "
            "same federation. Check the address, and compare ca.pem with the server's operator."
        ) from None
    except OSError:
        progress.log(f"{address} does not answer yet; waiting")
