"""What a federation's server is asked to serve: the folder that it serves from, and what it refuses."""

from __future__ import annotations

import json
import re
import secrets
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from pydantic import Field

from coterie.algorithms.registry import algorithm
from coterie.core.progress import Progress
from coterie.core.settings import Settings
from coterie.data.small import small_table
from coterie.deployment.enrolment import Terms, Told
from coterie.errors import ConfigError, DataError, MissingExtra
from coterie.experiments import folder as disk
from coterie.experiments.config import NAMING_FILES, Experiment, read_file
from coterie.federated.federation import (
    Federation,
    World,
)
from coterie.federated.secagg import exposure
from coterie.federated.settings import FederationSettings, federation_settings

NO_DATA = "federation.csv"
"""What stands for a dataset: a server reads none."""
SIMULATED = ("client_dropout", "availability", "deadline", "over_selection", "engine", "nodes")
"""Settings of a simulation, where nodes are not real."""


class ServerConfig(Settings):
    """What an experiment file says beside the experiment."""

    items: str
    """A file with a column item_id: what there is to recommend."""
    least_nodes: int = Field(1, ge=1)
    """Nodes that must have joined before training begins."""
    quorum: float = Field(0.5, gt=0, le=1)
    """Share of the nodes asked that must answer; with fewer the server stops (exit code 3) and can be started again."""
    round_seconds: float = Field(60.0, gt=0)
    """A round closes after so many seconds with who is there."""
    wait_seconds: float = Field(600.0, gt=0)
    """How long the server waits for nodes to join."""


def prepared(config: Path, out: Path | None, progress: Progress) -> Path:
    """The run folder; one that was served before goes on."""
    service, experiment = asked(config)
    refuse_unserved(experiment, progress)
    if out is not None and (out / "terms.json").exists():
        refuse_changed(config, experiment, Terms.from_json((out / "terms.json").read_text()))
        (out / "failed.json").unlink(missing_ok=True)
        disk.write_text(out, "service.json", service.model_dump_json())
        return out
    terms, told = catalogue(Path(service.items), experiment, progress)
    terms.refuse_split()
    folder = disk.new_folder(out, f"{experiment.choice.algorithm}-federation")
    disk.write_config(folder, experiment.flat())
    for name, text in (
        ("service", service.model_dump_json()),
        ("told", told.to_json()),
        ("terms", terms.to_json()),
    ):
        disk.write_text(folder, f"{name}.json", text)
    return folder


def asked(config: Path) -> tuple[ServerConfig, Experiment]:
    """What a file asks for; faults are to be changed there."""
    values = {"dataset": NO_DATA} | read_file(str(config))
    if not values.get("items"):
        raise ConfigError(
            f"{config} names no items; expected `items: FILE`, a table with a column item_id of what there is to recommend. Add it."
        )
    try:
        service = ServerConfig.of(
            {key: values.pop(key) for key in list(values) if key in ServerConfig.model_fields}
        )
        return service, Experiment.of(values)
    except ConfigError as error:
        raise ConfigError(
            re.sub(r"Change it with --set \w+=VALUE\.", f"Change it in {config}.", str(error))
        ) from None


def refuse_changed(config: Path, experiment: Experiment, terms: Terms) -> None:
    """A federation goes on as it began; how long it waits for nodes may change."""
    for key, now in experiment.flat().items():
        before = terms.config.get(key)
        if json.loads(json.dumps(now)) != before:
            raise ConfigError(
                f"{config}: setting {key!r} is {now!r}, but the federation began with {before!r}; expected it unchanged. Put it back, or serve "
                "into a folder of its own."
            )


def catalogue(path: Path, experiment: Experiment, progress: Progress) -> tuple[Terms, Told]:
    """What nodes are told of items, and what the server keeps to itself."""
    table = small_table(path, ("item_id",), "item_id").columns
    rows = {item: row for row, item in enumerate(table["item_id"])}
    if again := len(table["item_id"]) - len(rows):
        progress.log(
            f"{path}: {again:,} lines are about items that come again further down, and are passed over"
        )

    def column(name: str) -> list[str] | None:
        return [table[name][row] for row in rows.values()] if name in table else None

    titles = column("title")
    categories = column("categories")
    if titles is None and "tower" in type(experiment.settings).model_fields:
        raise DataError(
            f"{path}: has no column title, and {experiment.choice.algorithm} reads what is told of items; expected item_id, title and, if "
            "there are any, categories (separated by |) and body. Add title."
        )
    terms = Terms(experiment.flat(), list(rows), secrets.token_hex(8), titles)
    return terms, Told(
        None if categories is None else [names.split("|") for names in categories], column("body")
    )


def refuse_unserved(experiment: Experiment, progress: Progress) -> None:
    """What parties cannot train together, and what is a simulator's alone."""
    name = experiment.choice.algorithm
    settings = experiment.settings
    federation = algorithm(name).train
    if not isinstance(federation, Federation):
        raise ConfigError(
            f"{name} is trained in one place; expected a federated algorithm (coterie algorithms). Name another."
        )
    told = experiment.flat()
    usual = FederationSettings()
    for key in SIMULATED:
        if told[key] != getattr(usual, key):
            raise ConfigError(
                f"setting {key!r} is {told[key]!r}, which is for simulations; expected {getattr(usual, key)!r}, since nodes are real here. Leave it out."
            )
    for key in (*NAMING_FILES, "patience", "as_published"):
        if told.get(key):
            raise ConfigError(
                f"setting {key!r} is {told[key]!r}, which a federation of nodes cannot do yet; expected none. Leave it out."
            )
    if (
        getattr(settings, "person", "titles") == "features"
        or getattr(settings, "cluster_by", "embeddings") != "embeddings"
    ):
        raise ConfigError(
            "features of people stay with them: a federation of nodes is told none. Leave the setting out."
        )
    if "tower" in type(settings).model_fields and find_spec("torch") is None:
        raise MissingExtra(name, "neural")
    nobody = World(federation_settings(settings), 0, 0, 0, np.zeros(0, bool), {})
    exposure.announce(federation, nobody, progress)
