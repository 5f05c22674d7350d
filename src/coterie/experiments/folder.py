"""The run folder: everything a run leaves behind, as plain files that appear whole or not at all.

config.yaml      every setting; `coterie run config.yaml` repeats the run
catalogue.npz    external ids, titles, and what every user had seen
candidates.npz   what every test item was ranked against
checkpoint.npz   all that is needed to go on; `coterie resume FOLDER` does
metrics.jsonl    one line per measurement up to the last checkpoint
model.npz        the model's arrays at the last checkpoint, then the final ones; model.json says what they are
result.json      the result, as `--json` prints it: the run is finished
devices.npz      what stays on people's devices, of algorithms that have such; devices-N.npz beside a checkpoint
users.csv        metrics per user, and what users chose for themselves: for the owner alone
report.md, report.html
.lock            held by the process that writes
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from coterie.errors import CoterieError, RunError
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.evaluation import Evaluation
from coterie.models import kinds
from coterie.models.recommender import Recommender
from coterie.types import Ids, Rows

DEVICES = "devices.npz"
"""What the devices of people keep: never a part of what a server has."""
RESULT_KEYS = (
    "algorithm",
    "dataset",
    "protocol",
    "seed",
    "rounds",
    "seconds",
    "metrics",
    "full",
    "headline",
    "data",
)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Who and what a model's row numbers mean."""

    user_ids: Ids
    item_ids: Ids
    item_texts: Ids | None
    seen: Rows


def refuse_occupied(out: Path | None) -> None:
    """A run never writes over another one."""
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(
            f"{out} exists and is not empty; expected a new folder for the run. Choose another --out or remove it."
        )


def new_folder(out: Path | None, name: str) -> Path:
    """Make the run's folder: the one asked for, or the first free runs/NAME-N."""
    if out is not None:
        refuse_occupied(out)
        return _made(out)
    for n in range(1, 1_000_000):
        try:
            folder = Path("runs") / f"{name}-{n}"
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(
                f"{folder} cannot be made ({error.strerror}). Pass --out FOLDER."
            ) from None
        return folder
    raise RunError(f"runs/ holds a million runs of {name}. Pass --out FOLDER.")


@contextlib.contextmanager
def held(folder: Path | None) -> Iterator[None]:
    """Keep others from writing into a run folder; the hold ends with the process, however that ends."""
    if folder is None or sys.platform == "win32":
        yield
        return
    import fcntl

    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(
                f"{folder} is being written by another process. Wait for it, or stop it first."
            ) from None
        for left in folder.glob(".*.[0-9]*"):  # half a file of a process that was killed
            left.unlink(missing_ok=True)
        yield


def write_config(folder: Path, flat: dict[str, Any]) -> None:
    from coterie.experiments.config import as_yaml

    _write(folder / "config.yaml", as_yaml(flat).encode())


def write_result(folder: Path, result: dict[str, Any]) -> None:
    _write(folder / "result.json", json.dumps(result, indent=2, allow_nan=False).encode() + b"\n")


def write_metrics(folder: Path, curve: Sequence[dict[str, Any]]) -> None:
    _write(
        folder / "metrics.jsonl",
        "".join(json.dumps(line, allow_nan=False) + "\n" for line in curve).encode(),
    )


def write_model(folder: Path, model: Recommender) -> None:
    """What stays on people's devices is not in the model's file but in one of its own."""
    if kept := model.private_arrays():
        write_arrays(folder / DEVICES, kept, owner_only=True)
    write_arrays(folder / "model.npz", model.shared_arrays())
    about = {
        "kind": model.kind,
        "parameters": model.n_parameters,
        "shapes": {n: list(a.shape) for n, a in model.arrays().items()},
    }
    _write(folder / "model.json", json.dumps(about, indent=2).encode() + b"\n")


def write_catalogue(folder: Path, catalogue: Catalogue) -> None:
    arrays = {"user_ids": _packed(catalogue.user_ids), "item_ids": _packed(catalogue.item_ids)}
    if catalogue.item_texts is not None:
        arrays["item_texts"] = _packed(catalogue.item_texts)
    write_arrays(
        folder / "catalogue.npz",
        arrays | {"seen_offsets": catalogue.seen.offsets, "seen_items": catalogue.seen.items},
    )


def write_candidates(folder: Path, candidates: Candidates) -> None:
    write_arrays(
        folder / "candidates.npz",
        {"users": candidates.users, "items": candidates.items, "relevant": candidates.relevant},
    )


def write_users(
    folder: Path,
    user_ids: Ids,
    evaluation: Evaluation,
    beside: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Metrics of every tested user, and beside them what else is known of all users, such as how often each was asked."""
    import pandas as pd

    known = {name: values[evaluation.users] for name, values in (beside or {}).items()}
    frame = pd.DataFrame({"user_id": user_ids[evaluation.users]} | known | evaluation.table)
    _write(
        folder / "users.csv",
        frame.to_csv(index=False, float_format="%.6g").encode(),
        owner_only=True,
    )


def write_text(folder: Path, name: str, text: str) -> None:
    _write(
        folder / name, text.encode(errors="backslashreplace")
    )  # a file name may be no valid text


def read_config(folder: Path) -> dict[str, Any]:
    import yaml

    values: dict[str, Any] = _read(
        folder, "config.yaml", lambda path: dict(yaml.safe_load(path.read_text()))
    )
    return values


def read_result(folder: Path) -> dict[str, Any]:
    def load(path: Path) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(path.read_text())
        if missing := [key for key in RESULT_KEYS if key not in result]:
            raise KeyError(f"no {', '.join(missing)}")
        return result

    result: dict[str, Any] = _read(folder, "result.json", load)
    return result


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    if not (folder / "metrics.jsonl").exists():
        return []
    lines: list[dict[str, Any]] = _read(folder, "metrics.jsonl", _whole_lines)
    return lines


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """A run that was killed may leave half a line at the end."""
    return [
        dict(json.loads(line))
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]


def read_catalogue(folder: Path) -> Catalogue:
    found: Catalogue = _read(
        folder, "catalogue.npz", lambda path: _catalogue(read_arrays(folder, path.name))
    )
    return found


def read_model(folder: Path) -> tuple[Recommender, Catalogue]:
    kind = _read(
        folder, "model.json", lambda path: kinds.kind(json.loads(path.read_text())["kind"])
    )
    kept = read_arrays(folder, DEVICES) if kind.private else {}
    model: Recommender = _read(
        folder, "model.npz", lambda path: kind.from_arrays(read_arrays(folder, path.name) | kept)
    )
    return model, read_catalogue(folder)


def read_candidates(folder: Path) -> Candidates:
    held = read_arrays(folder, "candidates.npz")
    found: Candidates = _read(
        folder,
        "candidates.npz",
        lambda _: Candidates(held["users"], held["items"], held["relevant"]),
    )
    return found


def _catalogue(held: dict[str, np.ndarray]) -> Catalogue:
    seen = Rows(held["seen_offsets"], held["seen_items"])
    texts = _unpacked(held["item_texts"]) if "item_texts" in held else None
    return Catalogue(_unpacked(held["user_ids"]), _unpacked(held["item_ids"]), texts, seen)


def read_arrays(folder: Path, name: str) -> dict[str, np.ndarray]:
    def load(path: Path) -> dict[str, np.ndarray]:
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as packed:
            return {key: packed[key] for key in packed.files}

    arrays: dict[str, np.ndarray] = _read(folder, name, load)
    return arrays


def _read(folder: Path, name: str, load: Callable[[Path], Any]) -> Any:
    if not folder.is_dir():
        why = "it is a file" if folder.exists() else "it does not exist"
        raise RunError(
            f"{folder} is not a run folder: {why}. Name the folder that `coterie run` printed."
        )
    try:
        return load(folder / name)
    except FileNotFoundError:
        names = {path.name for path in folder.iterdir()}
        begun = "config.yaml" in names and not names & {"result.json", "terms.json"}
        remedy = (
            f"Wait for it if it is training, else go on with it: coterie resume {folder}"
            if begun
            else _again(folder)
        )
        raise RunError(
            f"{folder} holds no {name}; expected the folder of a finished run. {remedy}"
        ) from None
    except RunError:
        raise
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        OSError,
        BadZipFile,
        CoterieError,
    ) as error:
        raise RunError(f"{folder / name} cannot be read ({error}). {_again(folder)}") from None


def _again(folder: Path) -> str:
    if (folder / "terms.json").exists():
        return "It is a federation's, whose people are on nodes: coterie recommend --node STORE --user ID, or coterie status for its metrics."
    if not (folder / "config.yaml").exists():
        return "Name the folder that `coterie run` printed."
    return f"Run it again: coterie run {folder}/config.yaml"


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{folder} cannot be made ({error.strerror}). Choose another --out."
        ) from None
    return folder


def _packed(values: Ids) -> np.ndarray:
    """Texts as the bytes of a JSON list: object arrays would need pickle, and fixed widths the room of the longest."""
    if values.dtype.kind != "O":
        return values
    return np.frombuffer(json.dumps([str(v) for v in values]).encode(), np.uint8)


def _unpacked(values: np.ndarray) -> Ids:
    return (
        np.array(json.loads(values.tobytes()), dtype=object) if values.dtype == np.uint8 else values
    )


def write_arrays(path: Path, arrays: dict[str, np.ndarray], owner_only: bool = False) -> None:
    packed = BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]
    _write(path, packed.getvalue(), owner_only)


def _write(path: Path, content: bytes, owner_only: bool = False) -> None:
    """A temporary file, then a rename: nobody ever reads half a file."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(scratch, "wb", opener=_for_owner if owner_only else None) as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        scratch.replace(path)
    except OSError as error:
        raise RunError(
            f"{path} cannot be written ({error.strerror}). Choose another place."
        ) from None
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
