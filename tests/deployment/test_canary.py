"""What leaves a node, message by message: nothing of anybody's history beyond what the algorithm discloses, and bytes as the simulator counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deployment.test_node_evaluation import bare, federation  # noqa: F401  a fixture
from deployment.test_server import Together, served
from small_federation import FEDERATED, ON_KERNELS

from coterie.data.interactions import Interactions
from coterie.experiments import experiment
from coterie.federated.validation import DTYPES
from coterie.federated.wire import Decoded, decode

SECRET_TIME = 1_234_567_890_123 // 1000


class Recorded(Together):
    """All that leaves nodes."""

    def __init__(self, paths: list[Path]) -> None:
        super().__init__(paths)
        self.left: list[tuple[str, str, bytes]] = []

    def send(self, kind: str, out: Mapping[str, bytes]) -> dict[str, bytes]:
        back = super().send(kind, out)
        self.left += [(kind, name, data) for name, data in sorted(back.items())]
        return back

    def updates(self) -> list[Decoded]:
        return [decode(data) for kind, _, data in self.left if kind == TRAIN]


def left(name: str, people: Interactions, folder: Path, n: int = 2, **settings: object) -> Recorded:
    folder.mkdir()
    terms, paths = federation(name, people, folder, n, **settings)
    nodes = Recorded(paths)
    served(folder, terms, nodes)
    return nodes


def in_order(people: Interactions) -> Interactions:
    """Nobody did two things at one time: what is held out is the newest, whatever it is."""
    return replace(people, times=np.arange(len(people), dtype=np.int64) + 1)


def with_other_tests(people: Interactions) -> Interactions:
    """Everybody's newest interaction, which is held out, is with something else that they never had."""
    items = people.items.copy()
    for user, place in enumerate(people.rows.offsets[1:] - 1):
        had = set(people.items[people.users == user].tolist())
        if len(had) == 1:
            continue  # who did one thing is trained on and not tested
        items[place] = next(i for i in range(people.n_items - 1, -1, -1) if i not in had)
    return replace(people, items=items)


@pytest.mark.parametrize("name", FEDERATED)
def test_what_is_held_out_never_leaves(name, bare, tmp_path):  # noqa: F811
    """Other test items, and every message but the last sums is the same, byte for byte."""
    ours = in_order(bare)
    one, two = (
        left(name, data, tmp_path / label)
        for label, data in (("one", ours), ("two", with_other_tests(ours)))
    )
    assert [m for m in one.left if m[0] != FINISH] == [m for m in two.left if m[0] != FINISH]
    assert [m for m in one.left if m[0] == FINISH] != [m for m in two.left if m[0] == FINISH]


@pytest.mark.parametrize("name", FEDERATED)
def test_when_never_leaves(name, bare, tmp_path):  # noqa: F811
    """Everybody's clock goes wrong by as much as it likes."""
    shift = np.random.default_rng(0).integers(0, 10**6, bare.n_users)
    moved = replace(bare, times=bare.times + shift[bare.users])
    one, two = (
        left(name, data, tmp_path / label) for label, data in (("one", bare), ("two", moved))
    )
    assert one.left == two.left


@pytest.mark.parametrize("name", FEDERATED)
def test_messages_hold_what_they_are_for_and_no_names(name, bare, tmp_path):  # noqa: F811
    """Only columns of updates, only of users who were asked; no name of an item, no time, no person but in the roll."""
    said = replace(
        bare,
        item_ids=np.array([f"secret-item-{i}" for i in range(bare.n_items)], dtype=object),
        user_ids=np.array([f"person-{u}" for u in range(bare.n_users)], dtype=object),
        times=np.full(len(bare), SECRET_TIME),
    )
    nodes = left(name, said, tmp_path / "one")
    for kind, _, data in nodes.left:
        assert b"secret-item" not in data
        assert SECRET_TIME.to_bytes(8, "little") not in data
        assert (b"person-" in data) == (kind == ENROL)
        if kind == FINISH:
            assert set(json.loads(data)) == {"people", "part", "sums"}
        if kind == ENROL:
            assert set(json.loads(data)) == {"people", "learning", "positives"}
    for update in nodes.updates():
        assert set(update.arrays) <= set(DTYPES)
        assert not update.common


@pytest.mark.parametrize("name", ["pfpl", "pfpl+", "sfpl+"])
@pytest.mark.parametrize("disclosed", [0.0, 1.0])
def test_a_canary(name, disclosed, bare, tmp_path):  # noqa: F811
    """One person alone has an item. Who discloses nothing never names it; who discloses all does."""
    canary = "canary"
    data = replace(bare)
    columns = (
        [*data.user_ids[data.users].astype(str)],
        [*data.item_ids[data.items].astype(str)],
        [*data.times],
    )  # type: ignore[misc]
    for values, value in zip(columns, (str(data.user_ids[7]), canary, 1), strict=True):
        values.append(value)
    told = Interactions.from_columns(columns[0], columns[1], None, columns[2])
    told = replace(told, item_texts=np.array([f"Title {i}" for i in told.item_ids], dtype=object))
    nodes = left(
        name,
        told,
        tmp_path / "one",
        disclosure=disclosed,
        epochs=2,
        rounds_an_epoch=3,
        users_per_round=200,
    )
    number = told.item_ids.tolist().index(canary)
    user = told.user_ids.tolist().index(str(data.user_ids[7]))
    sent = [
        number in update.arrays["items"][slice(*update.arrays["offsets"][[k, k + 1]])]
        for update in nodes.updates()
        for k in np.flatnonzero(update.arrays["users"] == user)
    ]
    assert len(sent) == 6
    assert any(sent) == bool(disclosed)


@pytest.mark.parametrize("name", ON_KERNELS)
def test_bytes_are_those_that_the_simulator_counts(name, bare, tmp_path):  # noqa: F811
    """With everybody on a node of their own, as the simulator counts: within two percent."""
    few = bare.select(bare.users < 30)
    few = replace(few, user_ids=few.user_ids[:30])
    folder = tmp_path / "one"
    folder.mkdir()
    terms, paths = federation(name, few, folder, 30)
    served(folder, terms, Together(paths))
    status = json.loads((folder / "status.json").read_text())
    here = experiment.run(terms.experiment, few).result
    assert status["bytes_up"] == pytest.approx(here["bytes_up"], rel=0.02)
    assert status["bytes_down"] == pytest.approx(here["bytes_down"], rel=0.02)
