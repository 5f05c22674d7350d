"""Towers against slow twins that read one text after the other, in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coterie.algorithms.two_tower import TOWERS, tower
from coterie.algorithms.two_tower.batches import dropout, mix
from coterie.algorithms.two_tower.settings import FederatedTowers, TwoTowers
from coterie.algorithms.two_tower.training import InputRows, TowerOps
from coterie.baselines.towers import batches
from coterie.core import streams
from coterie.data import content, text_features
from coterie.data.text import Ragged
from coterie.data.training_set import TrainingSet
from coterie.types import Rows

torch = pytest.importorskip("torch")

TITLES = [
    "The cat",
    "A dog and the cat and the dog",
    "",
    "ox",
    "One two three four five six seven",
    "cat",
]
everything = np.arange(len(TITLES))


def items(reads: Any, n_inputs: int = 30) -> content.Content:
    none = Rows(np.zeros(1, np.int64), np.empty(0, np.int32))
    training = TrainingSet(
        0, len(TITLES), none, none, None, item_texts=np.array(TITLES, dtype=object)
    )
    return text_features.read(training, reads, n_inputs, 50, "titles")


def settings(name: str, **changes: Any) -> TwoTowers:
    return TwoTowers.of({"tower": name, "inputs": 30, "embedding_size": 4} | changes)


def taken_apart(readers: TowerOps, flat: np.ndarray) -> dict[str, np.ndarray]:
    found = {}
    at = 0
    for name, shape in readers.shapes.items():
        found[name] = flat[at : at + int(np.prod(shape))].reshape(shape).astype(np.float64)
        at += int(np.prod(shape))
    assert at == len(flat) == readers.size
    return found


def slow_dssm(
    net: dict[str, np.ndarray], read: Ragged, k: int, private_state: np.ndarray
) -> np.ndarray:
    x = np.zeros(len(net["weights1"]))
    for place in range(read.rows.offsets[k], read.rows.offsets[k + 1]):
        x[read.rows.items[place]] += read.weights[place]
    x /= max(np.linalg.norm(x), 1e-6)
    first = np.tanh(x @ net["weights1"] + net["bias1"]) * private_state[:7]
    second = np.tanh(first @ net["weights2"] + net["bias2"]) * private_state[7:]
    return np.tanh(second @ net["weights3"] + net["bias3"])


def slow_clsm(
    net: dict[str, np.ndarray], told: content.Content, k: int, private_state: np.ndarray
) -> np.ndarray:
    assert told.items is not None
    words = []
    for word in told.items.rows.of(k):
        w = np.zeros(30)
        np.add.at(w, told.letters.of(int(word)), 1)
        words.append(w)
    left, middle, right = (net["window"].reshape(30, 3, 6)[:, place] for place in range(3))
    nothing = np.zeros(30)
    around = [nothing, *words, nothing]
    sums = [
        around[p - 1] @ left + around[p] @ middle + around[p + 1] @ right
        for p in range(1, len(words) + 1)
    ]
    pooled = np.tanh((np.max(sums, axis=0) if sums else np.zeros(6)) + net["bias"]) * private_state
    return np.tanh(pooled @ net["weights"] + net["out"])


@pytest.mark.parametrize(
    "n_inputs", [30, 600]
)  # one in four is on, or one in ninety: two ways to multiply
@pytest.mark.parametrize("hiding", [0.0, 0.4])
def test_dssm_equals_its_slow_twin(hiding, n_inputs):
    chosen = settings("dssm", layers=(7, 5), dropout=hiding, inputs=n_inputs)
    told = items("bags", n_inputs)
    readers = TowerOps(chosen)
    assert told.items is not None
    flat = readers.start(3, "tower")
    keys = streams.keys(1, "rows", last=np.arange(len(TITLES)))
    private_state = dropout(keys, 12, hiding, torch.device("cpu"))
    masks = np.ones((len(TITLES), 12)) if private_state is None else private_state.numpy()
    expected = [
        slow_dssm(taken_apart(readers, flat), told.items, k, masks[k]) for k in range(len(TITLES))
    ]
    np.testing.assert_allclose(
        readers.vectors(flat, InputRows(told.items, everything, keys), told), expected, atol=1e-6
    )


@pytest.mark.parametrize("hiding", [0.0, 0.4])
def test_clsm_equals_its_slow_twin(hiding):
    chosen = settings("clsm", layers=(6,), dropout=hiding)
    told = items("words")
    readers = TowerOps(chosen)
    assert told.items is not None
    flat = readers.start(3, "tower")
    keys = streams.keys(1, "rows", last=np.arange(len(TITLES)))
    private_state = dropout(keys, 6, hiding, torch.device("cpu"))
    masks = np.ones((len(TITLES), 6)) if private_state is None else private_state.numpy()
    expected = [
        slow_clsm(taken_apart(readers, flat), told, k, masks[k]) for k in range(len(TITLES))
    ]
    np.testing.assert_allclose(
        readers.vectors(flat, InputRows(told.items, everything, keys), told), expected, atol=1e-6
    )


@pytest.mark.parametrize("name", TOWERS)
def test_gradients_are_differences_of_the_vectors(name):
    """Back-propagation through a tower against steps of a thousandth in some parameters."""
    chosen = settings(name, layers=(5,), dropout=0.3)
    told = items(tower(name).reads)
    readers = TowerOps(chosen)
    rng = np.random.default_rng(0)
    assert told.items is not None
    flat = readers.start(1, "tower")
    keys = streams.keys(1, "rows", last=np.arange(len(TITLES)))
    cut = rng.normal(size=(len(TITLES), 4)).astype(np.float32)
    gradients = readers.item_gradients(flat, InputRows(told.items, everything, keys), told, cut)
    for place in rng.choice(len(flat), 60, replace=False):
        ends = []
        for step in (1e-3, -1e-3):
            moved = flat.copy()
            moved[place] += step
            ends.append(
                float(
                    (
                        readers.vectors(
                            moved, InputRows(told.items, everything, keys), told
                        ).astype(np.float64)
                        * cut
                    ).sum()
                )
            )
        assert gradients[place] == pytest.approx((ends[0] - ends[1]) / 2e-3, abs=2e-3)


@pytest.mark.parametrize("name", TOWERS)
def test_what_a_server_remembers_of_its_tower_changes_nothing(name):
    """It may have made the same vectors before, others, or none."""
    readers = TowerOps(settings(name, dropout=0.3))
    told = items(tower(name).reads)
    assert told.items is not None
    keys = streams.keys(1, "rows", last=everything)
    cut = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    wanted = InputRows(told.items, everything, keys)
    flat = readers.start(1, "tower")
    expected = readers.item_gradients(flat, wanted, told, cut)
    others = [
        InputRows(told.items, everything, keys + np.uint64(1)),
        InputRows(told.items, everything[::-1], keys),
        InputRows(told.items, everything),
        InputRows(told.items, everything[:3], keys[:3]),
    ]
    for before in (wanted, *others):
        readers.vectors(flat, before, told)
        np.testing.assert_array_equal(readers.item_gradients(flat, wanted, told, cut), expected)
    moved = flat + np.float32(0.1)
    readers.vectors(flat, wanted, told)
    assert (readers.item_gradients(moved, wanted, told, cut) != expected).any()


def test_words_are_mixed_as_streams_mix_them():
    words = np.random.default_rng(0).integers(0, 2**64, 1000, np.uint64)
    found = mix(torch.from_numpy(words.view(np.int64))).numpy().view(np.uint64)
    np.testing.assert_array_equal(found, streams.mix_array(words))


def test_a_row_hides_the_same_units_whoever_stands_beside_it():
    keys = streams.keys(1, "rows", last=np.arange(50))
    cpu = torch.device("cpu")
    whole = dropout(keys, 37, 0.2, cpu)
    some = dropout(keys[[7, 3]], 37, 0.2, cpu)
    assert whole is not None
    assert some is not None
    assert torch.equal(whole[[7, 3]], some)
    assert set(np.round(np.unique(whole.numpy()), 4)) == {0.0, 1.25}
    assert (whole == 0).float().mean().item() == pytest.approx(0.2, abs=0.04)


def test_decay_by_hand():
    def rate(decay: str, t: int) -> float:
        return FederatedTowers.of({"decay": decay, "learning_rate": 1.0}).learning_rate_at(t)

    assert [rate("literal", t) for t in (0, 9, 10, 20)] == pytest.approx([1, 1, 0.01, 0.0001])
    assert [rate("gentle", t) for t in (0, 9, 10, 20)] == pytest.approx([1, 1, 0.99, 0.9801])
    assert rate("none", 1000) == 1


@pytest.mark.parametrize(
    ("compared", "share", "clicks"),
    [(10, 0.9, 1), (10, 0.5, 5), (10, 0.99, 1), (2, 0.1, 1), (10, 0.6, 4)],
)
def test_rho_is_the_share_of_negatives(compared, share, clicks):
    assert TwoTowers.of({"compared": compared, "negative_share": share}).clicks == clicks


def test_the_papers_megabytes():
    """Table 3: 5.42 MB up and down for both DSSM towers on MovieLens, 8.68 on the news, imply about 1.1k and 1.9k inputs."""
    for inputs, megabytes in ((1130, 5.42), (1924, 8.68)):
        towers = TowerOps(TwoTowers.of({"inputs": inputs}))
        assert 2 * 2 * 4 * towers.size / 1e6 == pytest.approx(megabytes, rel=0.01)


@pytest.mark.parametrize(
    ("n", "most", "sizes"),
    [(602, 150, {120, 121}), (6022, 50, {49, 50}), (3, 10, {3}), (0, 5, {0})],
)
def test_no_batch_is_what_is_left_over(n, most, sizes):
    found = batches(np.arange(n), most)
    assert {len(part) for part in found} == sizes
    np.testing.assert_array_equal(np.concatenate(found), np.arange(n))
