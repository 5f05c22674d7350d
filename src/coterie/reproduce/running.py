"""A paper's experiments, run: what is missing is run, what is there is read, and every claim gets its verdict."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from coterie.core.paths import cache_folder
from coterie.core.progress import SILENT, Progress
from coterie.data.catalogue import DATASETS
from coterie.data.fetch import bring, is_here
from coterie.errors import FetchError, Interrupted, UnknownName
from coterie.experiments import folder as disk
from coterie.experiments.cell_cache import CellResult, code_version
from coterie.experiments.config import Experiment
from coterie.experiments.plan import Method, Plan
from coterie.experiments.plan_runner import run_plans
from coterie.reproduce import findings
from coterie.reproduce.items import Claim, Item, Measurement, Paper, Rows, Trial, Verdict
from coterie.reproduce.lookup import together

MADE_UP = {"n_users": 200, "n_items": 300, "mean_interactions": 25}
"""What stands in where a quick look has no data."""


def reproduce(
    paper: Paper,
    quick: bool = False,
    only: Sequence[str] = (),
    folder: Path | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Everything that a report needs, as plain data."""
    folder = folder or cache_folder() / "cells"
    items = [at_hand(item, quick, paper.quick, progress) for item in chosen(paper, only)]
    trials = [trial for item, _ in items for trial in item.trials if isinstance(trial, Trial)]
    outcomes = iter(run_plans([plan_of(trial) for trial in trials], folder, progress))
    told = [_of_item(item, left_out, outcomes, folder, progress) for item, left_out in items]
    return {
        "paper": paper.name,
        "title": paper.title,
        "reference": paper.reference,
        "quick": quick,
        "items": told,
        "code": code_version(),
    }


def chosen(paper: Paper, only: Sequence[str]) -> list[Item]:
    known = {item.key: item for item in paper.items}
    for key in only:
        if key not in known:
            raise UnknownName("item", key, known, f" of {paper.name}")
    return [item for key, item in known.items() if not only or key in only]


def plan_of(trial: Trial) -> Plan:
    return Plan(
        (trial.dataset,),
        trial.methods,
        trial.settings,
        tuple(range(trial.seeds)),
        trial.protocol,
        trial.part,
    )


# What can be run here


def at_hand(
    item: Item, quick: bool, limits: Mapping[str, float], progress: Progress
) -> tuple[Item, dict[str, str]]:
    """The item with the trials that can be run, and why each of the others was left out.

    A quick look is at the first trial alone, fetches nothing, and has made-up data stand in where there is no other.
    """
    left_out = {t.dataset: why for t in item.trials if (why := missing(t.dataset, quick, progress))}
    there = [t for t in item.trials if t.dataset not in left_out]
    if quick:
        left_out |= {t.dataset: "not part of a quick look" for t in there[1:]}
        if not there:
            progress.log(
                f"{item.title}: {', '.join(left_out)} not at hand; made-up data stands in, which tests no claim"
            )
        there = [quicker(thinner(item, t), limits) for t in (there or stand_ins(item))[:1]]
    return replace(item, trials=tuple(there)), left_out


def missing(name: str, quick: bool, progress: Progress) -> str:
    """Why a dataset cannot be had; "" if it can."""
    wanted = DATASETS[name]
    if wanted.made_up or is_here(name, wanted.signature):
        return ""
    if quick or not wanted.sources:
        return f"not at hand (coterie data list says how to get {name})"
    try:
        bring(name, wanted.signature, wanted.sources, wanted.by_hand, progress)
    except FetchError as error:
        return str(error)
    return ""


def stand_ins(item: Item) -> list[Trial | Measurement]:
    return [
        replace(t, dataset="synthetic", settings=MADE_UP, paper={}, stand_in=True)
        for t in item.trials
        if isinstance(t, Trial)
    ]


def thinner(item: Item, trial: Trial | Measurement) -> Trial | Measurement:
    """What of an item's setting a quick look is at."""
    if isinstance(trial, Measurement) or not item.quick_at:
        return trial
    return replace(
        trial, methods=tuple(m for m in trial.methods if m.settings.get(item.by) in item.quick_at)
    )


def quicker(trial: Trial | Measurement, limits: Mapping[str, float]) -> Trial | Measurement:
    """One seed, and no setting above its limit."""
    if isinstance(trial, Measurement):
        return trial
    return replace(
        trial, seeds=1, methods=tuple(_limited(trial, method, limits) for method in trial.methods)
    )


def _limited(trial: Trial, method: Method, limits: Mapping[str, float]) -> Method:
    named = {"algorithm": method.algorithm, "dataset": trial.dataset}
    judged_by = {"protocol": trial.protocol} if trial.protocol else {}
    settings = Experiment.of(named | judged_by | dict(method.settings)).settings
    less = {
        key: type(now)(min(now, limit))
        for key, limit in limits.items()
        if isinstance(now := getattr(settings, key, None), (int, float))
    }
    return method._replace(settings=dict(method.settings) | less)


# What was found


def _of_item(
    item: Item, left_out: Mapping[str, str], outcomes: Any, folder: Path, progress: Progress
) -> dict[str, Any]:
    tables = []
    for trial in item.trials:
        if isinstance(trial, Measurement):
            table = findings.of_measurement(item, trial, measured(item, trial, folder, progress))
        else:
            table = found_by(item, trial, next(outcomes), folder)
        told = {
            "paper": {k: list(v) for k, v in trial.paper.items()},
            "stand_in": getattr(trial, "stand_in", False),
        }
        tables.append(table | told)
    return {
        "key": item.key,
        "title": item.title,
        "about": item.about,
        "by": item.by,
        "tables": tables,
        "claims": [judged(claim, tables, left_out) for claim in item.claims],
        "machine": machine(),
        "absent": [*item.absent, *(f"{name}: {why}." for name, why in left_out.items())],
    }


def judged(
    claim: Claim, tables: Sequence[Mapping[str, Any]], left_out: Mapping[str, str]
) -> dict[str, Any]:
    """A claim's verdict on every dataset that it is about, and over them all."""
    verdicts: dict[str, Verdict] = {}
    for table in tables:
        if not claim.datasets or table["dataset"] in claim.datasets:
            verdicts[table["dataset"]] = (
                _on_made_up(claim.check(table)) if table["stand_in"] else claim.check(table)
            )
    for name, why in left_out.items():
        if not claim.datasets or name in claim.datasets:
            verdicts[name] = Verdict("cannot be tested", why)
    return {
        "name": claim.name,
        "said": claim.said,
        "where": claim.where,
        "verdict": together([v.verdict for v in verdicts.values()]),
        "by": {name: list(verdict) for name, verdict in verdicts.items()},
    }


def _on_made_up(verdict: Verdict) -> Verdict:
    return Verdict("cannot be tested", f"made-up data stands in: {verdict.found}")


def found_by(
    item: Item, trial: Trial, outcomes: Sequence[CellResult], folder: Path
) -> dict[str, Any]:
    """What cells say, kept beside them: reading and testing thousands of users again takes a minute."""
    pairs = [[pair.first, pair.other] for pair in findings.pairs_of(item, trial)]
    about = (
        [[o.cell.method.label, o.folder.name] for o in outcomes],
        item.metrics,
        item.by,
        pairs,
        source(),
    )
    place = _place(folder, f"found-{item.key}", about)
    kept: dict[str, Any] | None = _kept(place)
    if kept is None:
        kept = findings.of_trial(item, trial, outcomes)
        disk.write_text(place, "kept.json", json.dumps(kept, allow_nan=False))
    return kept


def measured(item: Item, measurement: Measurement, folder: Path, progress: Progress) -> Rows:
    """Measured once by the same code on the same machine, and kept beside the cells."""
    place = _place(folder, f"measured-{item.key}", [measurement.dataset, code_version(), machine()])
    rows: Rows | None = _kept(place)
    if rows is not None:
        return rows
    try:
        with progress.task(f"Measuring {item.title} on {measurement.dataset}", None):
            rows = measurement.measure()
    except KeyboardInterrupt:
        raise Interrupted(
            "runs that were finished are kept. Go on with the same command."
        ) from None
    disk.write_text(place, "kept.json", json.dumps(rows))
    return rows


def _place(folder: Path, name: str, about: object) -> Path:
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=12).hexdigest()
    return folder / f"{name}-{digest}"


def _kept(place: Path) -> Any:
    """What was kept there and can be read; None where nothing was."""
    try:
        return json.loads((place / "kept.json").read_text())
    except (OSError, ValueError):
        return None


@cache
def source() -> str:
    """Of what turns cells into figures."""
    return hashlib.blake2b(Path(findings.__file__).read_bytes(), digest_size=12).hexdigest()


def machine() -> dict[str, Any]:
    about = {
        "system": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    torch = sys.modules.get("torch")
    return about | (
        {"gpu": torch.cuda.get_device_name()}
        if torch is not None and torch.cuda.is_available()
        else {}
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
