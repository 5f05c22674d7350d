"""`coterie join`: a SuperNode over a store of this node's people."""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from coterie.data.options import Reading
from coterie.data.reading import read
from coterie.errors import ConfigError, RunError
from coterie.progress import Watch
from coterie.runtime.flower.processes import Address, ended_by_signals, program, running
from coterie.runtime.host import SIMULATED, Host
from coterie.runtime.judging import LEAST_GROUP
from coterie.runtime.store import Store


@dataclass(frozen=True, slots=True)
class People:
    """Whom a node takes part for, and how."""

    data: Path
    columns: dict[str, str]
    simulated: bool = False
    """Whether devices draw what a simulation draws."""
    least_group: int = LEAST_GROUP

    def put(self, store: Store) -> None:
        store.put_interactions(read(self.data, Reading(self.columns)))
        store.put_about(least_group=str(self.least_group))
        Host(store).draw_from(SIMULATED if self.simulated else "")


def join(
    people: People, place: Path, server: str, proof: tuple[Path | None, Path | None], insecure: bool, watch: Watch
) -> None:
    """`proof`: this node's key, and the certificate of the authority that vouches for the server."""
    address, (key, ca) = Address.of(server), proof
    if (key is None) != (ca is None):
        raise ConfigError(
            f"{'--key' if ca is None else '--ca'} is named without the other; expected both: a node shows who it is, and knows whom it trusts. Name {'--ca' if ca is None else '--key'}, too."
        )
    if key is None:
        address.refuse_in_the_clear(insecure, "--key NAME.key and --ca ca.pem")
    for given in filter(None, proof):
        if not given.is_file():
            raise ConfigError(f"{given} does not exist. Check the path.")
    secured = (
        ["--insecure"] if key is None else ["--root-certificates", str(ca), "--auth-supernode-private-key", str(key)]
    )
    if ca is not None:
        refuse_stranger(address, ca, watch)
    ended_by_signals()
    store = Store.open(place) if place.exists() else Store.create(place)
    people.put(store)
    here = len(store.people())
    store.close()
    command = [
        program("flower-supernode"), *secured, "--superlink", str(address), "--host", "127.0.0.1", "--port", str(free_port()),
        "--node-config", f"store={json.dumps(str(place.resolve()))}",
    ]  # fmt: skip
    log = place.with_suffix(".log")
    with running(command, log, place.with_suffix(".flower")) as node:
        watch.say(f"{place}: {here:,} people take part in what {address} serves. Stop with Ctrl-C.")
        if code := node.wait():
            raise RunError(
                f"the node was not let in, or stopped with code {code}: {told(log)}. Is its key registered, and is it in no other node?"
            )


def told(log: Path) -> str:
    """What Flower said was wrong."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if "ERROR" in line), f"see {log}")


def refuse_stranger(address: Address, ca: Path, watch: Watch) -> None:
    """A server that another authority vouches for is told at once; one that is not there yet is waited for."""
    try:
        context = ssl.create_default_context(cafile=str(ca))
        with socket.create_connection((address.host, address.port), timeout=5) as plain:
            context.wrap_socket(plain, server_hostname=address.host).close()
    except ssl.SSLError as error:
        raise ConfigError(
            f"{address} cannot be trusted by {ca} ({error.reason or error}); expected a server of the same federation. "
            "Check the address, and ca.pem with whoever serves."
        ) from None
    except OSError:
        watch.say(f"nobody listens at {address} yet; waiting")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
