"""Checkpoints: one file that holds everything to go on from, and appears whole or not at all.

What stays on people's devices has a file of its own for every checkpoint, written before it: a crash between the two leaves the
checkpoint before with the devices of before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.records import Record
from coterie.errors import RunError
from coterie.experiments.folder import read_arrays, write_arrays
from coterie.experiments.history import Point, TrainingHistory

NAME = "checkpoint.npz"
DEVICES = "devices-{}.npz"


def write(folder: Path, point: Point, data: str, config: dict[str, Any]) -> None:
    """Save a point of a run under this config, on the data with this fingerprint."""
    states = {"state": point.state, "best": point.best}
    arrays = _named(states, lambda r: r.shared_arrays())
    kept = _named(states, lambda r: r.private_arrays())
    mine = folder / DEVICES.format(point.history.round)
    if kept:
        write_arrays(mine, kept, owner_only=True)
    about = {"journey": point.history.to_json(), "data": data, "config": config}
    packed = np.frombuffer(json.dumps(about, allow_nan=False).encode(), np.uint8)
    write_arrays(folder / NAME, arrays | {"about": packed, "selections": point.history.selections})
    for old in folder.glob(DEVICES.format("*")):
        if old != mine:
            old.unlink(missing_ok=True)


def read(
    folder: Path, kind: type[Record], data: str, config: dict[str, Any], with_devices: bool = True
) -> Point | None:
    """The last point saved; None if there is none yet. Without devices, what they keep is elsewhere."""
    if not (folder / NAME).exists():
        return None
    arrays = read_arrays(folder, NAME)
    try:
        about = json.loads(arrays["about"].tobytes())
        kept = _kept(folder, about["journey"]["round"]) if kind.private and with_devices else {}
        point = _point(about, kind, arrays | kept)
    except (KeyError, ValueError, TypeError) as error:
        raise RunError(
            f"{folder / NAME} is no checkpoint of this algorithm ({error}). Start again: coterie run {folder}/config.yaml"
        ) from None
    for key in about["config"].keys() | config.keys():
        before = about["config"].get(key)
        now = config.get(key)
        if before != now:
            raise RunError(
                f"{folder}/config.yaml: setting {key!r} is {now!r}, but the run began with {before!r}; expected it unchanged. "
                "Put it back, or start a run of its own with coterie run."
            )
    if about["data"] != data:
        raise RunError(
            f"{folder}: the data, or what people disclose, is not what the run was trained on any more. Start it again with coterie run."
        )
    return point


def _kept(folder: Path, n: int) -> dict[str, np.ndarray]:
    name = DEVICES.format(n)
    if not (folder / name).exists():
        raise RunError(
            f"{folder} holds no {name}, what was on people's devices after step {n}; without it nothing can go on from {NAME}. "
            f"Put it back, or start again: coterie run {folder}/config.yaml"
        )
    return read_arrays(folder, name)


def _point(about: dict[str, Any], kind: type[Record], arrays: dict[str, np.ndarray]) -> Point:
    state = _record("state", kind, arrays)
    return Point(
        state,
        TrainingHistory.from_json(about["journey"], arrays["selections"]),
        _record("best", kind, arrays),
    )


def kept_names(folder: Path) -> set[str]:
    """What of the last state saved is on devices alone."""
    files = sorted(folder.glob(DEVICES.format("*")))
    return set(_part("state", read_arrays(folder, files[-1].name))) if files else set()


def state_arrays(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of the last state saved, with what devices kept: another run's devices go on from that."""
    arrays = read_arrays(folder, NAME)
    kept = DEVICES.format(json.loads(arrays["about"].tobytes())["journey"]["round"])
    return _part("state", arrays | (read_arrays(folder, kept) if (folder / kept).exists() else {}))


def _named(
    states: dict[str, Record | None], which: Callable[[Record], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    return {
        f"{name}.{key}": array
        for name, record in states.items()
        if record is not None
        for key, array in which(record).items()
    }


def _record(name: str, kind: type[Record], arrays: dict[str, np.ndarray]) -> Record | None:
    mine = _part(name, arrays)
    return kind.from_arrays(mine) if mine else None


def _part(name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        key.removeprefix(f"{name}."): array
        for key, array in arrays.items()
        if key.startswith(f"{name}.")
    }
