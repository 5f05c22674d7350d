"""The Python API. Its parameters have the names of the command line's settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias, Union

from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.given import OwnAlgorithm
from coterie.algorithms.given import named as named_algorithm
from coterie.core import plugins
from coterie.core.progress import SILENT, Progress
from coterie.core.settings import Settings, split_by_owner
from coterie.data import datasets, splits
from coterie.data.filters import Filters, apply
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.splits import Split
from coterie.data.synthetic import Synthetic
from coterie.errors import ConfigError
from coterie.evaluation.list_metrics import Metric
from coterie.evaluation.metric_names import OwnMetric, own_metric
from coterie.experiments import choice, experiment
from coterie.experiments.choice import AlgorithmChoice, ChoiceRequest
from coterie.experiments.comparison import Comparison, check_comparable, comparison
from coterie.experiments.config import Experiment
from coterie.experiments.finished_run import Run
from coterie.experiments.plan import Method, Plan, cells
from coterie.experiments.plan_runner import run_plan
from coterie.experiments.run_folder import new_folder

if TYPE_CHECKING:
    import pandas as pd

DataSource: TypeAlias = Union[str, Path, Interactions, "pd.DataFrame"]
"""The name of a dataset, a file, loaded interactions or a data frame."""
Metrics: TypeAlias = str | Sequence[str | OwnMetric]
"""Names of metrics, and own ones as functions or records."""


def load(
    dataset: str | Path | pd.DataFrame,
    *,
    columns: dict[str, str] | None = None,
    skip_bad_rows: bool = False,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool = True,
    keep_ratings: bool = False,
    progress: Progress = SILENT,
    **settings: object,
) -> Interactions:
    """Load a dataset by name, from a file or from a data frame.

    `settings` are the filters of `coterie run`, such as `min_rating=4`. `reading` of the result
    says which columns were used. A whole number and its text are the same id. Ratings are dropped
    after filtering unless `feedback` is explicit or `keep_ratings` is set.
    """
    columns = columns or {}
    if not isinstance(dataset, (str, Path)):
        filters = Filters.of(settings)
        given = Interactions.from_frame(dataset, keep=filters.duplicates, **columns)
        return apply(given, filters, keep_ratings)
    name = str(dataset)
    owners: dict[str, type[Settings]] = {"filters": Filters}
    if name == "synthetic":
        owners["synthetic"] = Synthetic
    shares = split_by_owner(settings, owners)
    filters = Filters.of(datasets.dataset(name).filters | shares["filters"])
    synthetic = Synthetic.of(shares.get("synthetic", {}))
    options = ReadOptions(
        columns=columns,
        skip_bad_rows=skip_bad_rows,
        duplicates=filters.duplicates,
        encoding=encoding,
        delimiter=delimiter,
        header=header,
    )
    return datasets.load(name, filters, options, synthetic, progress, keep_ratings)


def run(
    algorithm: str | OwnAlgorithm,
    data: DataSource = "synthetic",
    *,
    test: DataSource | None = None,
    validation: bool | DataSource = False,
    metrics: Metrics = (),
    name: str | None = None,
    out: str | Path | None = None,
    progress: Progress = SILENT,
    **settings: object,
) -> Run:
    """Train and evaluate. `settings` are those of `coterie run`: protocol, seed, embedding_size ...

    `algorithm` is a name, an `Algorithm`, a function `fit(training, seed)` that returns a model, or
    a trained model; `name` is what results call such an object. With `test`, `data` is the training
    part of a split of your own, and `validation` may be its third part. `metrics` are names,
    functions of ranked lists, or `Metric` records. With `out`, write a run folder there; without
    it, write nothing.
    """
    named = _named(algorithm, name)
    given, dataset = _given(data, test, validation, settings)
    keys = {"algorithm": named.name, "dataset": dataset} | settings | _metric_names(metrics)
    if test is not None:
        keys["split"] = "given"
    if validation is True:
        keys["validation"] = True
    with _provided([named], _own_metrics(metrics)):
        chosen = Experiment.of(keys)
        folder = partial(new_folder, Path(out), named.name) if out else None
        return experiment.run(chosen, given, folder, progress)


def compare(
    methods: Sequence[str | OwnAlgorithm] | Mapping[str, str | OwnAlgorithm],
    data: DataSource = "synthetic",
    *,
    seeds: int | None = None,
    folds: int = 0,
    repeats: int = 1,
    metrics: Metrics = (),
    progress: Progress = SILENT,
    **settings: object,
) -> Comparison:
    """Compare methods over seeds or folds, paired over users, as `coterie compare` does.

    `methods` are names or objects as in `run`, or a dict of them by label. The first is tested
    against the others. `settings` are for every method that has them. Runs of named methods are
    kept and not repeated; those of objects are run every time.
    """
    labelled = _labelled(methods)
    given, dataset = _given(data, None, False, settings)
    assert not isinstance(given, Split)
    protocol = settings.pop("protocol", "kfold-5" if folds else None)
    plan = Plan(
        datasets=(dataset,),
        methods=tuple(Method(label, named.name) for label, named in labelled.items()),
        settings=settings | _metric_names(metrics),
        seeds=tuple(range(seeds or (1 if folds or repeats > 1 else 3))),
        protocol=None if protocol is None else str(protocol),
        folds=folds,
        repeats=repeats,
    )
    own = _own_metrics(metrics)
    with _provided(labelled.values(), own), ExitStack() as stack:
        check_comparable(cells(plan))
        cache: Path | None = None
        if own or any(named.algorithm for named in labelled.values()):
            # Nothing tells whether the code of an object has changed, so its runs are not kept.
            cache = Path(stack.enter_context(TemporaryDirectory()))
        return comparison(run_plan(plan, cache, progress, given=given))


def choose(
    data: DataSource = "synthetic",
    *,
    may_leave: str,
    disclosure: float | str | None = None,
    minutes: float = 4.0,
    seed: int = 0,
    progress: Progress = SILENT,
    **settings: object,
) -> AlgorithmChoice:
    """Compare the federated algorithms that may be used, as `coterie choose` does.

    `may_leave` is sums, updates or disclosed. `settings` are those of the data and its split.
    `recommended` of the result is the algorithm to use, `candidates` are all, best first.
    """
    given, dataset = _given(data, None, False, settings)
    assert not isinstance(given, Split)
    protocol = settings.pop("protocol", None)
    request = ChoiceRequest(
        dataset=dataset,
        may_leave=may_leave,
        disclosure=disclosure,
        minutes=minutes,
        protocol=None if protocol is None else str(protocol),
        seed=seed,
        settings=settings,
    )
    return choice.choose(request, given, progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """A method by name; an own one with its algorithm."""

    name: str
    algorithm: Algorithm | None = None


def _named(algorithm: str | OwnAlgorithm, name: str | None) -> _Chosen:
    if not isinstance(algorithm, str):
        own = named_algorithm(algorithm, name)
        return _Chosen(name=own.name, algorithm=own.algorithm)
    if name is not None:
        raise ConfigError(
            f"name is {name!r}, but the algorithm {algorithm!r} has a name already; expected a "
            "name for objects only. Leave it out."
        )
    return _Chosen(name=algorithm)


def _labelled(
    methods: Sequence[str | OwnAlgorithm] | Mapping[str, str | OwnAlgorithm],
) -> dict[str, _Chosen]:
    """Methods by label; an own one has its label as its name."""
    if isinstance(methods, Mapping):
        return {
            label: _named(method, None if isinstance(method, str) else label)
            for label, method in methods.items()
        }
    chosen = [_named(method, None) for method in methods]
    labels = [each.name for each in chosen]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(
                f"method {label!r} is given more than once; expected different names. "
                "Pass a dict of methods by label."
            )
    return {each.name: each for each in chosen}


def _given(
    data: DataSource,
    test: DataSource | None,
    validation: bool | DataSource,
    settings: dict[str, object],
) -> tuple[Interactions | Split | None, str]:
    """(data that is not to be loaded by name, or None; the name of the dataset)."""
    if test is not None:
        return _split_of(data, test, validation, settings), "given"
    if not isinstance(validation, bool):
        raise ConfigError(
            "validation is a part of a split, but test is not given; expected both. "
            "Pass test as well, or validation=True to hold one out."
        )
    if isinstance(data, (str, Path)):
        return None, str(data)
    _reject_data_settings(settings)
    loaded = data if isinstance(data, Interactions) else load(data)
    return loaded, loaded.name


def _split_of(
    train: DataSource, test: DataSource, validation: bool | DataSource, settings: dict[str, object]
) -> Split:
    """A split of the user's own, from parts of any kind."""
    _reject_data_settings(settings)
    if settings.get("split", "given") != "given":
        raise ConfigError(
            f"setting 'split' is {settings['split']!r}, but test is given; expected one of them. "
            "Leave split out."
        )
    held = None if isinstance(validation, bool) else _part(validation)
    return splits.from_parts(_part(train), _part(test), held)


def _part(part: DataSource) -> Interactions:
    return part if isinstance(part, Interactions) else load(part)


def _metric_names(metrics: Metrics) -> dict[str, object]:
    """The setting `metrics`; nothing if there are none."""
    if isinstance(metrics, str):
        return {"metrics": metrics}
    names = [metric if isinstance(metric, str) else own_metric(metric).name for metric in metrics]
    return {"metrics": names} if names else {}


def _own_metrics(metrics: Metrics) -> dict[str, Metric]:
    """The metrics that were passed as objects, by name."""
    given = () if isinstance(metrics, str) else metrics
    own = [own_metric(metric) for metric in given if not isinstance(metric, str)]
    return {metric.name: metric for metric in own}


@contextmanager
def _provided(methods: Iterable[_Chosen], metrics: Mapping[str, Metric]) -> Iterator[None]:
    """Make the names of objects known for the duration of a block."""
    algorithms = {each.name: each.algorithm for each in methods if each.algorithm is not None}
    with (
        plugins.provided(plugins.ALGORITHMS, algorithms),
        plugins.provided(plugins.METRICS, metrics),
    ):
        yield


def _reject_data_settings(settings: dict[str, object]) -> None:
    """Reject settings that only take effect while data is loaded."""
    of_data = {
        *Filters.model_fields,
        *Synthetic.model_fields,
        "dataset",
        "columns",
        "skip_bad_rows",
        "encoding",
        "delimiter",
        "header",
    }
    for key in of_data & set(settings):
        raise ConfigError(
            f"setting {key!r} is {settings[key]!r}, but the data is already loaded. "
            "Pass it to coterie.load."
        )
