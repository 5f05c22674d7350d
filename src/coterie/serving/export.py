"""`coterie export`: a model as plain files, with scorers that need none of our dependencies.

manifest.json   algorithm, version, item ids and titles; type and shape of every array
NAME.bin        an array, little-endian, row by row
scorer.py       recommends from these files with NumPy
scorer.mjs      the same in JavaScript, for browsers and Node.js

Users are left out unless they are asked for. Then the files about them and the manifest are
readable by their owner only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import numpy as np

from coterie.algorithms.fcf import FCF
from coterie.algorithms.local.least_squares import LeastSquares, gram
from coterie.errors import ConfigError
from coterie.experiments import run_folder
from coterie.experiments.finished_run import Run
from coterie.models.directions import Directions
from coterie.models.factors import Factors
from coterie.models.gmf import GMF
from coterie.models.item_based import ItemBased
from coterie.models.linear import ItemToItem
from coterie.models.neighbours import NearItems
from coterie.models.popularity_prior import score_deviations
from coterie.models.recommender import Recommender
from coterie.serving.sources import fingerprint
from coterie.types import Doubles, Floats, JsonObject, Rows

FACTORS = "factors"
ITEM_ITEM = "item_item"
TYPES = {"f": {4: "<f4", 8: "<f8"}, "i": {4: "<i4", 8: "<i4"}}
"""How arrays are written, by kind and size; offsets are below 2^31."""
SCORERS = {"scorer.py": "py", "scorer.mjs": "mjs"}


@dataclass(frozen=True, slots=True)
class ExportedModel:
    scorer: str
    """FACTORS or ITEM_ITEM."""
    arrays: dict[str, np.ndarray]
    of_users: dict[str, np.ndarray] = field(default_factory=dict)
    """Arrays about users, where they are exported."""
    about: JsonObject = field(default_factory=dict)
    """What the scorer reads from the manifest."""


@dataclass(frozen=True, slots=True)
class FactorTable:
    """y = p_u . q_i + b_i"""

    user_vectors: Floats  # (users, d)
    item_vectors: Floats  # (items, d)
    item_bias: Floats  # (items,)


def export(folder: Path, out: Path, with_users: bool) -> JsonObject:
    """Write the model of a run folder to a new folder; returns the manifest."""
    run = Run.peek(folder)
    model = exported(run, with_users)
    run_folder.refuse_occupied(out)
    known = run.catalogue
    texts = known.item_texts
    manifest = {
        "format": "coterie export 1",
        "scorer": model.scorer,
        "algorithm": run.result["algorithm"],
        "dataset": run.result.get("dataset"),
        "version": fingerprint(folder),
        **model.about,
        "arrays": {
            name: {"type": type_of(array), "shape": list(array.shape)}
            for name, array in (model.arrays | model.of_users).items()
        },
        "items": [known.id_of(k) for k in range(len(known.item_ids))],
        "texts": None if texts is None else [str(text) for text in texts],
        "users": known.user_ids.tolist() if with_users else [],
    }
    for name, array in model.arrays.items():
        write(out / f"{name}.bin", as_bytes(array), owner_only=False)
    for name, array in model.of_users.items():
        write(out / f"{name}.bin", as_bytes(array), owner_only=True)
    for name, suffix in SCORERS.items():
        source = resources.files("coterie.serving.scorers") / f"{model.scorer}.{suffix}"
        write(out / name, source.read_bytes(), owner_only=False)
    # The manifest marks the folder as complete, so it is written last.
    write(out / "manifest.json", json.dumps(manifest).encode(), owner_only=with_users)
    return manifest


def exported(run: Run, with_users: bool) -> ExportedModel:
    """What the files hold; an error for models that the scorers cannot compute."""
    model = run.model
    if isinstance(model, ItemToItem | NearItems):
        return item_item(run, model, with_users)
    table = factor_table(model)
    if table is None:
        raise ConfigError(
            f"the run's algorithm is {run.result['algorithm']}, whose model is of the kind "
            f"{model.kind!r}; expected a factor model, such as als, fedals, bpr or gmf, or an "
            "item-item model, such as ease, itemknn or fedslim. Train one of them, or serve this "
            "run with coterie api."
        )
    return factors(run, table, with_users)


def factor_table(model: Recommender) -> FactorTable | None:
    """The vectors of a model whose scores are their products; None for other models."""
    if isinstance(model, Factors):
        return FactorTable(model.user_rows, model.item_rows, model.item_bias)
    if isinstance(model, GMF):
        same_bias = np.full(len(model.item_rows), model.bias[0], np.float32)
        return FactorTable(model.user_rows * model.output, model.item_rows, same_bias)
    if isinstance(model, Directions):
        no_bias = np.zeros(len(model.units), np.float32)
        return FactorTable(model.user_rows, model.unpacked(), no_bias)
    return None


def factors(run: Run, table: FactorTable, with_users: bool) -> ExportedModel:
    fit = new_user_fit(run)
    if fit is None and not with_users:
        raise ConfigError(
            f"the run's algorithm is {run.result['algorithm']}, and the exported scorer cannot fit "
            "the vector of a new user as it does; expected --users. "
            "Add --users to export the vectors of the run's users."
        )
    arrays: dict[str, np.ndarray] = {}
    about: JsonObject = {"new_user": fit}
    if fit is not None:
        arrays["gram"] = fit.pop("missing_weight") * gram(table.item_vectors)
        arrays["average"] = table.user_vectors.mean(axis=0)
    if run.prior is not None:
        table = with_popularity(run, table)
    arrays |= {"item_vectors": table.item_vectors, "item_bias": table.item_bias}
    of_users: dict[str, np.ndarray] = {}
    if with_users:
        of_users = {"user_vectors": table.user_vectors} | rows_of("seen", run.catalogue.seen)
    return ExportedModel(FACTORS, arrays, of_users, about)


def new_user_fit(run: Run) -> dict[str, float] | None:
    """How a new user's vector x is solved; None where it is not one linear system:

        (w Y^T Y + ridge I + alpha sum_i y_i y_i^T) x = target sum_i y_i
        ridge = reg max(count + others, 1)^exponent

    with the sums over the user's items. w is the weight of missing interactions.
    """
    settings = run.settings
    if run.prior is not None or run.result.get("feedback") == "explicit":
        return None
    if isinstance(settings, LeastSquares):
        n_items = len(run.catalogue.item_ids)
        return {
            "missing_weight": 1.0,
            "alpha": settings.alpha,
            "target": 1 + settings.alpha,
            "reg": settings.known_reg,
            "others": n_items / settings.alpha if settings.reg_exponent else 0.0,
            "exponent": settings.reg_exponent,
        }
    if isinstance(settings, FCF):
        return {
            "missing_weight": settings.missing_weight,
            "alpha": settings.alpha + 1 - settings.missing_weight,
            "target": 1 + settings.alpha,
            "reg": settings.reg,
            "others": 0.0,
            "exponent": 0.0,
        }
    return None


def with_popularity(run: Run, table: FactorTable) -> FactorTable:
    """The table with popularity and bias as two more coordinates.

    A user's scores are own (p . q + b) + prior popularity: see `models/popularity_prior.py`.
    """
    prior = run.prior
    if prior is None:
        return table
    users = np.arange(len(table.user_vectors), dtype=np.int32)
    deviations = score_deviations(run.model, users, len(table.item_vectors))
    n: Doubles = prior.lengths.astype(np.float64)
    total = n + prior.strength
    own = np.divide(n, deviations * total, out=np.zeros(len(n)), where=deviations != 0)
    weights = np.column_stack([own, prior.strength / total])
    scaled = table.user_vectors * own[:, None]
    user_vectors = np.column_stack([scaled, weights]).astype(np.float32)
    item_vectors = np.column_stack([table.item_vectors, table.item_bias, prior.popularity])
    return FactorTable(user_vectors, item_vectors, np.zeros_like(table.item_bias))


def item_item(run: Run, model: ItemBased, with_users: bool) -> ExportedModel:
    if run.prior is not None:
        raise ConfigError(
            f"the run has popularity_prior={run.prior.strength:g}, which the exported scorer of "
            "item-item models leaves out; expected 0. Train with --set popularity_prior=0."
        )
    arrays: dict[str, np.ndarray] = {}
    if isinstance(model, ItemToItem):
        arrays = {"weights": model.weights}
    elif isinstance(model, NearItems):
        arrays = {
            "offsets": model.offsets,
            "columns": model.followers,
            "weights": model.similarities,
        }
    if not with_users:
        return ExportedModel(ITEM_ITEM, arrays, about={"not_served": []})
    users = np.arange(len(run.catalogue.user_ids), dtype=np.int32)
    not_served = np.flatnonzero(~run.model.serves(users)).tolist()
    of_users = rows_of("history", model.histories()) | rows_of("seen", run.catalogue.seen)
    return ExportedModel(ITEM_ITEM, arrays, of_users, {"not_served": not_served})


def rows_of(name: str, rows: Rows) -> dict[str, np.ndarray]:
    return {f"{name}_offsets": rows.offsets, f"{name}_items": rows.items}


def type_of(array: np.ndarray) -> str:
    return TYPES[array.dtype.kind][array.dtype.itemsize]


def as_bytes(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).astype(type_of(array)).tobytes()


def write(path: Path, content: bytes, *, owner_only: bool) -> None:
    with run_folder.replacing(path, owner_only) as scratch, scratch.open("ab") as out:
        out.write(content)
