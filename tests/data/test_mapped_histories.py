"""Histories in mapped files: what is written is trained on, and a broken file is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data import mapped_histories
from coterie.data.mapped_histories import ABOUT, ITEMS, OFFSETS
from coterie.data.synthetic import Synthetic, histories
from coterie.data.training_set import TrainingSet
from coterie.errors import DataError
from coterie.experiments import training as experiments
from coterie.federated.trainer import Context
from coterie.types import Rows

CONFIG = Synthetic(n_users=230, n_items=90, mean_interactions=12)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three users: items 0 2 5, none, and 1 2."""
    rows = [
        Rows(np.array([0, 3, 3]), np.array([0, 2, 5], np.int32)),
        Rows(np.array([0, 2]), np.array([1, 2], np.int32)),
    ]
    mapped_histories.write(tmp_path, 6, rows)
    return tmp_path


def test_blocks_of_users_become_one_training_set(folder: Path) -> None:
    training = mapped_histories.training_set(folder)
    assert (training.n_users, training.n_items, len(training)) == (3, 6, 5)
    assert training.positives.offsets.tolist() == [0, 3, 3, 5]
    assert training.positives.items.tolist() == [0, 2, 5, 1, 2]
    assert training.excluded is training.positives
    assert not training.positives.items.flags.writeable


def test_files_are_for_their_owner_only(folder: Path) -> None:
    for name in (ABOUT, OFFSETS, ITEMS):
        assert (folder / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "settings"),
    [("fedavg", {"rounds": 3, "participation": 0.2}), ("pfpl+", {"epochs": 2})],
)
def test_training_on_mapped_histories_has_the_bits_of_training_in_memory(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    (rows,) = histories(CONFIG)
    in_memory = TrainingSet(CONFIG.n_users, CONFIG.n_items, rows, rows, None)
    mapped_histories.write(tmp_path, CONFIG.n_items, [rows])
    chosen = algorithm(name)
    models = [
        experiments.fit(chosen, part, chosen.settings.of(settings), Context(7, SILENT))
        for part in (in_memory, mapped_histories.training_set(tmp_path))
    ]
    for one, other in zip(*(model.arrays().values() for model in models), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (ITEMS, [0, 2, 5, 1], "has 16 bytes; expected 20"),
        (ITEMS, [0, 2, 6, 1, 2], "items are not all from 0 to 5"),
        (ITEMS, [-1, 2, 5, 1, 2], "items are not all from 0 to 5"),
        (ITEMS, [0, 2, 2, 1, 2], "the items of user 0 do not ascend"),
        (ITEMS, [0, 2, 5, 2, 1], "the items of user 2 do not ascend"),
        (OFFSETS, [0, 3, 5], "has 24 bytes; expected 32"),
        (OFFSETS, [0, 4, 3, 5], "offsets do not ascend from 0 to 5"),
        (OFFSETS, [0, 3, 3, 6], "offsets do not ascend from 0 to 5"),
        (OFFSETS, [-9, 3, 3, 5], "offsets do not ascend from 0 to 5"),
        (OFFSETS, [0, 2**63 - 1, -(2**63), 5], "offsets do not ascend from 0 to 5"),
    ],
)
@pytest.mark.parametrize("block", [2, 1 << 20])
def test_a_broken_file_is_refused(
    name: str,
    values: list[int],
    message: str,
    block: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mapped_histories, "BLOCK", block)
    dtype = np.int32 if name == ITEMS else np.int64
    (folder / name).write_bytes(np.array(values, dtype).tobytes())
    with pytest.raises(DataError, match=message):
        mapped_histories.training_set(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format is 2; expected 1"),
        ({"users": 2**40}, "expected at most 2,147,483,647"),
        ({"users": -3}, "users is -3; expected a whole number from 1"),
        ({"items": True}, "items is True; expected a whole number"),
        ({"interactions": "5"}, "interactions is '5'; expected a whole number"),
        ({"interactions": 0}, "interactions is 0; expected a whole number from 1"),
    ],
)
def test_a_broken_description_is_refused(
    change: dict[str, object], message: str, folder: Path
) -> None:
    about = json.loads((folder / ABOUT).read_text())
    (folder / ABOUT).write_text(json.dumps(about | change))
    with pytest.raises(DataError, match=message):
        mapped_histories.training_set(folder)
