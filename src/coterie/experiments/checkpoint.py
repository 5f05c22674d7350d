"""Checkpoints: one file with everything needed to resume, written atomically.

Private client state has its own file per checkpoint, written first: a crash between the two writes
leaves the previous checkpoint with its own client state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from coterie.core.plain_files import parse_json
from coterie.core.printable import one_line
from coterie.core.records import Record
from coterie.errors import DataError, RunError
from coterie.experiments.history import Point, TrainingHistory
from coterie.experiments.run_folder import read_arrays, write_arrays
from coterie.types import JsonObject

NAME = "checkpoint.npz"
DEVICES = "devices-{}.npz"
FORMAT = 2
"""Version of the checkpoint format. Format 1, of early development versions, had no number."""


def write(folder: Path, point: Point, data: str, config: JsonObject) -> None:
    """Save a point of a run with this config, trained on data with this fingerprint."""
    states = {"state": point.state, "best": point.best}
    shared = _named(states, lambda record: record.shared_arrays())
    private = _named(states, lambda record: record.private_arrays())
    private_file = folder / DEVICES.format(point.history.round)
    if private:
        write_arrays(private_file, private)
    about = {
        "format": FORMAT,
        "history": point.history.to_json(),
        "data": data,
        "config": config,
    }
    packed = np.frombuffer(json.dumps(about, allow_nan=False).encode(), np.uint8)
    write_arrays(folder / NAME, shared | {"about": packed, "selections": point.history.selections})
    for old in folder.glob(DEVICES.format("*")):
        if old != private_file:
            old.unlink(missing_ok=True)


def read(
    folder: Path, kind: type[Record], data: str, config: JsonObject, with_devices: bool = True
) -> Point | None:
    """The last saved point, or None if there is none yet.

    `with_devices=False` leaves private client state out: in a deployment it is on the nodes.
    """
    if not (folder / NAME).exists():
        return None
    arrays = read_arrays(folder, NAME)
    with _naming_faults(folder):
        about = _about(folder, arrays)
        private = {}
        if kind.private and with_devices:
            private = _private_arrays(folder, about["history"]["round"])
        point = _point(about, kind, arrays | private)
    _check_config(folder, about["config"], config)
    if about["data"] != data:
        raise RunError(
            f"{folder}: the data or the privacy preferences have changed since the run began; "
            "expected them unchanged. Start again with coterie run."
        )
    return point


def _about(folder: Path, arrays: dict[str, np.ndarray]) -> JsonObject:
    """The description inside a checkpoint, checked to be of the current format."""
    about: JsonObject = parse_json(arrays["about"].tobytes(), folder / NAME)
    if not isinstance(about, dict):
        raise TypeError("its description is not an object")
    written = about.get("format", 1)
    if isinstance(written, int) and written > FORMAT:
        raise RunError(
            f"{folder / NAME} has checkpoint format {written}, of a later Coterie; expected at "
            f"most {FORMAT}. Update coterie."
        )
    if written != FORMAT:
        raise RunError(
            f"{folder / NAME} has checkpoint format {written}, of an earlier Coterie; "
            f"expected format {FORMAT}. {_remedy(folder)}"
        )
    if not isinstance(about["config"], dict) or not isinstance(about["history"], dict):
        raise TypeError("its config or its history is not an object")
    if type(about["history"]["round"]) is not int or not isinstance(about["data"], str):
        raise TypeError("its round is not a number, or its data is not a fingerprint")
    return about


@contextmanager
def _naming_faults(folder: Path) -> Iterator[None]:
    try:
        yield
    except (LookupError, ValueError, TypeError, AttributeError, DataError) as error:
        raise RunError(
            f"{folder / NAME} cannot be read as a checkpoint of this algorithm "
            f"({one_line(error)}). {_remedy(folder)}"
        ) from None


def _remedy(folder: Path) -> str:
    if (folder / "terms.json").exists():
        return "Start a new federation in another folder: coterie serve --config FILE --out FOLDER"
    return f"Start again: coterie run {folder}/config.yaml"


def _check_config(folder: Path, before: JsonObject, now: JsonObject) -> None:
    for key in before.keys() | now.keys():
        if before.get(key) != now.get(key):
            raise RunError(
                f"{folder}/config.yaml: setting {key!r} is {now.get(key)!r}, but the run began "
                f"with {before.get(key)!r}; expected it unchanged. "
                "Restore the value, or start a new run with coterie run."
            )


def _private_arrays(folder: Path, round_: int) -> dict[str, np.ndarray]:
    name = DEVICES.format(round_)
    if not (folder / name).exists():
        raise RunError(
            f"{folder} has no {name}; expected the private client state after round {round_}, "
            f"without which {NAME} cannot be resumed. "
            f"Restore the file, or start again: coterie run {folder}/config.yaml"
        )
    return read_arrays(folder, name)


def _point(about: JsonObject, kind: type[Record], arrays: dict[str, np.ndarray]) -> Point:
    return Point(
        state=_record("state", kind, arrays),
        history=TrainingHistory.from_json(about["history"], arrays["selections"]),
        best=_record("best", kind, arrays),
    )


def private_names(folder: Path) -> set[str]:
    """Names of the arrays of the last saved state that are private client state."""
    files = sorted(folder.glob(DEVICES.format("*")))
    return set(_part("state", read_arrays(folder, files[-1].name))) if files else set()


def state_arrays(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of the last saved state, private client state included, for a warm start."""
    arrays = read_arrays(folder, NAME)
    with _naming_faults(folder):
        private_file = DEVICES.format(_about(folder, arrays)["history"]["round"])
    if (folder / private_file).exists():
        arrays |= read_arrays(folder, private_file)
    return _part("state", arrays)


def _named(
    states: dict[str, Record | None], arrays_of: Callable[[Record], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    return {
        f"{name}.{key}": array
        for name, record in states.items()
        if record is not None
        for key, array in arrays_of(record).items()
    }


def _record(name: str, kind: type[Record], arrays: dict[str, np.ndarray]) -> Record | None:
    own = _part(name, arrays)
    return kind.from_arrays(own) if own else None


def _part(name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        key.removeprefix(f"{name}."): array
        for key, array in arrays.items()
        if key.startswith(f"{name}.")
    }
