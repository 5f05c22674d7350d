"""Runs a paper's experiments and gives a verdict on every claim.

Finished runs are read from their folder; only missing ones are run.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from coterie.core.paths import cache_folder, data_folder
from coterie.core.progress import SILENT, Progress
from coterie.data.catalogue import DATASETS
from coterie.data.fetch import is_local, locate_or_fetch
from coterie.errors import FetchError, Interrupted, UnknownName
from coterie.experiments import run_folder
from coterie.experiments.cell_cache import CellResult, code_version
from coterie.experiments.config import Experiment
from coterie.experiments.plan import Method, Plan
from coterie.experiments.plan_runner import run_plans
from coterie.reproduce import findings
from coterie.reproduce.items import Claim, Item, MeasuredRows, Measurement, Paper, Trial, Verdict
from coterie.reproduce.lookup import combine_verdicts
from coterie.types import JsonObject

SYNTHETIC = {"n_users": 200, "n_items": 300, "mean_interactions": 25}
"""The synthetic data that a quick look uses where no real data is available."""
AS_IN_PAPERS: JsonObject = {"curve_users": 0, "popularity_prior": 0.0}
"""Claims are made about curves, so all users are measured. Papers rank by the model alone."""
CACHE_FILE = "kept.json"


def reproduce(
    paper: Paper,
    quick: bool = False,
    only: Sequence[str] = (),
    folder: Path | None = None,
    progress: Progress = SILENT,
    workers: int = 1,
) -> JsonObject:
    """Run a paper's items and return all that a report needs, as plain data."""
    folder = folder or cache_folder() / "cells"
    chosen = select_items(paper, only)
    missing = missing_data(chosen, progress) if quick else ""
    if missing:
        progress.log(missing)
    items = [runnable(item, quick, paper.quick, progress) for item in chosen]
    trials = [trial for item, _ in items for trial in item.trials if isinstance(trial, Trial)]
    outcomes = iter(run_plans([plan_of(trial) for trial in trials], folder, progress, workers))
    reports = [_item_report(item, left_out, outcomes, folder, progress) for item, left_out in items]
    return {
        "paper": paper.name,
        "title": paper.title,
        "reference": paper.reference,
        "quick": quick,
        "missing": missing,
        "items": reports,
        "code": code_version(),
    }


def select_items(paper: Paper, only: Sequence[str]) -> list[Item]:
    """The items named in `only`; all of them if it is empty."""
    known = {item.key: item for item in paper.items}
    for key in only:
        if key not in known:
            raise UnknownName("item", key, known, f" of {paper.name}")
    return [item for key, item in known.items() if not only or key in only]


def plan_of(trial: Trial) -> Plan:
    """The runs of a trial."""
    return Plan(
        datasets=(trial.dataset,),
        methods=trial.methods,
        settings=AS_IN_PAPERS | dict(trial.settings),
        seeds=tuple(range(trial.seeds)),
        protocol=trial.protocol,
        part=trial.part,
    )


# ---- what can be run


def runnable(
    item: Item, quick: bool, limits: Mapping[str, float], progress: Progress
) -> tuple[Item, dict[str, str]]:
    """The item with the trials that can be run, and the reason for each one left out.

    A quick look runs the first trial only and fetches nothing. Synthetic data stands in where
    no dataset of the item is available.
    """
    unavailable = {t.dataset: why_unavailable(t.dataset, quick, progress) for t in item.trials}
    left_out = {dataset: why for dataset, why in unavailable.items() if why}
    trials = [t for t in item.trials if t.dataset not in left_out]
    if quick:
        left_out |= {t.dataset: "not part of a quick look" for t in trials[1:]}
        if not trials:
            trials = stand_ins(item)
        trials = [quick_limits(quick_points(item, t), limits) for t in trials[:1]]
    return replace(item, trials=tuple(trials)), left_out


def missing_data(items: Sequence[Item], progress: Progress) -> str:
    """The datasets that a quick look lacks, and how to get them; "" if it has all."""
    wanted = dict.fromkeys(trial.dataset for item in items for trial in item.trials)
    names = [name for name in wanted if why_unavailable(name, True, progress)]
    if not names:
        return ""
    text = (
        f"Not in the data folder ({data_folder()}): {', '.join(names)}. A quick look downloads "
        "nothing: synthetic data stands in for an item without data, and tests no claim."
    )
    fetched = [f"coterie data fetch {name}" for name in names if DATASETS[name].sources]
    by_hand = [name for name in names if not DATASETS[name].sources]
    if fetched:
        text += f" To test the claims, run: {' && '.join(fetched)}"
    if by_hand:
        text += f"{';' if fetched else ''} coterie data list says how to get {', '.join(by_hand)}"
    return f"{text}. Then repeat the command."


def why_unavailable(name: str, quick: bool, progress: Progress) -> str:
    """Why a dataset is not available; "" if it is. Outside a quick look it is fetched."""
    dataset = DATASETS[name]
    if dataset.made_up or is_local(name, dataset.signature):
        return ""
    if quick or not dataset.sources:
        return f"not available (coterie data list says how to get {name})"
    try:
        locate_or_fetch(name, dataset.signature, dataset.sources, dataset.by_hand, progress)
    except FetchError as error:
        return str(error)
    return ""


def stand_ins(item: Item) -> list[Trial | Measurement]:
    """The item's trials on synthetic data; measurements have no stand-in."""
    return [
        replace(t, dataset="synthetic", settings=SYNTHETIC, paper={}, stand_in=True)
        for t in item.trials
        if isinstance(t, Trial)
    ]


def quick_points(item: Item, trial: Trial | Measurement) -> Trial | Measurement:
    """The trial with only those points of a sweep that a quick look runs.

    Methods without the setting of the sweep are not points of it: they stay.
    """
    if isinstance(trial, Measurement) or not item.quick_at:
        return trial
    methods = tuple(
        m
        for m in trial.methods
        if item.by not in m.settings or m.settings[item.by] in item.quick_at
    )
    return replace(trial, methods=methods)


def quick_limits(trial: Trial | Measurement, limits: Mapping[str, float]) -> Trial | Measurement:
    """The trial with one seed and no setting above its limit."""
    if isinstance(trial, Measurement):
        return trial
    methods = tuple(_limited(trial, method, limits) for method in trial.methods)
    return replace(trial, seeds=1, methods=methods)


def _limited(trial: Trial, method: Method, limits: Mapping[str, float]) -> Method:
    flat = {"algorithm": method.algorithm, "dataset": trial.dataset}
    if trial.protocol:
        flat["protocol"] = trial.protocol
    settings = Experiment.of(flat | dict(method.settings)).settings
    lowered = {
        key: type(value)(min(value, limit))
        for key, limit in limits.items()
        if isinstance(value := getattr(settings, key, None), (int, float))
    }
    return method._replace(settings=dict(method.settings) | lowered)


# ---- findings and verdicts


def _item_report(
    item: Item,
    left_out: Mapping[str, str],
    outcomes: Iterator[list[CellResult]],
    folder: Path,
    progress: Progress,
) -> JsonObject:
    tables = []
    for trial in item.trials:
        if isinstance(trial, Measurement):
            measured = cached_measurement(item, trial, folder, progress)
            table = findings.measurement_findings(item, trial, measured)
        else:
            table = cached_findings(item, trial, next(outcomes), folder)
        tables.append(table | declared(trial))
    return {
        "key": item.key,
        "title": item.title,
        "about": _about(item, left_out),
        "by": item.by,
        "tables": tables,
        "claims": [evaluate_claim(claim, tables, left_out) for claim in item.claims],
        "machine": machine(),
        "left_out": dict(left_out),
        "absent": [*item.absent, *(f"{name}: {why}." for name, why in left_out.items())],
    }


def _about(item: Item, left_out: Mapping[str, str]) -> str:
    """The item's text; where synthetic data stands in, the text would describe other runs."""
    if any(isinstance(trial, Trial) and trial.stand_in for trial in item.trials):
        return f"On synthetic data, not on {', '.join(left_out)}."
    return item.about


def declared(trial: Trial | Measurement) -> JsonObject:
    """What a paper's declaration says of a trial, for its report."""
    facts: JsonObject = {
        "paper": {method: list(figures) for method, figures in trial.paper.items()},
        "stand_in": False,
        "searches": {},
    }
    if isinstance(trial, Trial):
        facts["stand_in"] = trial.stand_in
        facts["searches"] = {method: asdict(search) for method, search in trial.searches.items()}
    return facts


def evaluate_again(report: JsonObject, paper: Paper) -> JsonObject:
    """A stored report with today's declaration: its runs stay, claims are evaluated anew."""
    items = {item.key: item for item in paper.items}
    return report | {
        "title": paper.title,
        "reference": paper.reference,
        "items": [_evaluated(old, items[old["key"]]) for old in report["items"]],
    }


def _evaluated(report: JsonObject, item: Item) -> JsonObject:
    trials = {trial.dataset: trial for trial in item.trials}
    tables = [
        table | declared(trials[table["dataset"]]) if not table["stand_in"] else table
        for table in report["tables"]
    ]
    claims = [evaluate_claim(claim, tables, report.get("left_out", {})) for claim in item.claims]
    return report | {
        "title": item.title,
        "about": item.about,
        "tables": tables,
        "claims": claims,
    }


def evaluate_claim(
    claim: Claim, tables: Sequence[JsonObject], left_out: Mapping[str, str]
) -> JsonObject:
    """A claim's verdict on each of its datasets, and over all of them."""
    verdicts: dict[str, Verdict] = {}
    for table in tables:
        dataset = table["dataset"]
        if not claim.datasets or dataset in claim.datasets:
            verdict = claim.check(table)
            verdicts[dataset] = _on_stand_in(verdict) if table["stand_in"] else verdict
    for dataset, why in left_out.items():
        if not claim.datasets or dataset in claim.datasets:
            verdicts[dataset] = Verdict.of("cannot be tested", why)
    return {
        "name": claim.name,
        "said": claim.text,
        "where": claim.where,
        "verdict": combine_verdicts([v.verdict for v in verdicts.values()]),
        "ours": claim.ours,
        "by": {dataset: verdict.to_json() for dataset, verdict in verdicts.items()},
    }


def _on_stand_in(verdict: Verdict) -> Verdict:
    shown = "; ".join(part.evidence for part in verdict.parts)
    return Verdict.of("cannot be tested", f"synthetic data stands in: {shown}")


# ---- caches


def cached_findings(
    item: Item, trial: Trial, outcomes: Sequence[CellResult], folder: Path
) -> JsonObject:
    """The findings of a trial, cached: reading and testing thousands of users takes a minute."""
    pairs = [[pair.first, pair.other] for pair in findings.pairs_of(item, trial)]
    key = (
        [[o.cell.method.label, o.folder.name] for o in outcomes],
        item.metrics,
        item.by,
        pairs,
        findings_source(),
    )
    place = _cache_place(folder, f"found-{item.key}", key)
    cached = _read_cache(place)
    if cached is None:
        cached = findings.trial_findings(item, trial, outcomes)
        run_folder.write_text(place, CACHE_FILE, json.dumps(cached, allow_nan=False))
    return cached


def cached_measurement(
    item: Item, measurement: Measurement, folder: Path, progress: Progress
) -> MeasuredRows:
    """A measurement, cached: it is made once per code version and machine."""
    key = [measurement.dataset, code_version(), machine()]
    place = _cache_place(folder, f"measured-{item.key}", key)
    rows: MeasuredRows | None = _read_cache(place)
    if rows is not None:
        return rows
    try:
        with progress.task(f"Measuring {item.title} on {measurement.dataset}", None):
            rows = measurement.measure()
    except KeyboardInterrupt:
        raise Interrupted("finished runs are saved. Continue with the same command.") from None
    run_folder.write_text(place, CACHE_FILE, json.dumps(rows))
    return rows


def _cache_place(folder: Path, name: str, key: object) -> Path:
    digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=12).hexdigest()
    return folder / f"{name}-{digest}"


def _read_cache(place: Path) -> JsonObject | None:
    """The cached object; None if there is none or it cannot be read."""
    try:
        cached: JsonObject = json.loads((place / CACHE_FILE).read_text())
    except (OSError, ValueError):
        return None
    return cached


@cache
def findings_source() -> str:
    """A hash of the code that turns runs into findings."""
    return hashlib.blake2b(Path(findings.__file__).read_bytes(), digest_size=12).hexdigest()


def machine() -> JsonObject:
    """The machine this process runs on."""
    about = {
        "system": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        about["gpu"] = torch.cuda.get_device_name()
    return about


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
