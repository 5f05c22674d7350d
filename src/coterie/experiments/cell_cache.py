"""The cache of finished cells: a cell of a plan that is finished is never run again.

Every cell has its own folder, named by a hash of everything the cell depends on: all settings, the
data and the code.

cell.json        the text whose hash is the folder's name
metrics.jsonl    one line per measurement
users.csv        metrics per user, for paired tests; only if the test part was evaluated
result.json      a run's result, or why training diverged; it is written last
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.algorithms.registry import module_of
from coterie.core import plugins
from coterie.errors import ConfigError, RunError
from coterie.experiments import run_folder
from coterie.experiments.config import NAMING_FILES
from coterie.experiments.plan import Cell
from coterie.experiments.relevant_sources import all_sources, relevant_sources
from coterie.types import JsonObject
from coterie.version import __version__

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class CellResult:
    """A finished cell."""

    cell: Cell
    folder: Path
    result: JsonObject
    curve: list[JsonObject]

    @property
    def diverged(self) -> str | None:
        """Why training diverged, or None; a diverged cell has no metrics."""
        return self.result.get("diverged")

    def users(self) -> pd.DataFrame:
        """Metrics of every tested user, indexed by external id."""
        import pandas as pd

        frame = pd.read_csv(
            self.folder / "users.csv", dtype={"user_id": str}, keep_default_na=False
        )
        return frame.set_index("user_id")


def finish(place: Path, curve: Sequence[JsonObject], result: JsonObject) -> None:
    """Mark a cell as finished."""
    run_folder.write_metrics(place, curve)
    run_folder.write_result(place, result)


def is_finished(place: Path) -> bool:
    """Whether the cell has a readable result."""
    try:
        return isinstance(json.loads((place / "result.json").read_text()), dict)
    except (OSError, ValueError):
        return False


def read(cell: Cell, place: Path) -> CellResult:
    try:
        result = json.loads((place / "result.json").read_text())
    except (OSError, ValueError) as error:
        raise RunError(
            f"{place} was finished but cannot be read any more ({error}). Start again."
        ) from None
    return CellResult(cell, place, result, run_folder.read_metrics(place))


@contextmanager
def locked(place: Path) -> Iterator[bool]:
    """Try to lock a cell for this process; False if another process is running it."""
    with ExitStack() as stack:
        try:
            place.mkdir(parents=True, exist_ok=True)
            stack.enter_context(run_folder.locked(place))
            is_locked = True
        except RunError:
            is_locked = False
        except OSError as error:
            raise RunError(
                f"{place} cannot be written ({error.strerror}). Pass another --cells FOLDER."
            ) from None
        yield is_locked


def folder_name(cell: Cell, data: str) -> str:
    """The folder of a cell: other settings, other data or other code give another folder."""
    digest = hashlib.blake2b(description(cell, data).encode(), digest_size=12).hexdigest()
    return f"{cell.experiment.choice.algorithm}-{digest}"


def description(cell: Cell, data: str) -> str:
    """Everything a cell depends on, as JSON; `data` is the fingerprint of its data."""
    flat = cell.experiment.flat()
    files = {key: _digest(_files_behind(Path(flat[key]))) for key in NAMING_FILES if flat.get(key)}
    about = {
        "part": cell.part,
        "config": flat,
        "data": data,
        "files": files,
        "code": code_version(cell.experiment.choice.algorithm) | plugin_versions(cell),
    }
    return json.dumps(about, indent=2, sort_keys=True)


def _files_behind(path: Path) -> list[Path]:
    """The file itself; of a run folder, the files that weights are taken from."""
    return [path / "catalogue.npz", path / "checkpoint.npz"] if path.is_dir() else [path]


def plugin_versions(cell: Cell) -> dict[str, str]:
    """Hashes of the packages that add the algorithm, the dataset or metrics; none for our own."""
    choice = cell.experiment.choice
    files = {
        name: plugins.sources(group, name)
        for group, name in (
            (plugins.ALGORITHMS, choice.algorithm),
            (plugins.DATASETS, choice.dataset),
            *((plugins.METRICS, metric) for metric in cell.experiment.protocol.named),
        )
    }
    return {name: _digest(paths, str) for name, paths in files.items() if paths}


@cache
def code_version(algorithm_name: str = "") -> dict[str, str]:
    """The versions of code that can change a figure for the same settings and data.

    Of Coterie's own files, those that a run of the algorithm can depend on. A plug-in may import
    any of them, so that all count for it; and all count where no algorithm is named.
    """
    versions = {
        p: metadata.version(p) for p in ("numpy", "scipy", "numba", "torch") if util.find_spec(p)
    }
    source = source_hash(Path(__file__).parents[1], module_of(algorithm_name))
    return {"coterie": __version__, "source": source} | versions


def source_hash(package: Path, module: str = "") -> str:
    """Hash of every source file that can change a figure of an algorithm in this module."""
    sources = relevant_sources(package, module) if module else all_sources(package)
    return _digest(sources, lambda path: path.relative_to(package).as_posix())


def _digest(paths: Sequence[Path], named: Callable[[Path], str] = lambda path: "") -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be read ({error.strerror}). Check the path."
            ) from None
        digest.update(f"{named(path)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
