"""`coterie serve`: the server of a federation, in one process."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from coterie.core.heap import keep_heap_compact
from coterie.core.progress import Progress
from coterie.deployment.address import LOOPBACK, Address
from coterie.deployment.certificates import hosts_of, private_keys
from coterie.deployment.devices.clients import refuse_without_client
from coterie.deployment.devices.listening import serving_devices
from coterie.deployment.devices.nodes import NodesWithDevices
from coterie.deployment.devices.store import GATEWAY
from coterie.deployment.enrolment import FederationTerms, ItemContent
from coterie.deployment.fleet.gate import Gate
from coterie.deployment.fleet.link import Link
from coterie.deployment.fleet.listener import listening
from coterie.deployment.fleet.nodes import FleetNodes, KeyRegistry
from coterie.deployment.invitation import FILE as INVITATION
from coterie.deployment.rollback import complete
from coterie.deployment.server import serve as train
from coterie.deployment.server_config import (
    ServerConfig,
    begun,
    prepare_folder,
    read_server_config,
)
from coterie.deployment.server_folder import read_json, read_message
from coterie.deployment.signals import exit_on_sigterm
from coterie.deployment.traffic import STATUS, Nodes, read_status
from coterie.deployment.validity import check_server_files
from coterie.errors import BudgetSpent, ConfigError, Interrupted, RunError
from coterie.experiments import run_folder
from coterie.types import JsonObject

CERTIFICATES = ("ca.pem", "server.pem", "server.key")


@contextmanager
def monitored(folder: Path, port: int | None) -> Iterator[None]:
    """Answer monitoring while the body runs, if a port is given."""
    if port is None:
        yield
        return
    from coterie.deployment.fleet.monitoring import monitoring

    with monitoring(folder, port):
        yield


def serve(
    config: Path,
    server: str,
    out: Path | None,
    keys: Path | None,
    insecure: bool,
    progress: Progress,
    wait: float | None = None,
    metrics: int | None = None,
    devices: int | None = None,
) -> None:
    """Serve a federation to its end.

    `wait` replaces wait_seconds of the config file. Monitoring reads at the port `metrics`, and
    browsers take part at the port `devices`.
    """
    address = Address.of(server)
    check_certificates(address, keys, insecure, progress.warn)
    if devices is not None:
        check_devices(config, out, Address(address.host, devices), keys)
    if obstacle := address.obstacle():
        raise RunError(
            f"the server cannot listen at {address}: {obstacle}; expected a free port of an "
            "address of this machine. Choose another with --server HOST:PORT. Nodes may reach it "
            "by another name: docs/operations.md."
        )
    if metrics is not None and (obstacle := Address(LOOPBACK[0], metrics).obstacle()):
        raise ConfigError(
            f"--metrics is {metrics}, but {obstacle}; expected a free port of 127.0.0.1. "
            "Choose another."
        )
    folder = prepare_folder(config, out, progress)
    exit_on_sigterm()
    keep_heap_compact()
    with run_folder.locked(folder):
        complete(folder)
        if read_status(folder).get("state") == "finished":
            progress.log(f"{folder} is finished; there is nothing to do")
            if devices is not None:
                offer_model(folder, Address(address.host, devices), keys, progress)
            return
        try:
            update_status(folder, state="starting")
            with monitored(folder, metrics):
                status = run(folder, address, keys, progress, wait, devices)
        except BaseException as error:
            # Where nothing can be written, `coterie status` sees that nobody holds the lock.
            with suppress(RunError):
                update_status(folder, state="stopped")
            how = "--insecure" if keys is None else f"--keys {keys} --server {address}"
            if metrics is not None:
                how += f" --metrics {metrics}"
            if devices is not None:
                how += f" --devices --devices-port {devices}"
            hint = (
                f"{folder} holds all rounds so far. "
                f"Resume with: coterie serve --config {config} {how} --out {folder}"
            )
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(hint) from None
            if isinstance(error, SystemExit):
                progress.log(hint)
            raise
    show_result(folder, status, progress)
    stopped = read_json(folder, "privacy.json").get("stopped")
    if stopped:
        raise BudgetSpent(stopped)


@contextmanager
def with_devices(
    others: Nodes,
    folder: Path,
    terms: FederationTerms,
    service: ServerConfig,
    address: Address,
    keys: Path | None,
    progress: Progress,
) -> Iterator[Nodes]:
    """The nodes and the gateway of browsers, which listens at `address` while the body runs."""
    with serving_devices(folder, terms, service, address, keys, progress) as gateway:
        yield NodesWithDevices(others, gateway, service.round_seconds)


def offer_model(folder: Path, address: Address, keys: Path | None, progress: Progress) -> None:
    """Let devices fetch the model of a finished federation, until the server is interrupted."""
    service = ServerConfig.of(read_json(folder, "service.json"))
    terms = read_message(folder, "terms.json", FederationTerms)
    with serving_devices(folder, terms, service, address, keys, progress):
        progress.log("devices fetch the model until this command is stopped with Ctrl-C")
        threading.Event().wait()


def run(
    folder: Path,
    address: Address,
    keys: Path | None,
    progress: Progress,
    wait: float | None,
    devices: int | None = None,
) -> JsonObject:
    """Listen for nodes, and train with them to the end."""
    service = ServerConfig.of(read_json(folder, "service.json"))
    if wait is not None:
        service = service.model_copy(update={"wait_seconds": wait})
    terms = read_message(folder, "terms.json", FederationTerms)
    content = read_message(folder, "told.json", ItemContent)
    log_to(folder / "server.log")
    link = Link()
    registry = KeyRegistry(link, keys and keys / "nodes")
    registry.refresh()
    gate = Gate(link, registry.knows, keyed=keys is not None)
    link.on_change = gate.ring
    with listening(gate, address, keys):
        how = f"--server {address} --insecure"
        if keys is not None:
            how = f"--key NAME.key --invitation invitation.txt (here: {keys / INVITATION})"
        progress.log(
            f"{folder}: serving at {address}. Nodes join with: "
            f"coterie join --data FILE --store FILE {how}"
        )
        nodes: Nodes = FleetNodes(
            link, registry, service.round_seconds, gate.refused, gate.last_refused
        )
        with ExitStack() as stack:
            stack.callback(gate.close)
            if devices is not None:
                at = Address(address.host, devices)
                own = with_devices(nodes, folder, terms, service, at, keys, progress)
                nodes = stack.enter_context(own)
            train(folder, terms, nodes, service, content, progress)
    return read_status(folder)


def check_certificates(
    address: Address, keys: Path | None, insecure: bool, warn: Callable[[str], None]
) -> None:
    """Refuse a server without TLS beyond loopback, and certificates that nodes would reject.

    The server may bind to any address: behind a router or in a container, nodes connect to another
    one. They check the name to which they connect.
    """
    if keys is None:
        address.refuse_plaintext(insecure, "--keys FOLDER")
        return
    if insecure:
        raise ConfigError(
            "--keys and --insecure are both given; expected one of them. Leave --insecure out."
        )
    for name in CERTIFICATES:
        if not (keys / name).exists():
            raise RunError(
                f"{keys} holds no {name}; expected a folder of coterie federation init. "
                "Check the path."
            )
    for warning in check_server_files(keys):
        warn(warning)
    found = private_keys(keys)
    if found:
        warn(
            f"{keys} holds private keys of nodes ({', '.join(path.name for path in found)}), as "
            "earlier versions made them; expected public ones only. Move each to its node, delete "
            "it here, and replace it: coterie node key NEW --replaces NAME.key on the node."
        )
    hosts = hosts_of(keys / "server.pem")
    if not hosts:
        raise RunError(
            f"{keys / 'server.pem'} is for no host; expected at least one by which nodes reach the "
            f"server. Run: coterie federation renew {keys} --host HOST"
        )
    if address.host not in hosts:
        warn(
            f"the certificate in {keys} is for {', '.join(hosts)}: nodes must connect to one of "
            f"those, not to {address.host}. For another name or address, run: "
            f"coterie federation renew {keys} --host HOST"
        )


def check_devices(config: Path, out: Path | None, address: Address, keys: Path | None) -> None:
    """Refuse a federation that browsers cannot take part in, before a folder is made for it."""
    _, experiment = read_server_config(config, begun(out))
    refuse_without_client(experiment)
    if keys is not None and (keys / "nodes" / f"{GATEWAY}.pub").exists():
        raise ConfigError(
            f"{keys / 'nodes'} has a key of the name {GATEWAY!r}, which is the gateway's; expected "
            "another name. Replace the key: coterie federation revoke, then add."
        )
    if obstacle := address.obstacle():
        raise ConfigError(
            f"--devices-port is {address.port}, but {obstacle}; expected a free port of "
            f"{address.host}. Choose another."
        )


def log_to(path: Path) -> None:
    """Flower's and the HTTP server's warnings go to a file."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    for name in ("flwr", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.WARNING)
        logger.propagate = False


def show_result(folder: Path, status: JsonObject, progress: Progress) -> None:
    for name, value in status["metrics"].items():
        progress.log(f"{name:14} {value:.4f}" if isinstance(value, float) else f"{name:14} {value}")
    if (folder / "privacy.json").exists():
        progress.log(
            f"No metrics: under a privacy budget nodes report none. {folder / 'privacy.json'} "
            "states the guarantee."
        )
    elif not status["metrics"]:
        progress.log(
            "No metrics: at the end no node had enough users to report them "
            "(smallest_evaluation_group in their policies). Browsers report none."
        )
    progress.log(
        f"{folder} holds the model, and nodes have it, too: "
        "coterie recommend --node STORE --user ID"
    )


def update_status(folder: Path, state: str) -> None:
    """Change the state in a folder's status."""
    run_folder.write_text(folder, STATUS, json.dumps(read_status(folder) | {"state": state}) + "\n")
