"""`coterie serve`: a SuperLink with our server on it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.config import Experiment, read_file
from coterie.data.small import small_table
from coterie.errors import ConfigError, CoterieError, NoQuorum, RunError
from coterie.progress import Watch
from coterie.registry import algorithm
from coterie.runtime import folder as disk
from coterie.runtime.enrolment import Terms
from coterie.runtime.flower.processes import (
    Address,
    ended_by_signals,
    flwr,
    name_link,
    program,
    running,
    submit,
    wait_for,
    wait_until_free,
)
from coterie.runtime.service import Service

PAUSE = 0.3
FAULTS = {RunError.exit_code: RunError, NoQuorum.exit_code: NoQuorum}
NO_DATA = "federation.csv"
"""What stands for a dataset: a server reads none."""


def serve(config: Path, server: str, out: Path | None, keys: Path | None, insecure: bool, watch: Watch) -> None:
    address = Address.of(server)
    if keys is None:
        address.refuse_in_the_clear(insecure, "--keys FOLDER")
    folder = prepared(config, out)
    home, log = folder / "flower", folder / "server.log"
    ended_by_signals()
    command = [
        program("flower-superlink"), *trust(keys), "--host", address.host, "--port", str(address.port),
        "--disable-runtime-dependency-installation", "--database", str(home / "link.db"),
    ]  # fmt: skip
    home.mkdir(exist_ok=True)
    wait_until_free(address)
    forget_revoked(home, keys)
    with disk.held(folder), running(command, log, home) as link:
        wait_for(address, link, log)
        name_link(home, address, keys and keys / "ca.pem")
        for key in sorted((keys / "nodes").glob("*.pub")) if keys else ():
            flwr(home, "supernode", "register", str(key), "here", but="already")
        submit(folder, home)
        watch.say(
            f"{folder}: serving at {address}. Nodes join with: coterie join --data FILE --store FILE --server {address}"
        )
        follow(folder, link.poll, watch)


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


def forget_revoked(home: Path, keys: Path | None) -> None:
    """The SuperLink remembers keys that it let in. Where one of them was revoked since, it forgets them all: those that are left are
    registered again, and their nodes join again."""
    now = sorted(key.read_text() for key in (keys / "nodes").glob("*.pub")) if keys else []
    known = home / "admitted.json"
    if known.exists() and not set(json.loads(known.read_text())) <= set(now):
        for left in home.glob("link.db*"):
            left.unlink()
    disk.write_text(home, known.name, json.dumps(now))


def prepared(config: Path, out: Path | None) -> Path:
    """The run folder; one that was served before goes on."""
    values = {"dataset": NO_DATA} | read_file(str(config))
    service = Service.of({key: values.pop(key) for key in list(values) if key in Service.model_fields})
    experiment = Experiment.of(values)
    refuse_unserved(experiment)
    if out is not None and (out / "terms.json").exists():
        (out / "failed.json").unlink(missing_ok=True)
        return out
    items = small_table(Path(service.items), ("item_id",), "item_id").columns["item_id"]
    terms = Terms(experiment.flat(), list(dict.fromkeys(items)), secrets.token_hex(8))
    terms.refuse_split()
    folder = disk.new_folder(out, f"{experiment.choice.algorithm}-federation")
    disk.write_config(folder, experiment.flat())
    disk.write_text(folder, "service.json", service.model_dump_json())
    disk.write_text(folder, "terms.json", terms.to_json())
    return folder


def refuse_unserved(experiment: Experiment) -> None:
    """What parties cannot train together, or not yet."""
    name, settings = experiment.choice.algorithm, experiment.settings
    chosen = algorithm(name)
    if not chosen.federated:
        raise ConfigError(
            f"{name} is trained in one place; expected a federated algorithm (coterie algorithms). Name another."
        )
    if "tower" in type(settings).model_fields:
        raise ConfigError(
            f"{name} reads texts, which nodes cannot yet; expected a factor model such as fedfast or pfpl+. Name another."
        )
    if getattr(settings, "protect", "none") != "none":
        raise ConfigError("protect is 'ring', which nodes cannot yet; expected none. Leave it out.")
    if "rounds_an_epoch" in type(settings).model_fields and settings.rounds_an_epoch != 1:  # type: ignore[attr-defined]
        raise ConfigError(
            f"setting 'rounds_an_epoch' is {settings.rounds_an_epoch}; expected 1, since a server writes down every round. Set rounds_an_epoch: 1."  # type: ignore[attr-defined]
        )


def follow(folder: Path, ended: Callable[[], int | None], watch: Watch) -> None:
    """Show what the server is at until it is at its end."""
    about, done = _said(folder, "status.json", ended), 0
    with watch.task(f"Training with {about['nodes']} nodes", about["rounds"]) as advance:
        while True:
            advance(about["round"] - done, f"{about['nodes']} nodes, {about['updates']:,} updates")
            done = about["round"]
            if about["state"] == "finished":
                return
            time.sleep(PAUSE)
            about = _said(folder, "status.json", ended)


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
