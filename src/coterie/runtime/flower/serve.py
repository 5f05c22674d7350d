"""`coterie serve`: a SuperLink with our server on it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.errors import CoterieError, NoQuorum, RunError
from coterie.progress import Watch
from coterie.runtime import folder as disk
from coterie.runtime.flower.admission import Admission
from coterie.runtime.flower.processes import (
    Address,
    ended_by_signals,
    name_link,
    program,
    running,
    submit,
    wait_for,
    wait_until_free,
)
from coterie.runtime.service import prepared

PAUSE = 0.3
FAULTS = {RunError.exit_code: RunError, NoQuorum.exit_code: NoQuorum}


def serve(config: Path, server: str, out: Path | None, keys: Path | None, insecure: bool, watch: Watch) -> None:
    address = Address.of(server)
    if keys is None:
        address.refuse_in_the_clear(insecure, "--keys FOLDER")
    folder = prepared(config, out, watch)
    home, log = folder / "flower", folder / "server.log"
    ended_by_signals()
    command = [
        program("flower-superlink"), *trust(keys), "--host", address.host, "--port", str(address.port),
        "--disable-runtime-dependency-installation", "--database", str(home / "link.db"),
    ]  # fmt: skip
    home.mkdir(exist_ok=True)
    wait_until_free(address)
    admission = Admission(home, keys)
    admission.forget_unnamed()
    with disk.held(folder), running(command, log, home) as link:
        wait_for(address, link, log)
        name_link(home, address, keys and keys / "ca.pem")
        admission.refresh()
        submit(folder, home, keyed=keys is not None)
        watch.say(
            f"{folder}: serving at {address}. Nodes join with: coterie join --data FILE --store FILE --server {address}"
        )
        follow(folder, link.poll, watch, admission.refresh)


def trust(keys: Path | None) -> list[str]:
    """How the SuperLink shows who it is, and whom it lets in."""
    if keys is None:
        return ["--insecure"]
    for name in ("ca.pem", "server.pem", "server.key"):
        if not (keys / name).exists():
            raise RunError(f"{keys} holds no {name}; expected a folder of coterie federation init. Check the path.")
    return [
        "--ssl-ca-certfile", str(keys / "ca.pem"), "--ssl-certfile", str(keys / "server.pem"), "--ssl-keyfile", str(keys / "server.key"),
        "--enable-supernode-auth",
    ]  # fmt: skip


def follow(
    folder: Path, ended: Callable[[], int | None], watch: Watch, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Show what the server is at until it is at its end; `meanwhile` is done at every look."""

    def look() -> dict[str, Any]:
        meanwhile()
        time.sleep(PAUSE)
        return _said(folder, "status.json", ended)

    about, done = look(), 0
    if about["state"] == "waiting":
        with watch.task("Waiting for nodes", about["least_nodes"]) as advance:
            while about["state"] == "waiting":
                advance(about["nodes"] - done)
                about, done = look(), about["nodes"]
        done = 0
    with watch.task(f"Training with {about['nodes']} nodes", about["rounds"]) as advance:
        while True:
            advance(about["round"] - done, f"{about['nodes']} nodes, {about['updates']:,} updates")
            done = about["round"]
            if about["state"] == "finished":
                break
            about = look()
    for name, value in about["metrics"].items():
        watch.say(f"{name:14} {value:.4f}" if isinstance(value, float) else f"{name:14} {value}")


def _said(folder: Path, name: str, ended: Callable[[], int | None]) -> dict[str, Any]:
    """What the server wrote down, once it has; its failure is ours."""
    while True:
        if (folder / "failed.json").exists():
            fault = json.loads((folder / "failed.json").read_text())
            raise FAULTS.get(fault["exit_code"], CoterieError)(fault["error"])
        if (code := ended()) is not None:
            raise RunError(f"the server stopped with code {code}; {folder / 'server.log'} says why.")
        if (folder / name).exists():
            found: dict[str, Any] = json.loads((folder / name).read_text())
            return found
        time.sleep(PAUSE)
