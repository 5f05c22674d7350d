"""Where a served model comes from: a run folder, or a node's store.

A source tells by its stamp that the model may have changed, and loads one consistent model. A run
folder has several files, each replaced at once but not together: it is read while it is at rest.
The path may be a symbolic link to a run folder; replacing the link replaces the model.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import numpy as np

from coterie.data.interactions import objects
from coterie.deployment.node_data import split_of
from coterie.deployment.node_evaluation import complete_model
from coterie.deployment.node_private_store import MODEL, NodeStore
from coterie.deployment.node_private_store_faults import connect, faults
from coterie.deployment.node_service import LoadedNode, NodeService
from coterie.errors import RunError
from coterie.experiments.finished_run import Run
from coterie.experiments.run_folder import DEVICES, PRIOR, Catalogue
from coterie.federated.wire import decode
from coterie.serving.model import NODE_STORE, RUN, ServedModel

MODEL_FILES = ("model.json", "model.npz", "catalogue.npz", DEVICES, PRIOR)
"""The files of a run folder that recommendations depend on; not every run has all of them."""
WATCHED_FILES = (*MODEL_FILES, "config.yaml", "result.json")
REST_SECONDS = 0.2
"""A run folder is read after this long without a change."""
TRIES = 50
VERSION_DIGITS = 16

Stamp = tuple[tuple[int, ...], ...]
"""Inode, time of change and size of every watched file."""


class ModelSource(Protocol):
    @property
    def path(self) -> Path: ...

    def stamp(self) -> Stamp:
        """Changes whenever the model changes, and is cheap."""
        ...

    def load(self) -> ServedModel: ...


def source_of(path: Path) -> ModelSource:
    """The source at a path."""
    if path.is_dir():
        return RunFolder(path)
    if path.is_file():
        return StoreFile(path)
    raise RunError(
        f"{path} does not exist; expected a run folder or a node's store. "
        "Name the folder that `coterie run` printed, or the --store of `coterie join`."
    )


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path

    def stamp(self) -> Stamp:
        folder = self.path.resolve()
        return tuple(_stamp_of(folder / name) for name in WATCHED_FILES)

    def load(self) -> ServedModel:
        """The model; read again if the folder was written meanwhile."""
        for _ in range(TRIES):
            before = self.stamp()
            time.sleep(REST_SECONDS)
            if self.stamp() != before:
                continue
            try:
                model = self._read(self.path.resolve())
            except RunError:
                if self.stamp() == before:
                    raise
                continue
            if self.stamp() == before:
                return model
        raise RunError(
            f"{self.path} changed {TRIES} times while it was read; expected it at rest for "
            f"{REST_SECONDS} s. Write to another folder, and replace this one by a link to it."
        )

    def _read(self, folder: Path) -> ServedModel:
        run = Run.peek(folder)
        written = datetime.fromtimestamp((folder / "model.npz").stat().st_mtime, UTC)
        return ServedModel.of(run, RUN, fingerprint(folder), written)


@dataclass(frozen=True, slots=True)
class StoreFile:
    path: Path

    def stamp(self) -> Stamp:
        return (_stamp_of(self.path),)

    def load(self) -> ServedModel:
        """The last model for all users of the node who have a part in it."""
        with closing(snapshot(self.path)) as store:
            data = store.held(MODEL)
            if store.meta("terms") is None or data is None:
                raise RunError(
                    f"{self.path} holds no model yet; expected one, which comes with each "
                    "evaluation of a federation and with its end. Join a federation and wait."
                )
            run = run_of_node(store, NodeService(store).load(), data)
        return ServedModel.of(run, NODE_STORE, fingerprint_of_run(run), None)


def snapshot(path: Path) -> NodeStore:
    """A copy of a store in memory: a node that trains meanwhile is not held up."""
    memory = connect(path, in_memory=True)
    with closing(NodeStore.open(path)) as store, faults(path):
        store.connection.backup(memory)
    return NodeStore(path, memory)


def run_of_node(store: NodeStore, loaded: LoadedNode, data: bytes) -> Run:
    """The last model as a run with all users who have a part in it."""
    node, terms, indices, _ = loaded
    enrolled = {name: k for k, name in store.numbers().items() if k in node.node.users}
    rows = {name: store.model_rows(name) for name in enrolled}
    # A user whose state was not the one the server expected got no rows.
    names = {name for own in rows.values() for name in own}
    users = [user for user, own in rows.items() if own.keys() == names]
    if not users:
        raise RunError(
            f"{store.path} has no user with a part in the last model; expected users who were on "
            "the node when it was trained. Join the next federation."
        )
    own = {name: np.stack([rows[user][name] for user in users]) for name in names}
    numbers = np.array([enrolled[user] for user in users], np.int32)
    model = complete_model(node, decode(data).common, own, users, node.node.positions(numbers))
    _, split = split_of(terms, indices, store)
    seen = split.everything().of_users(numbers)
    catalogue = Catalogue(objects(users), objects(terms.items), terms.texts, seen)
    return Run({"algorithm": terms.experiment.choice.algorithm}, model, catalogue)


def fingerprint(folder: Path) -> str:
    """A digest of the files of a run folder that recommendations depend on."""
    digest = hashlib.sha256()
    for name in MODEL_FILES:
        path = folder / name
        if path.exists():
            content = path.read_bytes()
            digest.update(f"{name} {len(content)} ".encode())
            digest.update(content)
    return digest.hexdigest()[:VERSION_DIGITS]


def fingerprint_of_run(run: Run) -> str:
    """A digest of a model, its ids and the items that users have seen."""
    digest = hashlib.sha256()
    known = run.catalogue
    ids = json.dumps([known.user_ids.tolist(), known.item_ids.tolist()])
    digest.update(ids.encode())
    arrays = run.model.arrays() | {"offsets": known.seen.offsets, "seen": known.seen.items}
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:VERSION_DIGITS]


def _stamp_of(path: Path) -> tuple[int, ...]:
    try:
        about = path.stat()
    except OSError:
        return ()
    return about.st_ino, about.st_mtime_ns, about.st_size
