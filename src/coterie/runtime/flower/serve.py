"""`coterie serve`: a SuperLink with our server on it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.config import NAMING_FILES, Experiment, read_file
from coterie.data.small import small_table
from coterie.errors import ConfigError, CoterieError, DataError, NoQuorum, RunError
from coterie.learners.settings import Simulated
from coterie.progress import Watch
from coterie.registry import algorithm
from coterie.runtime import folder as disk
from coterie.runtime.enrolment import Terms, Told
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


def prepared(config: Path, out: Path | None) -> Path:
    """The run folder; one that was served before goes on."""
    values = {"dataset": NO_DATA} | read_file(str(config))
    service = Service.of({key: values.pop(key) for key in list(values) if key in Service.model_fields})
    experiment = Experiment.of(values)
    refuse_unserved(experiment)
    if out is not None and (out / "terms.json").exists():
        (out / "failed.json").unlink(missing_ok=True)
        return out
    terms, told = catalogue(Path(service.items), experiment)
    terms.refuse_split()
    folder = disk.new_folder(out, f"{experiment.choice.algorithm}-federation")
    disk.write_config(folder, experiment.flat())
    for name, text in (("service", service.model_dump_json()), ("told", told.to_json()), ("terms", terms.to_json())):
        disk.write_text(folder, f"{name}.json", text)
    return folder


def catalogue(path: Path, experiment: Experiment) -> tuple[Terms, Told]:
    """What nodes are told of items, and what the server keeps to itself."""
    table = small_table(path, ("item_id",), "item_id").columns
    rows = {item: row for row, item in enumerate(table["item_id"])}  # the last line of an item counts

    def column(name: str) -> list[str] | None:
        return [table[name][row] for row in rows.values()] if name in table else None

    titles, categories = column("title"), column("categories")
    if titles is None and "tower" in type(experiment.settings).model_fields:
        raise DataError(
            f"{path}: has no column title, and {experiment.choice.algorithm} reads what is told of items; expected item_id, title and, if "
            "there are any, categories (separated by |) and body. Add title."
        )
    terms = Terms(experiment.flat(), list(rows), secrets.token_hex(8), titles)
    return terms, Told(None if categories is None else [names.split("|") for names in categories], column("body"))


def refuse_unserved(experiment: Experiment) -> None:
    """What parties cannot train together, and what is a simulator's alone."""
    name, settings, course = experiment.choice.algorithm, experiment.settings, experiment.course
    if not algorithm(name).federated:
        raise ConfigError(
            f"{name} is trained in one place; expected a federated algorithm (coterie algorithms). Name another."
        )
    if getattr(settings, "protect", "none") != "none":
        raise ConfigError("protect is 'ring', which nodes cannot yet; expected none. Leave it out.")
    told, usual = experiment.flat(), Simulated()
    for key in ("drop_out", "availability", "deadline", "over_select", "engine", "nodes"):
        if told[key] != getattr(usual, key):
            raise ConfigError(
                f"setting {key!r} is {told[key]!r}, which is for simulations; expected {getattr(usual, key)!r}, since nodes are real here. Leave it out."
            )
    for key in (*NAMING_FILES, "patience"):
        if told.get(key):
            raise ConfigError(
                f"setting {key!r} is {told[key]!r}, which a federation of nodes cannot do yet; expected none. Leave it out."
            )
    if course.as_published:
        raise ConfigError("setting 'as_published' is true, which a federation of nodes cannot do. Leave it out.")
    if (
        getattr(settings, "person", "titles") == "features"
        or getattr(settings, "cluster_by", "embeddings") != "embeddings"
    ):
        raise ConfigError(
            "features of people stay with them: a federation of nodes is told none. Leave the setting out."
        )


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
