"""Steps for a GPU equal the passes on the CPU; recorded steps equal steps that are not recorded."""

from __future__ import annotations

import numpy as np
import pytest
from small_federation import play, play_locally, world_for
from test_towers import ALL, TITLES, item_content, settings

from coterie.algorithms.two_tower import TOWERS, gpu_steps, tower
from coterie.algorithms.two_tower.batches import InputRows, PaddedBatch
from coterie.algorithms.two_tower.distinct import distinct_items
from coterie.algorithms.two_tower.padded_texts import pad, padded_texts, rounded_up
from coterie.algorithms.two_tower.requests import Requests
from coterie.algorithms.two_tower.training import TowerOps
from coterie.core import streams
from coterie.data.splits import split
from coterie.engines.local import LocalEngine
from coterie.types import Rows

torch = pytest.importorskip("torch")

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here")
KEYS = streams.keys(1, "rows", last=ALL)
PADDING = 3
"""Rows that a GPU adds."""


def on_cpu(texts: InputRows, content, n_inputs: int = 30) -> gpu_steps.Texts:
    padded = padded_texts(texts.source, content, n_inputs)
    return gpu_steps.Texts(
        torch.from_numpy(padded.entries),
        torch.from_numpy(padded.weights),
        torch.from_numpy(padded.letters),
    )


def with_padding(array: np.ndarray) -> torch.Tensor:
    widths = [(0, PADDING)] + [(0, 0)] * (array.ndim - 1)
    return torch.from_numpy(np.pad(array, widths))


class Case:
    """Some texts, a tower, and requests of two users, one of whom requests an item less."""

    def __init__(self, name: str, dropout: float = 0.3) -> None:
        self.towers = TowerOps(settings(name, dropout=dropout))
        self.content = item_content(tower(name).reads)
        assert self.content.items is not None
        self.texts = InputRows(self.content.items, ALL, KEYS)
        self.flat = self.towers.start(3, "tower")
        self.users = InputRows(self.content.items, ALL[[4, 1]], KEYS[[2, 0]])
        items = np.array([[0, 1, 5], [-1, 1, 4]], np.int32)
        clicked = np.array([[False, True, False], [False, False, True]])
        self.drawn = Requests(items, clicked, np.empty((2, 0), np.int32))

    def arrays(self, texts: InputRows) -> tuple[torch.Tensor, torch.Tensor]:
        assert texts.keys is not None
        return with_padding(texts.rows), with_padding(texts.keys.view(np.int64))

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return torch.from_numpy(self.flat), *on_cpu(self.texts, self.content)


@pytest.mark.parametrize("name", TOWERS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_vectors_equal_those_of_the_cpu(name, dropout):
    case = Case(name, dropout)
    (found,) = gpu_steps.vectors_step(
        case.towers.network, *case.arrays(case.texts), *case.tensors()
    )
    expected = case.towers.vectors(case.flat, case.texts, case.content)
    np.testing.assert_allclose(found.numpy()[: len(TITLES)], expected, atol=1e-6)


@pytest.mark.parametrize("name", TOWERS)
def test_vectors_at_positions_equal_those_of_the_cpu(name):
    case = Case(name)
    at = np.array([[2, -1], [0, 0]])
    (found,) = gpu_steps.vectors_at_step(
        case.towers.network, *case.arrays(case.texts), with_padding(at), *case.tensors()
    )
    expected = case.towers.vectors_at(case.flat, case.texts, case.content, at)
    np.testing.assert_allclose(found.numpy()[:2], expected, atol=1e-6)
    assert not expected[0, 1].any()


@pytest.mark.parametrize("name", TOWERS)
def test_gradients_by_the_vectors_equal_those_of_the_cpu(name):
    case = Case(name)
    cut = np.random.default_rng(0).normal(size=(len(TITLES), 4)).astype(np.float32)
    (found,) = gpu_steps.vector_gradients_step(
        case.towers.network, *case.arrays(case.texts), with_padding(cut), *case.tensors()
    )
    expected = case.towers.item_gradients(
        case.flat, case.texts, case.content, torch.from_numpy(cut)
    )
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-6)
    assert np.abs(expected.numpy()).max() > 0.1


@pytest.mark.parametrize("name", TOWERS)
def test_gradients_of_users_equal_those_of_the_cpu(name):
    case = Case(name)
    items = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    first, second, *units = gpu_steps.user_gradients_step(
        case.towers.network,
        *case.arrays(case.users),
        with_padding(case.drawn.clicked),
        with_padding(case.drawn.valid),
        with_padding(items),
        *case.tensors(),
    )
    expected = case.towers.user_gradients(case.flat, case.users, case.content, items, case.drawn)
    np.testing.assert_allclose(first.numpy(), expected.first.numpy(), atol=1e-6)
    np.testing.assert_allclose(second.numpy()[:2], expected.second.numpy(), atol=1e-6)
    assert not second.numpy()[2:].any()
    in_units = expected.in_fixed_point()
    assert (units[0] - in_units.first).abs().max() < 32  # 2e-6
    assert (units[2] - in_units.largest).abs().max() < 32


@pytest.mark.parametrize("name", TOWERS)
def test_gradients_of_both_towers_equal_those_of_the_cpu(name):
    case = Case(name)
    network = case.towers.network
    other = case.towers.start(4, "tower")
    distinct, places = distinct_items(case.drawn.items)
    items = InputRows(case.texts.source, np.maximum(distinct, 0), KEYS[: len(distinct)])
    first, second, *_ = gpu_steps.joint_gradients_step(
        network,
        *case.arrays(case.users),
        *case.arrays(items),
        with_padding(places),
        with_padding(case.drawn.clicked),
        with_padding(case.drawn.valid),
        torch.from_numpy(case.flat),
        torch.from_numpy(other),
        *on_cpu(case.users, case.content),
        *on_cpu(items, case.content),
    )
    expected = case.towers.joint_gradients(
        (case.flat, other), case.users, items, case.content, places, case.drawn
    )
    np.testing.assert_allclose(first.numpy(), expected.first.numpy(), atol=1e-6)
    np.testing.assert_allclose(second.numpy(), expected.second.numpy(), atol=1e-6)


def test_rows_are_padded_by_hand():
    rows = Rows(np.array([0, 2, 2, 5]), np.array([4, 7, 1, 2, 3], np.int32))
    padded = pad(rows, rows.items, 9)
    assert padded.shape == (3, 8)
    assert padded[:, :4].tolist() == [[4, 7, 9, 9], [9, 9, 9, 9], [1, 2, 3, 9]]


def test_few_lengths_are_left_after_rounding_up():
    lengths = [rounded_up(n) for n in range(5000)]
    assert all(n <= length for n, length in enumerate(lengths))
    assert all(length <= max(1.25 * n, n + 8) for n, length in enumerate(lengths))
    assert [rounded_up(n) for n in (0, 1, 8, 9, 200, 1450, 2049)] == [8, 8, 8, 16, 224, 1536, 2560]
    assert len(set(lengths)) < 50


def test_a_padded_text_of_words_has_no_letters_in_its_padding():
    content = item_content("words")
    assert content.items is not None
    padded = padded_texts(content.items, content, 30)
    last = len(padded.letters) - 1
    assert (padded.letters[last] == 30).all()
    assert (padded.entries[2] == last).all()  # the title without words
    assert (padded.weights[2] == 0).all()
    batch = PaddedBatch(*on_cpu(InputRows(content.items, ALL), content), None)
    assert int((batch.entries == last).sum()) == batch.entries.numel() - len(
        content.items.rows.items
    )


def test_distinct_items_are_those_of_unique():
    rng = np.random.default_rng(0)
    for low in (-1, 0):
        items = rng.integers(low, 50, (20, 3)).astype(np.int32)
        expected, places = np.unique(items, return_inverse=True)
        found, found_places = distinct_items(items)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(found_places, places.reshape(items.shape))
    none, no_places = distinct_items(np.empty((0, 3), np.int32))
    assert none.shape == (0,)
    assert no_places.shape == (0, 3)


@on_gpu
@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize("person", ["features", "titles"])
@pytest.mark.parametrize("name", ["fl-dssm", "fl-clsm", "sttfedrec-dssm", "sttfedrec-clsm"])
def test_rounds_on_a_gpu_equal_those_on_the_cpu_and_repeat(name, person, wire, people):
    """Six rounds: two launch their steps, the third records them, the others replay.

    Through the wire, they have messages.
    """
    choices = split(people, "temporal", 0.2, seed=0).training()
    changes = {"rounds": 6, "person": person, "inputs": 60, "embedding_size": 8}
    on_cpu_, on_gpu_, again = (
        play_locally(name, choices, wire=wire, device=device, users_per_round=20, **changes)
        for device in ("cpu", "cuda", "cuda")
    )
    for field in ("user_tower", "item_tower", "user_mean", "item_mean"):
        found = getattr(on_gpu_[0][-1], field)
        assert np.abs(found - getattr(on_cpu_[0][-1], field)).max() < 1e-5
        np.testing.assert_array_equal(found, getattr(again[0][-1], field))
    for found, expected in zip(on_gpu_[1], on_cpu_[1], strict=True):
        assert (found.accepted, found.bytes_up, found.bytes_down) == (
            expected.accepted,
            expected.bytes_up,
            expected.bytes_down,
        )


@on_gpu
def test_an_earlier_state_can_be_continued(people):
    """Later rounds do not overwrite what a GPU remembers of a state."""
    choices = split(people, "temporal", 0.2, seed=0).training()
    world = world_for("sttfedrec-dssm", choices, device="cuda", rounds=6, inputs=60)
    engine = LocalEngine.over(world, choices, 1)
    states = play("sttfedrec-dssm", world, engine)[0]
    again = play("sttfedrec-dssm", world, engine, since=states[3], first=4)[0]
    np.testing.assert_array_equal(again[-1].item_tower, states[-1].item_tower)
