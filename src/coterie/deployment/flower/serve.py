"""`coterie serve`: a SuperLink with our server on it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.core.progress import Progress
from coterie.deployment.certificates import hosts_of
from coterie.deployment.flower.admission import Admission
from coterie.deployment.flower.processes import (
    LOOPBACK,
    Address,
    ended_by_signals,
    free_port,
    gate,
    name_link,
    program,
    running,
    submit,
    wait_for,
    wait_until_free,
)
from coterie.deployment.membership import STATUS, status
from coterie.deployment.server_config import prepared
from coterie.errors import ConfigError, CoterieError, Interrupted, NoQuorum, RunError
from coterie.experiments import folder as disk

PAUSE = 0.3
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
        address.refuse_in_the_clear(insecure, "--keys FOLDER")
    elif insecure:
        raise ConfigError(
            "--keys and --insecure are both given; expected one of them. Leave --insecure out."
        )
    secured = trust(keys, address)
    again = out is not None and (out / "terms.json").exists()
    wait_until_free(
        address, 30 if again else 2
    )  # a server that was killed takes a while to let go of its port
    folder = prepared(config, out, progress)
    if status(folder).get("state") == "finished":
        progress.log(f"{folder} is finished; nothing is left to do")
        return
    try:
        run(folder, address, secured, keys, progress)
    except BaseException as stopped:
        tell(folder, state="stopped")
        if isinstance(stopped, KeyboardInterrupt):
            how = "--insecure" if keys is None else f"--keys {keys} --server {address}"
            raise Interrupted(
                f"{folder} holds all rounds so far. Go on with: coterie serve --config {config} {how} --out {folder}"
            ) from None
        raise


def run(
    folder: Path, address: Address, secured: list[str], keys: Path | None, progress: Progress
) -> None:
    """Flower's SuperLink on loopback, with our server on it and a gate before it, to the end."""
    home = folder / "flower"
    log = folder / "server.log"
    inside = Address(LOOPBACK[0], free_port())
    ended_by_signals()
    command = [
        program("flower-superlink"),
        *secured,
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
    admission.forget_unnamed()
    tell(folder, state="starting")
    with disk.locked(folder), running(command, log, home) as link:
        wait_for(inside, link, log)
        name_link(home, inside, keys and keys / "ca.pem")
        admission.refresh()
        submit(folder, home, keyed=keys is not None)
        trusted = [keys / name for name in ("ca.pem", "server.pem", "server.key")] if keys else []
        with running(gate("server", address, inside.url(bool(keys)), *trusted), log, home) as door:
            wait_for(address, door, log)
            proof = "--insecure" if keys is None else "--key NAME.key --ca ca.pem"
            progress.log(
                f"{folder}: serving at {address}. Nodes join with: coterie join --data FILE --store FILE --server {address} {proof}"
            )
            follow(
                folder,
                lambda: link.poll() if door.poll() is None else door.poll(),
                progress,
                lambda: admission.look(progress),
            )


def trust(keys: Path | None, address: Address) -> list[str]:
    """How the SuperLink shows who it is, and whom it lets in."""
    if keys is None:
        return ["--insecure"]
    for name in ("ca.pem", "server.pem", "server.key"):
        if not (keys / name).exists():
            raise RunError(
                f"{keys} holds no {name}; expected a folder of coterie federation init. Check the path."
            )
    if address.host not in (known := hosts_of(keys / "server.pem")):
        raise ConfigError(
            f"--server is {address}, and the certificate in {keys} is for {', '.join(known)}; expected one of those. Name it, or make another "
            f"folder: coterie federation init FOLDER --host {address.host}"
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
    ended: Callable[[], int | None],
    progress: Progress,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Show what the server is at until it is at its end; `meanwhile` is done at every look."""

    def look() -> dict[str, Any]:
        meanwhile()
        time.sleep(PAUSE)
        return _said(folder, STATUS, ended)

    about = look()
    done = 0
    while about["state"] == "starting":
        about = look()
    if about["state"] == "waiting":
        with progress.task("Waiting for nodes", about["least_nodes"]) as advance:
            while about["state"] == "waiting":
                advance(about["nodes"] - done)
                done = about["nodes"]
                about = look()
        done = 0
    with progress.task(f"Training with {about['nodes']} nodes", about["rounds"]) as advance:
        while True:
            advance(about["round"] - done, f"{about['nodes']} nodes, {about['updates']:,} updates")
            done = about["round"]
            if about["state"] == "finished":
                break
            about = look()
    for name, value in about["metrics"].items():
        progress.log(f"{name:14} {value:.4f}" if isinstance(value, float) else f"{name:14} {value}")
    if not about["metrics"]:
        progress.log(
            "no metrics: no node was there at the end with enough people to speak of (coterie join --least-group)"
        )
    progress.log(
        f"{folder} holds the model; nodes have it, too: coterie recommend --node STORE --user ID"
    )


def _said(folder: Path, name: str, ended: Callable[[], int | None]) -> dict[str, Any]:
    """What the server wrote down, once it has; its failure is ours."""
    while True:
        if (folder / "failed.json").exists():
            fault = json.loads((folder / "failed.json").read_text())
            raise FAULTS.get(fault["exit_code"], CoterieError)(fault["error"])
        if (code := ended()) is not None:
            raise RunError(
                f"the server stopped with code {code}; {folder / 'server.log'} says why."
            )
        if (folder / name).exists():
            found: dict[str, Any] = json.loads((folder / name).read_text())
            return found
        time.sleep(PAUSE)


def tell(folder: Path, **changes: Any) -> None:
    disk.write_text(folder, STATUS, json.dumps(status(folder) | changes) + "\n")
