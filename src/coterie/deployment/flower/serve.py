"""`coterie serve`: a SuperLink that runs our server, behind a gate."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from coterie.core.progress import Progress
from coterie.deployment.certificates import hosts_of
from coterie.deployment.flower.admission import Admission
from coterie.deployment.flower.processes import (
    LOOPBACK,
    Address,
    exit_on_sigterm,
    find_program,
    free_port,
    gate_command,
    running,
    submit,
    wait_for,
    wait_until_free,
    write_connection,
)
from coterie.deployment.server_config import prepare_folder
from coterie.deployment.traffic import STATUS, read_status
from coterie.errors import ConfigError, CoterieError, Interrupted, NoQuorum, RunError
from coterie.experiments import run_folder
from coterie.types import JsonObject

PAUSE = 0.3
CERTIFICATES = ("ca.pem", "server.pem", "server.key")
FAULTS = {RunError.exit_code: RunError, NoQuorum.exit_code: NoQuorum}


def serve(
    config: Path,
    server: str,
    out: Path | None,
    keys: Path | None,
    insecure: bool,
    progress: Progress,
) -> None:
    address = Address.of(server)
    if keys is None:
        address.refuse_plaintext(insecure, "--keys FOLDER")
    elif insecure:
        raise ConfigError(
            "--keys and --insecure are both given; expected one of them. Leave --insecure out."
        )
    options = tls_options(keys, address)
    resumed = out is not None and (out / "terms.json").exists()
    # The port of a server that was killed stays in use for a while.
    wait_until_free(address, 30 if resumed else 2)
    folder = prepare_folder(config, out, progress)
    if read_status(folder).get("state") == "finished":
        progress.log(f"{folder} is finished; there is nothing to do")
        return
    try:
        run(folder, address, options, keys, progress)
    except BaseException as error:
        update_status(folder, state="stopped")
        if isinstance(error, KeyboardInterrupt):
            how = "--insecure" if keys is None else f"--keys {keys} --server {address}"
            raise Interrupted(
                f"{folder} holds all rounds so far. "
                f"Resume with: coterie serve --config {config} {how} --out {folder}"
            ) from None
        raise


def run(
    folder: Path, address: Address, options: list[str], keys: Path | None, progress: Progress
) -> None:
    """Run a SuperLink on loopback with our server on it, and a gate before it, to the end."""
    home = folder / "flower"
    log = folder / "server.log"
    inside = Address(LOOPBACK[0], free_port())
    exit_on_sigterm()
    superlink = [
        find_program("flower-superlink"),
        *options,
        "--host",
        inside.host,
        "--port",
        str(inside.port),
        "--disable-runtime-dependency-installation",
        "--database",
        str(home / "link.db"),
    ]
    home.mkdir(exist_ok=True)
    admission = Admission(home, keys)
    admission.reset_if_unknown()
    update_status(folder, state="starting")
    with run_folder.locked(folder), running(superlink, log, home) as link:
        wait_for(inside, link, log)
        write_connection(home, inside, keys and keys / "ca.pem")
        admission.refresh()
        submit(folder, home, keyed=keys is not None)
        files = [keys / name for name in CERTIFICATES] if keys else []
        command = gate_command("server", address, inside.url(bool(keys)), *files)
        with running(command, log, home) as gate:
            wait_for(address, gate, log)
            proof = "--insecure" if keys is None else "--key NAME.key --ca ca.pem"
            progress.log(
                f"{folder}: serving at {address}. Nodes join with: "
                f"coterie join --data FILE --store FILE --server {address} {proof}"
            )

            def exit_code() -> int | None:
                return link.poll() if gate.poll() is None else gate.poll()

            follow(folder, exit_code, progress, lambda: admission.refresh_or_log(progress))


def tls_options(keys: Path | None, address: Address) -> list[str]:
    """The SuperLink's options for TLS and node authentication."""
    if keys is None:
        return ["--insecure"]
    for name in CERTIFICATES:
        if not (keys / name).exists():
            raise RunError(
                f"{keys} holds no {name}; expected a folder of coterie federation init. "
                "Check the path."
            )
    hosts = hosts_of(keys / "server.pem")
    if address.host not in hosts:
        raise ConfigError(
            f"--server is {address}, and the certificate in {keys} is for {', '.join(hosts)}; "
            "expected one of those. Use it, or make another folder: "
            f"coterie federation init FOLDER --host {address.host}"
        )
    return [
        "--ssl-ca-certfile",
        str(keys / "ca.pem"),
        "--ssl-certfile",
        str(keys / "server.pem"),
        "--ssl-keyfile",
        str(keys / "server.key"),
        "--enable-supernode-auth",
    ]


def follow(
    folder: Path,
    exit_code: Callable[[], int | None],
    progress: Progress,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Show the server's progress until it finishes; `meanwhile` runs before each look."""

    def look() -> JsonObject:
        meanwhile()
        time.sleep(PAUSE)
        return _wait_for_status(folder, exit_code)

    status = look()
    done = 0
    while status["state"] == "starting":
        status = look()
    if status["state"] == "waiting":
        with progress.task("Waiting for nodes", status["least_nodes"]) as advance:
            while status["state"] == "waiting":
                advance(status["nodes"] - done)
                done = status["nodes"]
                status = look()
        done = 0
    with progress.task(f"Training with {status['nodes']} nodes", status["rounds"]) as advance:
        while True:
            note = f"{status['nodes']} nodes, {status['updates']:,} updates"
            advance(status["round"] - done, note)
            done = status["round"]
            if status["state"] == "finished":
                break
            status = look()
    for name, value in status["metrics"].items():
        progress.log(f"{name:14} {value:.4f}" if isinstance(value, float) else f"{name:14} {value}")
    if not status["metrics"]:
        progress.log(
            "No metrics: at the end no node had enough users to report them "
            "(coterie join --least-group)."
        )
    progress.log(
        f"{folder} holds the model, and nodes have it, too: "
        "coterie recommend --node STORE --user ID"
    )


def _wait_for_status(folder: Path, exit_code: Callable[[], int | None]) -> JsonObject:
    """The server's status, once there is one; a failure of the server is raised here."""
    while True:
        if (folder / "failed.json").exists():
            fault = json.loads((folder / "failed.json").read_text())
            raise FAULTS.get(fault["exit_code"], CoterieError)(fault["error"])
        if (code := exit_code()) is not None:
            raise RunError(
                f"the server stopped with code {code}; expected it to finish. "
                f"See {folder / 'server.log'}."
            )
        if (folder / STATUS).exists():
            return read_status(folder)
        time.sleep(PAUSE)


def update_status(folder: Path, state: str) -> None:
    """Change the state in a folder's status."""
    run_folder.write_text(folder, STATUS, json.dumps(read_status(folder) | {"state": state}) + "\n")
