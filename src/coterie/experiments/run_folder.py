"""The run folder: the files of a run, each written atomically.

config.yaml      every setting; `coterie run config.yaml` repeats the run
catalogue.npz    external ids, item texts, and the items that every user has seen
candidates.npz   the candidates that every test item was ranked against
checkpoint.npz   everything that `coterie resume FOLDER` needs
metrics.jsonl    one line per measurement up to the last checkpoint
rounds.jsonl     the progress, appended while the run trains: see `round_log`
model.npz        the arrays of the model at the last checkpoint or at the end; model.json names them
result.json      the result, as `--json` prints it; it exists once the run is finished
popularity.npz   how much popularity counts in scores, and that of every item, where it counts
devices.npz      private client state, for algorithms that have it; devices-N.npz for a checkpoint
users.csv        metrics and chosen values per user
recommendations.csv, split/    on request (`save`): see `saving`; readable by the owner only
report.md, report.html
.lock            locked by the process that writes, with its number

All npz files, users.csv and a server's lists of users are readable by their owner only: they tell
what single users did.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import numpy as np

from coterie.core import atomic_files, npz
from coterie.core.npz import packed_texts, unpacked_texts
from coterie.core.plain_files import (
    MOST_JSON_BYTES,
    MOST_YAML_BYTES,
    parse_json,
    parse_yaml,
    read_json_object,
    read_text,
)
from coterie.core.printable import one_line
from coterie.errors import CoterieError, RunError
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.evaluation import Evaluation
from coterie.models import kinds
from coterie.models.popularity_prior import PopularityPrior
from coterie.models.recommender import Recommender
from coterie.types import Ids, JsonObject, Rows

if TYPE_CHECKING:
    import pandas as pd

Loaded = TypeVar("Loaded")

MOST_DIGITS = 32
DEVICES = "devices.npz"
PRIOR = "popularity.npz"
"""Private client state, which no server has."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CATALOGUE = ("user_ids", "item_ids", "item_texts", "seen_offsets", "seen_items")
LISTS_OF_USERS = ("members.json", "homes.json", "permits.json", "approved.json")
"""The files of a server that name users and their nodes."""
RESULT_KEYS: dict[str, type] = {
    "algorithm": str,
    "dataset": str,
    "protocol": str,
    "seed": int,
    "rounds": object,
    "seconds": object,
    "metrics": dict,
    "full": dict,
    "headline": list,
    "data": str,
}
"""What every result has, and of which type."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The external ids of a model's user and item indices, and the items that users have seen."""

    user_ids: Ids
    item_ids: Ids
    item_texts: Ids | None
    seen: Rows

    def id_of(self, item: int) -> object:
        """The external id of an item, as a plain Python value."""
        ids = self.item_ids
        return ids[item].item() if ids.dtype.kind in "iu" else str(ids[item])

    def text_of(self, item: int) -> str:
        """The title of an item; empty if it is not known."""
        return "" if self.item_texts is None else str(self.item_texts[item])


def refuse_occupied(out: Path | None) -> None:
    """A run never overwrites another one."""
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(
            f"{out} exists and is not empty; expected a new folder for the run. "
            "Choose another --out or remove it."
        )


def new_folder(out: Path | None, name: str) -> Path:
    """Make the run's folder: `out`, or the first free runs/NAME-N."""
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
    raise RunError(f"runs/ already holds a million runs of {name}. Pass --out FOLDER.")


def has_result(folder: Path) -> bool:
    return (folder / "result.json").exists()


def earlier_run(
    name: str,
    flat: JsonObject,
    resume: str = "coterie resume",
    is_finished: Callable[[Path], bool] = has_result,
) -> str:
    """What runs/NAME-N with the same settings is, if there is one; the newest comes first.

    `resume`: the command that goes on with an unfinished one, without its folder.
    """
    runs = Path("runs")
    folders = list(runs.iterdir()) if runs.is_dir() else []
    numbered = {number: path for path in folders if (number := _number(path, name))}
    same = [
        numbered[number]
        for number in sorted(numbered, reverse=True)
        if _has_settings(numbered[number], flat) and not is_locked(numbered[number])
    ]
    for folder in same:
        if not is_finished(folder):
            return (
                f"{folder} has the same settings and is unfinished: "
                f"resume it with {resume} {folder}"
            )
    return f"{same[0]} is a finished run of the same settings; this one is new" if same else ""


def _number(folder: Path, name: str) -> int:
    """The N of runs/NAME-N; 0 for other folders."""
    before, _, number = folder.name.rpartition("-")
    return int(number) if before == name and number.isdecimal() else 0


def _has_settings(folder: Path, flat: JsonObject) -> bool:
    """Whether a run folder was made with these settings: the same ones make the same file."""
    from coterie.experiments.config import as_yaml

    try:
        return (folder / "config.yaml").read_bytes() == as_yaml(flat).encode()
    except OSError:
        return False


def is_locked(folder: Path) -> bool:
    """Whether another process is writing a run folder."""
    try:
        with locked(folder):
            return False
    except (RunError, OSError):
        return True


@contextlib.contextmanager
def locked(folder: Path | None) -> Iterator[None]:
    """Lock a run folder against other writers."""
    if folder is None:
        yield
        return
    taken = f"{folder} is being written by another process. Wait for it, or stop it first."
    with locked_file(folder / ".lock", taken):
        # A killed process leaves a partial file behind.
        for partial in folder.glob(".*.[0-9]*"):
            partial.unlink(missing_ok=True)
        yield


@contextlib.contextmanager
def locked_file(path: Path, taken: str) -> Iterator[None]:
    """Hold a lock, or raise the error `taken`. It ends with the process, however that ends."""
    if sys.platform == "win32":
        yield
        return
    try:
        opened = path.open("a")
    except OSError as error:
        raise not_written(path, error) from None
    with opened as lock:
        if not _lock(lock):
            raise RunError(taken)
        # The number is for whoever wants to stop the process; a full disk may lack it.
        with contextlib.suppress(OSError):
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), f"{os.getpid()}\n".encode())
        yield


def _lock(file: IO[str]) -> bool:
    """Try to lock an open file. Whoever asks `is_held` has the lock for an instant."""
    import fcntl

    for pause in (0.02, 0.1, 0.0):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(pause)
        else:
            return True
    return False


def holder(lock: Path) -> int | None:
    """The process that holds a lock, as it wrote into the file; None if no process does."""
    try:
        text = read_text(lock, MOST_DIGITS).strip()
    except (OSError, CoterieError):
        return None
    return int(text) if text.isdecimal() and is_held(lock) else None


def is_held(lock: Path) -> bool:
    """Whether a process holds a lock. Whoever asks needs no permission to write."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        with lock.open() as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def write_config(folder: Path, flat: JsonObject) -> None:
    from coterie.experiments.config import as_yaml

    _write(folder / "config.yaml", as_yaml(flat).encode())


def write_result(folder: Path, result: JsonObject) -> None:
    """The result; its privacy statement also as a file of its own."""
    if "privacy" in result:
        write_privacy(folder, result["privacy"])
    _write_json(folder / "result.json", result)


def write_privacy(folder: Path, statement: JsonObject) -> None:
    """The guarantee of differential privacy, for somebody who has no result to read."""
    _write_json(folder / "privacy.json", statement)


def _write_json(path: Path, content: JsonObject) -> None:
    _write(path, json.dumps(content, indent=2, allow_nan=False).encode() + b"\n")


def write_metrics(folder: Path, curve: Sequence[JsonObject]) -> None:
    lines = "".join(json.dumps(line, allow_nan=False) + "\n" for line in curve)
    _write(folder / "metrics.jsonl", lines.encode())


def write_model(folder: Path, model: Recommender, prior: PopularityPrior | None = None) -> None:
    """Write the model, its private client state separately, and the popularity prior if any."""
    if prior is not None:
        write_arrays(folder / PRIOR, prior.arrays())
    if private := model.private_arrays():
        write_arrays(folder / DEVICES, private)
    write_arrays(folder / "model.npz", model.shared_arrays())
    about = {
        "kind": model.kind,
        "parameters": model.n_parameters,
        "shapes": {n: list(a.shape) for n, a in model.arrays().items()},
    }
    _write(folder / "model.json", json.dumps(about, indent=2).encode() + b"\n")


def write_catalogue(folder: Path, catalogue: Catalogue) -> None:
    arrays = {
        "user_ids": packed_texts(catalogue.user_ids),
        "item_ids": packed_texts(catalogue.item_ids),
    }
    if catalogue.item_texts is not None:
        arrays["item_texts"] = packed_texts(catalogue.item_texts)
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
    columns: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write the metrics of every tested user.

    `columns` adds values of all users, such as the number of selections.
    """
    import pandas as pd

    added = {name: values[evaluation.users] for name, values in (columns or {}).items()}
    frame = pd.DataFrame({"user_id": user_ids[evaluation.users]} | added | evaluation.table)
    write_private_table(folder, "users.csv", frame)


def write_private_table(folder: Path, name: str, frame: pd.DataFrame) -> None:
    """Write a table about single users as csv, readable by the owner only."""
    text = frame.to_csv(index=False, float_format="%.6g")
    _write(folder / name, text.encode(errors="backslashreplace"), owner_only=True)


def write_text(folder: Path, name: str, text: str) -> None:
    # A file name in the text may hold bytes that are not valid UTF-8.
    content = text.encode(errors="backslashreplace")
    _write(folder / name, content, owner_only=name in LISTS_OF_USERS)


def read_config(folder: Path) -> JsonObject:
    """The settings as they are in the file, whatever version of Coterie wrote it."""
    from yaml import YAMLError

    def load(path: Path) -> JsonObject:
        try:
            values = parse_yaml(read_text(path, MOST_YAML_BYTES))
        except YAMLError as error:
            raise ValueError(" ".join(str(error).split())) from None
        if not isinstance(values, dict):
            raise ValueError("it has no settings")
        return values

    return _read(folder, "config.yaml", load)


def read_settings(folder: Path) -> JsonObject:
    """The settings of a run that is to be resumed, re-evaluated or replayed by this version."""
    from coterie.experiments.config import RENAMED, read_file, renamed_setting

    old = renamed_setting(read_config(folder))
    if old is not None:
        raise RunError(
            f"{folder}/config.yaml uses the setting {old!r} of an earlier development version; "
            f"expected {RENAMED[old]!r}. Run the experiment again, or rename the key."
        )
    return read_file(str(folder / "config.yaml"))


def read_result(folder: Path) -> JsonObject:
    def load(path: Path) -> JsonObject:
        result = read_json_object(path)
        if missing := [key for key in RESULT_KEYS if key not in result]:
            raise KeyError(f"no {', '.join(missing)}")
        for key, kind in RESULT_KEYS.items():
            if not isinstance(result[key], kind):
                raise TypeError(f"{key} is a {type(result[key]).__name__}")
        return result

    return _read(folder, "result.json", load)


def read_metrics(folder: Path) -> list[JsonObject]:
    if not (folder / "metrics.jsonl").exists():
        return []
    return _read(folder, "metrics.jsonl", _complete_lines)


def _complete_lines(path: Path) -> list[JsonObject]:
    """The lines of a file whose last one may be incomplete, if the run was killed."""
    return [
        dict(parse_json(line, path))
        for line in read_text(path, MOST_JSON_BYTES).splitlines(keepends=True)
        if line.endswith("\n")
    ]


def read_catalogue(folder: Path) -> Catalogue:
    return _read(folder, "catalogue.npz", lambda path: _catalogue(npz.read_file(path, CATALOGUE)))


def read_model(folder: Path) -> tuple[Recommender, Catalogue]:
    def load_kind(path: Path) -> type[Recommender]:
        return kinds.kind(str(read_json_object(path)["kind"]))

    kind = _read(folder, "model.json", load_kind)
    private = read_arrays(folder, DEVICES) if kind.private else {}

    def load_model(path: Path) -> Recommender:
        return kind.from_arrays(npz.read_file(path) | private)

    model = _read(folder, "model.npz", load_model)
    catalogue = read_catalogue(folder)
    _read(folder, "model.npz", lambda _: _refuse_other_shape(model, catalogue))
    return model, catalogue


def _refuse_other_shape(model: Recommender, catalogue: Catalogue) -> None:
    """Arrays of other users or items would fail, or read other memory, when they are used."""
    n_users = len(catalogue.user_ids)
    n_items = len(catalogue.item_ids)
    arrays = model.arrays()
    for name in {*model.of_users, *model.private} & arrays.keys():
        if arrays[name].shape[:1] != (n_users,):
            raise ValueError(f"{name} has shape {arrays[name].shape}; expected {n_users} rows")
    scores = model.score(np.zeros(1, np.int32))
    if scores.shape != (1, n_items) or scores.dtype.kind != "f":
        raise ValueError(f"it scores {scores.shape[-1]} items; expected {n_items}")


def read_prior(folder: Path) -> PopularityPrior | None:
    """The popularity prior; None where the scores have none, or an earlier version wrote them."""
    if not (folder / PRIOR).exists():
        return None

    def load(path: Path) -> PopularityPrior:
        return PopularityPrior.from_arrays(npz.read_file(path))

    return _read(folder, PRIOR, load)


def read_candidates(folder: Path) -> Candidates:
    def load(path: Path) -> Candidates:
        arrays = npz.read_file(path, ("users", "items", "relevant"))
        found = Candidates(arrays["users"], arrays["items"], arrays["relevant"])
        found.refuse_other_shape()
        return found

    return _read(folder, "candidates.npz", load)


def _catalogue(arrays: dict[str, np.ndarray]) -> Catalogue:
    catalogue = Catalogue(
        user_ids=unpacked_texts(arrays["user_ids"]),
        item_ids=unpacked_texts(arrays["item_ids"]),
        item_texts=unpacked_texts(arrays["item_texts"]) if "item_texts" in arrays else None,
        seen=Rows(arrays["seen_offsets"], arrays["seen_items"]),
    )
    n_items = len(catalogue.item_ids)
    if catalogue.item_texts is not None and len(catalogue.item_texts) != n_items:
        raise ValueError(f"it has {len(catalogue.item_texts)} titles of {n_items} items")
    catalogue.seen.refuse_other_shape(len(catalogue.user_ids), n_items)
    return catalogue


def read_arrays(folder: Path, name: str) -> dict[str, np.ndarray]:
    return _read(folder, name, npz.read_file)


def _read(folder: Path, name: str, load: Callable[[Path], Loaded]) -> Loaded:
    """Load a file of a run folder; any failure becomes one RunError with a remedy."""
    if not folder.is_dir():
        why = "it is a file" if folder.exists() else "it does not exist"
        raise RunError(
            f"{folder} is not a run folder: {why}. Name the folder that `coterie run` printed."
        )
    try:
        return load(folder / name)
    except FileNotFoundError:
        names = {path.name for path in folder.iterdir()}
        unfinished = "config.yaml" in names and not names & {"result.json", "terms.json"}
        remedy = _remedy(folder, name)
        if unfinished:
            remedy = f"Wait if it is still training; otherwise resume it: coterie resume {folder}"
        expected = "a run on one machine" if "terms.json" in names else "a finished run"
        raise RunError(
            f"{folder} has no {name}; expected the folder of {expected}. {remedy}"
        ) from None
    except RunError:
        raise
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        OSError,
        CoterieError,
    ) as error:
        why = one_line(error).removeprefix(f"{folder / name}: ")
        raise RunError(f"{folder / name} cannot be read ({why}). {_remedy(folder, name)}") from None


def _remedy(folder: Path, name: str) -> str:
    if (folder / "terms.json").exists():
        return (
            "It belongs to a federation, whose users are on nodes: there, use coterie recommend "
            "--node STORE --user ID, or coterie api STORE. Its metrics: coterie status."
        )
    if not (folder / "config.yaml").exists():
        return "Name the folder that `coterie run` printed."
    if name == "config.yaml":
        return "Make the run again: coterie run ALGORITHM."
    return f"Run it again: coterie run {folder}/config.yaml"


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{folder} cannot be made ({error.strerror}). Choose another --out."
        ) from None
    return folder


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Arrays are about users: their ids and interactions, or what was learned from them."""
    _write(path, npz.packed(arrays), owner_only=True)


def link_file(origin: Path, path: Path) -> None:
    """Give a file a second name, in another folder; a failure names the file."""
    try:
        atomic_files.link_file(origin, path)
    except OSError as error:
        raise not_written(path, error) from None


def _write(path: Path, content: bytes, owner_only: bool = False) -> None:
    """Write a file at once; see `replacing`."""
    with replacing(path, owner_only) as scratch, scratch.open("ab") as out:
        out.write(content)


@contextlib.contextmanager
def replacing(path: Path, owner_only: bool = True) -> Iterator[Path]:
    """An empty temporary file, renamed at the end; a failure names the file."""
    try:
        with atomic_files.replacing(path, owner_only=owner_only) as scratch:
            yield scratch
    except OSError as error:
        raise not_written(path, error) from None


def not_written(path: Path, error: OSError) -> RunError:
    """What a user is told about a file that cannot be written."""
    remedy = "Choose another folder."
    if error.errno in NO_SPACE:
        remedy = "Free some space and resume, or choose another folder."
    return RunError(f"{path} cannot be written ({error.strerror}). {remedy}")
