"""The watch of a server: exposures and norms by hand, and alarms that come once and clear."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from deployment.test_server import InProcessNodes, new_federation, served
from small_federation import ON_KERNELS, SENT_ONCE, histories, world_for

from coterie.algorithms.registry import algorithm
from coterie.core.progress import Progress
from coterie.deployment.watch.alarms import MOST, Alarms
from coterie.deployment.watch.exposure import ItemVectors, exposure, item_tables
from coterie.deployment.watch.exposure_shifts import SETTLING, ExposureShifts
from coterie.deployment.watch.long_updates import LongUpdates
from coterie.deployment.watch.norms import NodeNorms, is_readable, update_lengths
from coterie.deployment.watch.row_lengths import Leader, leader
from coterie.deployment.watch.watch import Watch
from coterie.federated.federation import Federation
from coterie.federated.validation import Reply

WITHOUT_ITEM_ROWS = {*SENT_ONCE, "lightfr"}
"""Sums of all pairs of items, and codes of bits: no item has a row of numbers to watch."""


class Lines(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)


def table(*rows: list[float], bias: list[float] | None = None) -> ItemVectors:
    zeros = np.zeros(len(rows)) if bias is None else np.array(bias)
    return ItemVectors(np.array(rows, np.float32), zeros.astype(np.float32))


def columns(users: list[int], rows_of: list[list[list[int]]]) -> dict[str, np.ndarray]:
    """Updates with these item rows, and neither own rows nor dense parts."""
    n = len(users)
    counts = [len(rows) for rows in rows_of]
    rows = np.array([row for each in rows_of for row in each], np.int32).reshape(-1, 2)
    return {
        "users": np.array(users, np.int32),
        "samples": np.ones(n, np.int64),
        "offsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "items": np.arange(len(rows), dtype=np.int32),
        "item_rows": rows,
        "user_rows": np.empty((n, 0), np.int32),
        "dense": np.empty((n, 0), np.int32),
    }


def test_exposure_by_hand():
    """Each of three items is a probe, which ranks itself last."""
    # Scores of the probes: 0 -> item 1: 2, item 2: 0; 1 -> 0: 2, 2: 1; 2 -> 1: 1, 0: 0.
    found = exposure(table([2, 0], [1, 1], [0, 1]))
    assert found == pytest.approx(
        [(1 / 3 + 1 + 1 / 2) / 3, (1 + 1 / 3 + 1) / 3, (1 + 1 + 2 / 3) / 6]
    )


def test_a_bias_raises_exposure():
    rows = [[1.0, 0.1 * k] for k in range(6)]
    plain = exposure(table(*rows))
    assert exposure(table(*rows, bias=[9, 0, 0, 0, 0, 0]))[0] > plain[0]


def test_the_longest_row_by_hand():
    assert leader(table([3, 4], [0, 2], [1, 0])) == Leader(0, 2.5)
    assert leader(table([3, 4])) is None
    assert leader(table([3, 4], [0, 0])) is None


def test_an_item_that_rises_is_found_once_the_model_has_settled():
    shifts = ExposureShifts()
    low = np.array([0.4, 0.005, 0.005])
    high = np.array([0.4, 0.2, 0.5])
    assert not list(shifts.add(SETTLING - 2, low))
    assert not list(shifts.add(SETTLING - 1, high))
    assert not list(shifts.add(SETTLING, low))
    (found,) = shifts.add(SETTLING + 3, high)
    assert (found.item, found.rounds) == (2, 3)
    assert found.growth == pytest.approx(100)
    assert not list(ExposureShifts(shifts.recent).add(SETTLING + 9, high)), "beyond the window"


def test_lengths_of_updates_by_hand():
    sent = columns([4, 7], [[[3, 4]], [[1, 0], [0, 0], [2, 2]]])
    assert is_readable(sent)
    assert update_lengths(sent) == pytest.approx([5.0, 3.0])


@pytest.mark.parametrize(
    "fault",
    [
        {"offsets": np.array([0, 5], np.int64)},
        {"offsets": np.array([0, 3, 2], np.int64)},
        {"offsets": np.array([0, 9, 1], np.int64)},
        {"item_rows": np.zeros((1, 2))},
        {"item_rows": np.zeros(1, np.int32)},
        {"users": np.zeros((1, 1), np.int32)},
        {"dense": np.zeros((3, 1), np.int32)},
    ],
)
def test_malformed_replies_have_no_length(fault: dict[str, np.ndarray]):
    norms = NodeNorms()
    sent = columns([1, 2], [[[1, 1]], []])
    norms.add(0, Reply(sent["users"], columns=sent | fault))
    norms.add(0, Reply(sent["users"], columns=None))
    assert norms.lengths == {}


def test_nodes_are_compared_with_the_median_node():
    norms = NodeNorms()
    for node, length in enumerate([10, 20, 30, 40, 600]):
        sent = columns([node], [[[length, 0]]])
        norms.add(node, Reply(sent["users"], columns=sent))
    assert norms.relative() == pytest.approx({0: 1 / 3, 1: 2 / 3, 2: 1, 3: 4 / 3, 4: 20})
    del norms.lengths[0]
    assert norms.relative() == {}, "too few nodes"


def test_one_long_update_is_no_alarm():
    seen = LongUpdates()
    assert seen.add({"a": 20, "b": 1}) == {}
    assert seen.add({"a": 20}) == {}
    assert seen.add({"b": 1}) == {}
    assert seen.add({"a": 20}) == {"a": 3}
    for _ in range(10):
        seen.add({"a": 1})
    assert seen.is_calm("a")


def test_alarms_are_raised_once_until_they_clear():
    log = Lines()
    watch = Watch(["x"], Alarms(), log)
    for n in range(1, 6):
        watch.look_at_nodes(n, {"ann": 1.0, "eve": 50.0})
    (text,) = watch.alarms.active.values()
    assert text == (
        "its updates were 10 or more times as long as those of the median node in 3 of its last 10 "
        "rounds, and 50 times in round 3"
    )
    assert log.lines == [f"alarm: node eve: {text}"]
    for n in range(6, 16):
        watch.look_at_nodes(n, {"ann": 1.0, "eve": 1.0})
    assert watch.status("none")["alarms"] == {}
    assert watch.status("none")["alarms_raised"] == {"norm of a node": 1}
    assert log.lines[1:] == ["alarm cleared: node eve, after round 15"]
    again = Alarms.resume(watch.status("none"))
    assert again.raised == watch.alarms.raised


def test_the_list_is_bounded():
    alarms = Alarms()
    for n in range(MOST + 5):
        assert alarms.raise_once("kind", f"item {n}", "text")
    assert len(alarms.active) == MOST
    assert "item 4" not in alarms.active
    assert alarms.raised == {"kind": MOST + 5}


@pytest.mark.parametrize("name", ON_KERNELS)
def test_every_item_table_is_found(name: str):
    """Of algorithms whose state has one; the others have no model before the end."""
    training = histories(1)
    world = world_for(name, training)
    federation = algorithm(name).train
    assert isinstance(federation, Federation)
    state = federation.init(world)
    tables = item_tables(federation, world, state)
    assert bool(tables) == (name not in WITHOUT_ITEM_ROWS)
    for found in tables:
        assert found.rows.shape[0] == found.bias.shape[0] == training.n_items
        assert exposure(found).sum() > 1


def test_a_server_reports_what_it_watched(few_people, tmp_path: Path):
    terms, paths = new_federation("fedfast", few_people, tmp_path, 5, participation=1.0)
    served(tmp_path, terms, InProcessNodes(paths))
    status = json.loads((tmp_path / "status.json").read_text())
    norms = status["norms_by_node"].values()
    assert len(norms) == 5
    assert 0.3 < min(norms) <= 1 <= max(norms) < 3
    assert "alarms" in status
    assert status["seconds_by_phase"]["watch"] > 0


def test_norms_are_not_available_under_secure_aggregation():
    watch = Watch([], Alarms(), Lines())
    hidden = "not available: secure aggregation (ring) hides single updates"
    assert watch.status("ring")["norms_by_node"] == hidden
    few = "not available: fewer than 5 nodes sent updates, too few to compare them"
    assert watch.status("none")["norms_by_node"] == few
