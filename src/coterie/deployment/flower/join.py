"""`coterie join`: a SuperNode over a store of this node's people."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coterie.core.progress import Progress
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.deployment import certificates
from coterie.deployment.flower.processes import (
    LOOPBACK,
    Address,
    ended_by_signals,
    free_port,
    gate,
    program,
    running,
    wait_for,
)
from coterie.deployment.node_evaluation import LEAST_GROUP
from coterie.deployment.node_service import SIMULATED, NodeService
from coterie.deployment.node_store import NodeStore
from coterie.errors import ConfigError, RunError
from coterie.experiments import folder as disk

PAUSE = 0.5
AGAIN = 2.0


@dataclass(frozen=True, slots=True)
class People:
    """Whom a node takes part for, and how."""

    data: Path
    columns: dict[str, str]
    simulated: bool = False
    """Whether devices draw what a simulation draws."""
    least_group: int = LEAST_GROUP
    skip_bad_rows: bool = False

    def put(self, store: NodeStore) -> None:
        store.put_interactions(read(self.data, ReadOptions(self.columns, self.skip_bad_rows)))
        store.put_about(least_group=str(self.least_group))
        NodeService(store).draw_from(SIMULATED if self.simulated else "")


def join(
    people: People,
    place: Path,
    server: str,
    proof: tuple[Path | None, Path | None],
    insecure: bool,
    progress: Progress,
) -> None:
    """`proof`: this node's key, and the certificate of the authority that vouches for the server."""
    address = Address.of(server)
    (key, ca) = proof
    if (key is None) != (ca is None):
        raise ConfigError(
            f"{'--key' if ca is None else '--ca'} is named without the other; expected both: a node shows who it is, and knows whom it trusts. Name {'--ca' if ca is None else '--key'}, too."
        )
    if key is None:
        address.refuse_in_the_clear(insecure, "--key NAME.key and --ca ca.pem")
    for given in filter(None, proof):
        if not given.is_file():
            raise ConfigError(f"{given} does not exist. Check the path.")
    refuse_stranger(address, ca, progress)
    ended_by_signals()
    home = place.with_suffix(".flower")
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with used_by_nobody_else(home, place):
        store = NodeStore.open(place) if place.exists() else NodeStore.create(place)
        people.put(store)
        progress.log(
            f"{place}: {len(store.people()):,} people are here for what {address} serves. Stop with Ctrl-C."
        )
        log = place.with_suffix(".log")
        inside = Address(LOOPBACK[0], free_port())
        trusted, proven = passage(home / "inside", key, ca)
        with running(
            gate("node", inside, address.url(ca is not None), *trusted), log, home
        ) as door:
            wait_for(inside, door, log)
            while True:
                command = [
                    program("flower-supernode"),
                    *proven,
                    "--superlink",
                    str(inside),
                    "--host",
                    inside.host,
                    "--port",
                    str(free_port()),
                    "--node-config",
                    f"store={json.dumps(str(place.resolve()))}",
                ]
                stay(command, log, home, store, key, progress)
                progress.log(f"{address} does not know this node any more; joining again")
                time.sleep(AGAIN)


def passage(folder: Path, key: Path | None, ca: Path | None) -> tuple[list[Path], list[str]]:
    """What the gate trusts and shows, and what the SuperNode behind it: Flower shows a key to nobody without TLS, so the gate has some, too."""
    if key is None or ca is None:
        return [], ["--insecure"]
    shutil.rmtree(folder, ignore_errors=True)
    certificates.init(folder, [LOOPBACK[0]], [])
    proven = [
        "--root-certificates",
        str(folder / "ca.pem"),
        "--auth-supernode-private-key",
        str(key),
    ]
    return [ca, folder / "server.pem", folder / "server.key"], proven


def stay(
    command: Sequence[str],
    log: Path,
    home: Path,
    store: NodeStore,
    key: Path | None,
    progress: Progress,
) -> None:
    """Run a SuperNode until it is sent away, and show what it has to say. A server that is started anew sends everybody away."""
    said = store.about("said")
    with running(command, log, home) as node:
        while node.poll() is None:
            if (now := store.about("said")) != said:
                progress.log((now or "").partition(" ")[2])
                said = now
            time.sleep(PAUSE)
        if node.returncode:
            shown = (
                f"{key} is not registered there, was revoked, or is used by another node"
                if key
                else "the server would not have it"
            )
            raise RunError(
                f"the node was not let in (code {node.returncode}): {shown}. Ask whoever serves; {log} has Flower's own words."
            )


@contextmanager
def used_by_nobody_else(home: Path, place: Path) -> Iterator[None]:
    try:
        with disk.locked(home):
            yield
    except RunError as error:
        if "another process" not in str(error):
            raise
        raise RunError(
            f"{place} is in use by another coterie join; expected a store of its own for every node. Stop that one, or name another."
        ) from None


def refuse_stranger(address: Address, ca: Path | None, progress: Progress) -> None:
    """A server that another authority vouches for is told at once; one that is not there yet is waited for."""
    try:
        with socket.create_connection((address.host, address.port), timeout=5) as plain:
            if ca is not None:
                context = ssl.create_default_context(cafile=str(ca))
                context.wrap_socket(plain, server_hostname=address.host).close()
    except ssl.SSLError as error:
        raise ConfigError(
            f"{address} cannot be trusted by {ca} ({error.reason or error}); expected a server of the same federation. "
            "Check the address, and ca.pem with whoever serves."
        ) from None
    except OSError:
        progress.log(f"nobody listens at {address} yet; waiting")
