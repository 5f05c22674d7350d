"""Towers equal slow twins that embed one text after the other, in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.algorithms.two_tower import TOWERS, tower
from coterie.algorithms.two_tower.batches import InputRows, dropout, mix
from coterie.algorithms.two_tower.settings import FederatedTowers, TwoTowers
from coterie.algorithms.two_tower.training import TowerOps
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
ALL = np.arange(len(TITLES))


def item_content(reads: content.Reading, n_inputs: int = 30) -> content.Content:
    none = Rows(np.zeros(1, np.int64), np.empty(0, np.int32))
    training = TrainingSet(
        0, len(TITLES), none, none, None, item_texts=np.array(TITLES, dtype=object)
    )
    return text_features.read(training, reads, n_inputs, 50, "titles")


def settings(name: str, **changes: object) -> TwoTowers:
    return TwoTowers.of({"tower": name, "inputs": 30, "embedding_size": 4} | changes)


def by_name(towers: TowerOps, flat: np.ndarray) -> dict[str, np.ndarray]:
    parts = {}
    at = 0
    for name, shape in towers.shapes.items():
        parts[name] = flat[at : at + int(np.prod(shape))].reshape(shape).astype(np.float64)
        at += int(np.prod(shape))
    assert at == len(flat) == towers.size
    return parts


def slow_dssm(net: dict[str, np.ndarray], texts: Ragged, k: int, mask: np.ndarray) -> np.ndarray:
    x = np.zeros(len(net["weights1"]))
    for place in range(texts.rows.offsets[k], texts.rows.offsets[k + 1]):
        x[texts.rows.items[place]] += texts.weights[place]
    x /= max(np.linalg.norm(x), 1e-6)
    first = np.tanh(x @ net["weights1"] + net["bias1"]) * mask[:7]
    second = np.tanh(first @ net["weights2"] + net["bias2"]) * mask[7:]
    return np.tanh(second @ net["weights3"] + net["bias3"])


def slow_clsm(
    net: dict[str, np.ndarray], texts: content.Content, k: int, mask: np.ndarray
) -> np.ndarray:
    assert texts.items is not None
    words = []
    for word in texts.items.rows.of(k):
        w = np.zeros(30)
        np.add.at(w, texts.letters.of(int(word)), 1)
        words.append(w)
    left, middle, right = (net["window"].reshape(30, 3, 6)[:, place] for place in range(3))
    nothing = np.zeros(30)
    around = [nothing, *words, nothing]
    sums = [
        around[p - 1] @ left + around[p] @ middle + around[p + 1] @ right
        for p in range(1, len(words) + 1)
    ]
    pooled = np.tanh((np.max(sums, axis=0) if sums else np.zeros(6)) + net["bias"]) * mask
    return np.tanh(pooled @ net["weights"] + net["out"])


# One input in four is non-zero, or one in ninety: a dense and a sparse product.
@pytest.mark.parametrize("n_inputs", [30, 600])
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_dssm_equals_its_slow_twin(share, n_inputs):
    chosen = settings("dssm", layers=(7, 5), dropout=share, inputs=n_inputs)
    texts = item_content("bags", n_inputs)
    towers = TowerOps(chosen)
    assert texts.items is not None
    flat = towers.start(3, "tower")
    keys = streams.keys(1, "rows", last=np.arange(len(TITLES)))
    mask = dropout(keys, 12, share)
    masks = np.ones((len(TITLES), 12)) if mask is None else mask.numpy()
    expected = [
        slow_dssm(by_name(towers, flat), texts.items, k, masks[k]) for k in range(len(TITLES))
    ]
    np.testing.assert_allclose(
        towers.vectors(flat, InputRows(texts.items, ALL, keys), texts), expected, atol=1e-6
    )


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_clsm_equals_its_slow_twin(share):
    chosen = settings("clsm", layers=(6,), dropout=share)
    texts = item_content("words")
    towers = TowerOps(chosen)
    assert texts.items is not None
    flat = towers.start(3, "tower")
    keys = streams.keys(1, "rows", last=np.arange(len(TITLES)))
    mask = dropout(keys, 6, share)
    masks = np.ones((len(TITLES), 6)) if mask is None else mask.numpy()
    expected = [slow_clsm(by_name(towers, flat), texts, k, masks[k]) for k in range(len(TITLES))]
    np.testing.assert_allclose(
        towers.vectors(flat, InputRows(texts.items, ALL, keys), texts), expected, atol=1e-6
    )


@pytest.mark.parametrize("name", TOWERS)
def test_gradients_are_differences_of_the_vectors(name):
    """Back-propagation equals central differences with steps of 1e-3 in some parameters."""
    chosen = settings(name, layers=(5,), dropout=0.3)
    texts = item_content(tower(name).reads)
    towers = TowerOps(chosen)
    rng = np.random.default_rng(0)
    assert texts.items is not None
    flat = towers.start(1, "tower")
    keys = streams.keys(1, "rows", last=np.arange(len(TITLES)))
    cut = rng.normal(size=(len(TITLES), 4)).astype(np.float32)
    by_output = torch.from_numpy(cut)
    gradients = towers.item_gradients(flat, InputRows(texts.items, ALL, keys), texts, by_output)
    for place in rng.choice(len(flat), 60, replace=False):
        ends = []
        for step in (1e-3, -1e-3):
            moved = flat.copy()
            moved[place] += step
            vectors = towers.vectors(moved, InputRows(texts.items, ALL, keys), texts)
            ends.append(float((vectors.astype(np.float64) * cut).sum()))
        assert gradients[place].item() == pytest.approx((ends[0] - ends[1]) / 2e-3, abs=2e-3)


@pytest.mark.parametrize("name", TOWERS)
def test_the_cached_forward_pass_does_not_change_gradients(name):
    """The last forward pass may be the same, another, or none."""
    towers = TowerOps(settings(name, dropout=0.3))
    texts = item_content(tower(name).reads)
    assert texts.items is not None
    keys = streams.keys(1, "rows", last=ALL)
    cut = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32))
    wanted = InputRows(texts.items, ALL, keys)
    flat = towers.start(1, "tower")
    expected = towers.item_gradients(flat, wanted, texts, cut)
    others = [
        InputRows(texts.items, ALL, keys + np.uint64(1)),
        InputRows(texts.items, ALL[::-1], keys),
        InputRows(texts.items, ALL),
        InputRows(texts.items, ALL[:3], keys[:3]),
    ]
    for before in (wanted, *others):
        towers.vectors(flat, before, texts)
        np.testing.assert_array_equal(towers.item_gradients(flat, wanted, texts, cut), expected)
    moved = flat + np.float32(0.1)
    towers.vectors(flat, wanted, texts)
    assert (towers.item_gradients(moved, wanted, texts, cut) != expected).any()


def test_words_are_mixed_as_streams_mix_them():
    words = np.random.default_rng(0).integers(0, 2**64, 1000, np.uint64)
    found = mix(torch.from_numpy(words.view(np.int64))).numpy().view(np.uint64)
    np.testing.assert_array_equal(found, streams.mix_array(words))


def test_the_dropout_of_a_row_does_not_depend_on_the_batch():
    keys = streams.keys(1, "rows", last=np.arange(50))
    whole = dropout(keys, 37, 0.2)
    some = dropout(keys[[7, 3]], 37, 0.2)
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
    """Table 3: both DSSM towers take 5.42 MB up and down on MovieLens, and 8.68 MB on the news.

    That implies about 1,100 and 1,900 inputs.
    """
    for inputs, megabytes in ((1130, 5.42), (1924, 8.68)):
        towers = TowerOps(TwoTowers.of({"inputs": inputs}))
        assert 2 * 2 * 4 * towers.size / 1e6 == pytest.approx(megabytes, rel=0.01)


@pytest.mark.parametrize(
    ("n", "most", "sizes"),
    [(602, 150, {120, 121}), (6022, 50, {49, 50}), (3, 10, {3}), (0, 5, {0})],
)
def test_batches_have_about_equal_sizes(n, most, sizes):
    found = batches(np.arange(n), most)
    assert {len(part) for part in found} == sizes
    np.testing.assert_array_equal(np.concatenate(found), np.arange(n))
