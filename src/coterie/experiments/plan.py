"""Declared experiments: a table is data, a cell of it is one run, and a cell that is finished is never run again.

A cell is kept in a folder of its own, named by a hash of all it depends on: every setting, the data, the code.

cell.json        what the name is a hash of
metrics.jsonl    one line per measurement
users.csv        metrics per user, for paired tests; not where the test part was never looked at
result.json      as of a run, without its model; or why training diverged. It comes last: the cell is finished
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from coterie.algorithms.registry import algorithm
from coterie.core.paths import cache_folder
from coterie.core.progress import SILENT, Advance, Progress
from coterie.core.settings import Settings
from coterie.data.filters import Filters
from coterie.data.interactions import Interactions
from coterie.data.synthetic import Synthetic
from coterie.errors import ConfigError, Diverged, Interrupted, RunError, did_you_mean
from coterie.evaluation.protocols import Protocol
from coterie.experiments import experiment, preparation
from coterie.experiments import folder as disk
from coterie.experiments.config import NAMING_FILES, Choice, Course, Experiment
from coterie.experiments.training import Evaluator, train
from coterie.version import __version__

if TYPE_CHECKING:
    import pandas as pd

Part = Literal["test", "validation"]
THE_PLANS_OWN = {
    "algorithm": "the methods",
    "dataset": "--dataset",
    "protocol": "--protocol",
    "seed": "--seeds",
}
SHOWING = ("cli", "attacks", "report", "reproduce")
"""Parts of the package that show figures and cannot change them: an edit there leaves finished cells as they are."""
PAUSE = 0.2
"""Seconds between two looks at a cell that another process works on."""


class Method(NamedTuple):
    label: str
    algorithm: str
    settings: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Plan:
    datasets: tuple[str, ...]
    methods: tuple[str | Method | tuple[str, str, Mapping[str, Any]], ...]
    """An algorithm's name, or (label, algorithm, settings of its own)."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """For every method that has them."""
    seeds: tuple[int, ...] = (0,)
    protocol: str | None = None
    """The dataset's own by default."""
    part: Part = "test"
    """What cells are judged on. For `validation` the test part is dropped before anything is trained."""


@dataclass(frozen=True, slots=True)
class Cell:
    method: Method
    experiment: Experiment
    part: Part

    @property
    def name(self) -> str:
        choice = self.experiment.choice
        return f"{self.method.label} on {choice.dataset}, seed {choice.seed}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished cell."""

    cell: Cell
    folder: Path
    result: dict[str, Any]
    curve: list[dict[str, Any]]

    @property
    def diverged(self) -> str | None:
        """Why training diverged, if it did; then there are no figures."""
        return self.result.get("diverged")

    def users(self) -> pd.DataFrame:
        """Metrics of every tested user, by external id."""
        import pandas as pd

        frame = pd.read_csv(
            self.folder / "users.csv", dtype={"user_id": str}, keep_default_na=False
        )
        return frame.set_index("user_id")


# ---- what is to be run


def cells(plan: Plan) -> list[Cell]:
    """Every run of a plan, all methods for one seed and then for the next; nothing is loaded yet."""
    methods = [Method(m, m) if isinstance(m, str) else Method(*m) for m in plan.methods]
    _refuse_impossible(plan, methods)
    return [
        Cell(method, _experiment(plan, method, dataset, seed), plan.part)
        for dataset in plan.datasets
        for seed in plan.seeds
        for method in methods
    ]


def _experiment(plan: Plan, method: Method, dataset: str, seed: int) -> Experiment:
    mine = {key: value for key, value in plan.settings.items() if key in _known(method, dataset)}
    named = {"algorithm": method.algorithm, "dataset": dataset, "seed": seed}
    judged_by = {"protocol": plan.protocol} if plan.protocol else {}
    try:
        found = Experiment.of(named | judged_by | mine | dict(method.settings))
    except ConfigError as error:
        raise ConfigError(f"{method.label}: {error}") from None
    if plan.part == "validation" and found.course.start_from:
        raise ConfigError(
            f"{method.label}: start_from is {found.course.start_from!r}, and that run may have been trained on the validation part; "
            "expected a fresh start. Leave start_from out."
        )
    return found


def _known(method: Method, dataset: str) -> dict[str, Any]:
    """The settings that a method has on a dataset."""
    groups: list[type[Settings]] = [
        Choice,
        Course,
        Filters,
        Protocol,
        algorithm(method.algorithm).settings,
    ]
    groups += [Synthetic] if dataset == "synthetic" else []
    return {key: group for group in groups for key in group.model_fields}


def _refuse_impossible(plan: Plan, methods: Sequence[Method]) -> None:
    for what, values in (
        ("dataset", plan.datasets),
        ("method", [method.label for method in methods]),
        ("seed", plan.seeds),
    ):
        if not values:
            raise ConfigError(f"the plan has no {what}; expected at least one. Name one.")
        if repeated := [value for value, n in Counter(values).items() if n > 1]:
            raise ConfigError(
                f"{what} {repeated[0]!r} stands more than once; expected different ones. "
                + ("Tell methods apart by LABEL=NAME." if what == "method" else "Remove one.")
            )
    for settings in (plan.settings, *(method.settings for method in methods)):
        for key in THE_PLANS_OWN.keys() & settings.keys():
            raise ConfigError(
                f"setting {key!r} is {settings[key]!r}, but the plan as a whole says that. Use {THE_PLANS_OWN[key]}."
            )
    known = {
        key for dataset in plan.datasets for method in methods for key in _known(method, dataset)
    }
    for key, value in plan.settings.items():
        if key not in known:
            raise ConfigError(
                f"unknown setting {key!r} (value {value!r}): no method of the plan has it. {did_you_mean(key, sorted(known))}"
            )


# ---- running it


def carry_out(plan: Plan, folder: Path | None = None, progress: Progress = SILENT) -> list[Outcome]:
    """Run what is missing and return every cell, in the plan's order. Several processes may share a plan and a folder."""
    return carry_out_all([plan], folder, progress)[0]


def carry_out_all(
    plans: Sequence[Plan], folder: Path | None = None, progress: Progress = SILENT
) -> list[list[Outcome]]:
    """The same of several plans as one: a cell that several of them have is run once."""
    folder = folder or cache_folder() / "cells"
    data = _Loaded(progress)
    wanted = [
        [(cell, folder / name(cell, data.of(cell)[1])) for cell in cells(plan)] for plan in plans
    ]
    places = {place: cell for of_plan in wanted for cell, place in of_plan}
    missing = {place: cell for place, cell in places.items() if not _is_finished(place)}
    if len(missing) < len(places):
        progress.log(f"{len(places) - len(missing)} of {len(places)} runs are there already")
    if missing:
        _work_off(missing, data, progress)
    return [[_read(cell, place) for cell, place in of_plan] for of_plan in wanted]


def _work_off(missing: dict[Path, Cell], data: _Loaded, progress: Progress) -> None:
    """Run every cell that nobody else is at; those of others are looked at again until they are there."""
    waiting = dict(missing)
    total = len(missing)
    with progress.task(f"{total} {'run' if total == 1 else 'runs'}", total) as advance:
        try:
            while waiting:
                for place, cell in list(waiting.items()):
                    if _attempt(cell, place, data, _Share(cell.name, advance, progress)):
                        del waiting[place]
                if waiting:
                    advance(0, "waiting for another process that is at the same runs")
                    time.sleep(PAUSE)
        except KeyboardInterrupt:
            raise Interrupted(
                f"{total - len(waiting)} of {total} runs were finished and are kept. Go on with the same command."
            ) from None


def _attempt(cell: Cell, place: Path, data: _Loaded, share: _Share) -> bool:
    """Whether the cell is finished now; not if another process is at it."""
    with _alone(place) as mine:
        if mine and not _is_finished(place):  # nobody finished it in the meantime
            known, fingerprint = data.of(cell)
            disk.write_text(place, "cell.json", _ingredients(cell, fingerprint))
            run = _on_validation if cell.part == "validation" else _on_test
            try:
                run(cell, known, place, share)
            except Diverged as error:
                _finish(place, [], _about(cell, fingerprint) | {"diverged": str(error)})
    if mine:
        share.complete()
    return mine


def _on_test(cell: Cell, data: Interactions, place: Path, progress: Progress) -> None:
    """The whole story, without a run folder."""
    run = experiment.run(cell.experiment, data, None, progress)
    assert run.evaluation is not None
    disk.write_users(place, run.catalogue.user_ids, run.evaluation)
    _finish(place, run.curve, run.result)


def _on_validation(cell: Cell, data: Interactions, place: Path, progress: Progress) -> None:
    """Training alone, followed on validation: the test part is gone before it begins."""
    parts, candidates = preparation.hold_out(cell.experiment, data, progress)
    evaluator = Evaluator.of(cell.experiment, parts, candidates)
    training = preparation.to_learn_from(cell.experiment, parts.for_tuning(), progress)
    fitted = train(cell.experiment, training, evaluator, progress)
    # with patience the best, without it the last
    history = fitted.history
    counts = fitted.best_round
    value = next(line[evaluator.headline] for line in history.curve if line["round"] == counts)
    about = {"part": evaluator.part, "rounds": history.round, "seconds": round(history.seconds, 6)}
    found = {"metric": evaluator.headline, "value": value, "best_round": counts}
    _finish(place, history.curve, _about(cell, data.fingerprint()) | about | found)


def _about(cell: Cell, data: str) -> dict[str, Any]:
    choice = cell.experiment.choice
    names = {
        "algorithm": choice.algorithm,
        "dataset": choice.dataset,
        "protocol": cell.experiment.judged_by,
    }
    return names | {"seed": choice.seed, "data": data, "version": __version__}


def _finish(place: Path, curve: Sequence[dict[str, Any]], result: dict[str, Any]) -> None:
    disk.write_metrics(place, curve)
    disk.write_result(place, result)


def _is_finished(place: Path) -> bool:
    """Whether there is a result, and one that can be read."""
    try:
        return isinstance(json.loads((place / "result.json").read_text()), dict)
    except (OSError, ValueError):
        return False


def _read(cell: Cell, place: Path) -> Outcome:
    try:
        result = json.loads((place / "result.json").read_text())
    except (OSError, ValueError) as error:
        raise RunError(
            f"{place} was finished and cannot be read any more ({error}). Start again."
        ) from None
    return Outcome(cell, place, result, disk.read_metrics(place))


@contextmanager
def _alone(place: Path) -> Iterator[bool]:
    """Whether nobody else works on this cell; nobody else will until the end, or until this process is gone."""
    with ExitStack() as stack:
        try:
            place.mkdir(parents=True, exist_ok=True)
            stack.enter_context(disk.held(place))
            mine = True
        except RunError:
            mine = False
        except OSError as error:
            raise RunError(
                f"{place} cannot be written ({error.strerror}). Pass another --cells FOLDER."
            ) from None
        yield mine


class _Loaded:
    """The data of a plan and its fingerprint: every dataset is loaded once, and once more under other filters."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.found: dict[str, tuple[Interactions, str]] = {}

    def of(self, cell: Cell) -> tuple[Interactions, str]:
        wanted = cell.experiment
        choice = cell.experiment.choice
        key = repr(
            (choice.dataset, choice.columns, choice.skip_bad_rows, wanted.filters, wanted.synthetic)
        )
        if key not in self.found:
            data = preparation.load_data(wanted, self.progress)
            self.found[key] = data, data.fingerprint()
        return self.found[key]


class _Share(Progress):
    """The progress of one run as a share of one step of the plan's."""

    def __init__(self, name: str, advance: Advance, progress: Progress) -> None:
        self.name = name
        self.advance = advance
        self.progress = progress
        self.done = 0.0

    def log(self, text: str) -> None:
        self.progress.log(f"{self.name}: {text}")

    @contextmanager
    def task(self, label: str, total: float | None) -> Iterator[Advance]:
        counts = total if total and label.startswith("Training") else None

        def forward(steps: float = 1, note: str = "") -> None:
            share = min(steps / counts, 1 - self.done) if counts else 0.0
            self.done += share
            self.advance(share, f"{self.name}: {note}" if note else "")

        self.advance(0, f"{self.name}: {label}")
        yield forward

    def complete(self) -> None:
        self.advance(1 - self.done)


# ---- what a cell depends on


def name(cell: Cell, data: str) -> str:
    """The folder of a cell: another setting, other data or other code is another folder."""
    digest = hashlib.blake2b(_ingredients(cell, data).encode(), digest_size=12).hexdigest()
    return f"{cell.experiment.choice.algorithm}-{digest}"


def _ingredients(cell: Cell, data: str) -> str:
    flat = cell.experiment.flat()
    files = {key: _digest(_read_from(Path(flat[key]))) for key in NAMING_FILES if flat.get(key)}
    about = {
        "part": cell.part,
        "config": flat,
        "data": data,
        "files": files,
        "code": code_version(),
    }
    return json.dumps(about, indent=2, sort_keys=True)


def _read_from(path: Path) -> list[Path]:
    """The files behind a path; of a run folder those that weights are reused from."""
    return [path / "catalogue.npz", path / "checkpoint.npz"] if path.is_dir() else [path]


@cache
def code_version() -> dict[str, str]:
    """What the same settings and data may give another figure under."""
    versions = {
        p: metadata.version(p) for p in ("numpy", "scipy", "numba", "torch") if util.find_spec(p)
    }
    return {"coterie": __version__, "source": source_hash(Path(__file__).parents[1])} | versions


def source_hash(package: Path) -> str:
    """Of every source file that can change a figure."""
    sources = [
        path
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in SHOWING
    ]
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
