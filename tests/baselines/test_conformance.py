"""Conformance tests for every algorithm; a new one is tested by being in the registry."""

from __future__ import annotations

import io
from dataclasses import replace
from types import NoneType
from typing import Any, get_args

import numpy as np
import pytest
from every_algorithm import HERE

from coterie import api
from coterie.algorithms import registry
from coterie.core.progress import SILENT
from coterie.core.settings import Settings
from coterie.data.interactions import Interactions
from coterie.data.splits import Split, split
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.experiments import training as steps
from coterie.experiments.config import Experiment
from coterie.experiments.training import fit, models
from coterie.federated.trainer import Context
from coterie.models.item_based import ItemBased
from coterie.models.kinds import kind
from coterie.models.new_user import NewUser
from coterie.models.recommender import Recommender
from coterie.types import Rows

NAMES = sorted(HERE)
NOT_PERSONALISED = {"random", "popular"}
FITS_ITS_NEGATIVES = {"fedrap"}
"""Every client has an item table of its own, and fits it to the negatives that it draws: the item
that it should be recommended is among them. docs/personal.md has the figures."""
DETERMINISTIC = {"fedease", "fedslim", "popular", "ease", "slim", "userknn", "itemknn"}
FEW_STEPS = {"epochs": 3, "rounds": 3, "embedding_size": 6, "rounds_an_epoch": 20, "inputs": 100}

every_algorithm = pytest.mark.parametrize("name", NAMES)


def quick_settings(name: str, **changes: Any) -> Settings:
    """The defaults with few steps, for algorithms with steps."""
    settings = registry.algorithm(name).settings
    few = {key: value for key, value in FEW_STEPS.items() if key in settings.model_fields}
    return settings.of(few | changes)


def train(name: str, training: TrainingSet, seed: int = 0, **changes: Any) -> list[Recommender]:
    chosen = registry.algorithm(name)
    return list(models(chosen, training, quick_settings(name, **changes), Context(seed, SILENT)))


def bits(model: Recommender) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in model.arrays().items()}


@pytest.fixture(scope="module")
def parts(people) -> Split:
    return split(people, "leave-one-out", 0.2, seed=0)


@pytest.fixture(scope="module")
def training(parts) -> TrainingSet:
    return parts.training()


def tiny(histories: list[list[int]], n_items: int) -> TrainingSet:
    users = np.repeat(np.arange(len(histories)), [len(h) for h in histories]).astype(np.int32)
    rows = Rows.build(users, np.array([i for h in histories for i in h], np.int32), len(histories))
    titles = np.array([f"Number {n}" for n in range(n_items)], dtype=object)
    return TrainingSet(len(histories), n_items, rows, rows, None, item_texts=titles)


# Determinism.


@every_algorithm
def test_the_same_seed_gives_the_same_bits(name, training):
    assert [bits(m) for m in train(name, training, seed=5)] == [
        bits(m) for m in train(name, training, seed=5)
    ]


@every_algorithm
def test_another_seed_gives_another_model_unless_deterministic(name, training):
    users = np.arange(20, dtype=np.int32)
    one, other = (train(name, training, seed=s)[-1].score(users) for s in (1, 2))
    assert np.array_equal(one, other) == (name in DETERMINISTIC)


@every_algorithm
def test_the_number_of_threads_changes_nothing(name, training, monkeypatch):
    monkeypatch.setenv("COTERIE_THREADS", "1")
    only_node = bits(train(name, training)[-1])
    monkeypatch.setenv("COTERIE_THREADS", "5")
    assert bits(train(name, training)[-1]) == only_node


@every_algorithm
def test_later_steps_do_not_change_a_returned_model(name, training):
    chosen = registry.algorithm(name)
    steps = models(chosen, training, quick_settings(name), Context(0, SILENT))
    returned = [(model, bits(model)) for model in steps]
    assert all(bits(model) == before for model, before in returned)


# Models and scores.


@every_algorithm
@pytest.mark.parametrize("steps", [1, 4])
def test_there_is_one_model_per_step(name, steps, training):
    fields = registry.algorithm(name).settings.model_fields
    changes = {key: steps for key in ("epochs", "rounds") if key in fields}
    settings = quick_settings(name, **changes)
    assert len(train(name, training, **changes)) == registry.algorithm(name).steps(settings)
    assert registry.algorithm(name).steps(settings) == (steps if changes else 1)


@every_algorithm
def test_fit_gives_the_last_model(name, training):
    last = fit(registry.algorithm(name), training, quick_settings(name), Context(3, SILENT))
    assert bits(last) == bits(train(name, training, seed=3)[-1])


@every_algorithm
def test_all_scores_and_some_scores_agree_and_are_finite(name, training):
    model = train(name, training)[-1]
    rng = np.random.default_rng(0)
    users = rng.permutation(training.n_users)[:50].astype(np.int32)
    items = rng.integers(0, training.n_items, (50, 7)).astype(np.int32)
    whole = model.score(users)
    some = model.score(users, items)
    assert whole.shape == (50, training.n_items)
    assert whole.dtype == some.dtype == np.float32
    assert np.isfinite(whole).all()
    np.testing.assert_allclose(some, np.take_along_axis(whole, items, axis=1), rtol=1e-5, atol=1e-5)


@every_algorithm
def test_a_score_does_not_depend_on_the_other_users(name, training):
    model = train(name, training)[-1]
    users = np.array([9, 4, 4, 0], np.int32)
    whole = model.score(users)
    for row, user in enumerate(users):
        np.testing.assert_allclose(
            whole[row], model.score(np.array([user], np.int32))[0], rtol=1e-5, atol=1e-5
        )
    assert model.score(users[:0]).shape == (0, training.n_items)


@every_algorithm
def test_padding_among_candidates_gets_a_finite_score(name, training):
    items = np.array([[3, -1], [-1, -1]], np.int32)
    assert np.isfinite(train(name, training)[-1].score(np.array([0, 1], np.int32), items)).all()


@every_algorithm
def test_contributions_sum_to_the_score_if_item_based(name, training):
    """For every user in training, and for a new user with another history."""
    model = train(name, training)[-1]
    chosen = registry.algorithm(name)
    assert isinstance(model, ItemBased) == chosen.item_based
    if not isinstance(model, ItemBased):
        return
    items = np.arange(training.n_items, dtype=np.int32)[::-2]
    for user in range(training.n_users):
        history = model.histories().of(user)
        assert history.tolist() == training.positives.of(user).tolist()
        contributions = model.contributions(history, items)
        assert contributions.shape == (len(items), len(history))
        scores = model.score(np.array([user], np.int32), items[None])[0]
        np.testing.assert_allclose(contributions.sum(axis=1), scores, rtol=1e-4, atol=1e-6)
    assert chosen.score_new_user is not None
    history = np.array([1, 4, 9, 20], np.int32)
    scores = chosen.score_new_user(model, NewUser(items=history), quick_settings(name))
    summed = model.contributions(history, items).sum(axis=1)
    np.testing.assert_allclose(summed, scores[items], rtol=1e-4, atol=1e-6)


@every_algorithm
def test_a_model_survives_being_saved(name, training):
    """Through a file that cannot hold Python objects."""
    model = train(name, training)[-1]
    file = io.BytesIO()
    np.savez(file, **model.arrays())
    file.seek(0)
    with np.load(file, allow_pickle=False) as packed:
        back = kind(model.kind).from_arrays(dict(packed))
    users = np.arange(30, dtype=np.int32)
    assert type(back) is type(model)
    assert bits(back) == bits(model)
    np.testing.assert_array_equal(back.score(users), model.score(users))


# Training and test data.


@every_algorithm
def test_training_never_touches_the_test_part(name, parts, people):
    """The same training part with another test part gives the same model and learning curve."""
    chosen = Experiment.of(
        {"algorithm": name, "dataset": "given", **quick_settings(name).model_dump()}
    )
    rng = np.random.default_rng(0)
    free = [
        rng.choice(np.setdiff1d(np.arange(people.n_items), parts.train.rows.of(u)))
        for u in parts.test.users
    ]
    other = replace(parts, test=replace(parts.test, items=np.array(free, np.int32)))
    assert (other.test.items != parts.test.items).mean() > 0.5
    one, two = (
        steps.train(chosen, p.training(), steps.Evaluator.of(chosen, p, None), SILENT).model
        for p in (parts, other)
    )
    assert bits(one) == bits(two)


@pytest.mark.parametrize("name", ["bpr", "gmf"])
def test_the_published_leak_changes_the_model(name, parts):
    """The opposite of the test above: negatives that avoid test items change the model."""
    assert bits(train(name, parts.training())[-1]) != bits(
        train(name, parts.training(as_published=True))[-1]
    )


@every_algorithm
def test_training_does_not_write_to_its_input(name, training):
    for rows in (training.positives, training.excluded):
        rows.offsets.flags.writeable = rows.items.flags.writeable = False
    before = training.positives.items.tobytes()
    train(name, training)
    assert training.positives.items.tobytes() == before


# Unusual users and items.


@every_algorithm
@pytest.mark.parametrize(
    ("histories", "n_items"),
    [
        ([[0, 1, 2], [1], []], 5),  # a user without history, items without users
        ([[0, 1, 2], [0, 1, 2]], 3),  # every user has every item
        ([[0]], 1),  # one of each
        ([[0], [1]], 2),
    ],
)
def test_unusual_users_and_items_get_finite_scores(name, histories, n_items):
    model = train(name, tiny(histories, n_items))[-1]
    scores = model.score(np.arange(len(histories), dtype=np.int32))
    assert scores.shape == (len(histories), n_items)
    assert np.isfinite(scores).all()


# A toy dataset with a known answer.

TOY: dict[str, dict[str, Any]] = {
    "fedavg+actvsamp": {"rounds": 400, "participation": 0.3},
    "pfedrec": {
        "average": "all",
        "rounds": 100,
        "learning_rate": 0.3,
        "item_rate": 0.3,
        "start_scale": 0.3,
        "embedding_size": 8,
    },
    "gpfedrec": {
        "rounds": 150,
        "learning_rate": 0.3,
        "user_rate": 3.0,
        "item_rate": 0.1,
        "reg": 0.0,
        "local_epochs": 5,
        "batch_size": 8,
        "start_scale": 0.5,
        "embedding_size": 8,
        "layers": (16,),
    },
    "bpr": {"epochs": 150, "learning_rate": 0.1, "embedding_size": 8, "reg_user": 0.005},
    "gmf": {
        "epochs": 100,
        "learning_rate": 0.02,
        "embedding_size": 8,
        "reg": 0.005,
        "negatives": 1,
        "start_scale": 0.1,
    },
    "neumf": {
        "epochs": 30,
        "learning_rate": 0.02,
        "embedding_size": 8,
        "layers": (8,),
        "reg": 0.02,
        "negatives": 2,
    },
    "als": {"alpha": 5.0, "reg": 1.0, "embedding_size": 8},
    "ease": {"reg": 10.0},
    "multivae": {"epochs": 40, "hidden": 32, "latent": 16, "batch_size": 7, "learning_rate": 0.01},
    "lightgcn": {"epochs": 60, "embedding_size": 8, "batch_size": 32, "learning_rate": 0.02},
}
TOWERS = {
    "rounds": 100,
    "learning_rate": 0.01,
    "smoothing": 10.0,
    "decay": "none",
    "inputs": 300,
    "users_per_round": 28,
}
TOY |= {
    name: TOWERS | {"embedding_size": 16}
    for name in NAMES
    if name.startswith(("fl-", "sttfedrec-"))
}
CENTRALISED_TOWERS = {
    "epochs": 100,
    "learning_rate": 0.01,
    "smoothing": 10.0,
    "inputs": 300,
    "batch_size": 28,
    "embedding_size": 16,
}
TOY |= {"dssm": CENTRALISED_TOWERS, "clsm": CENTRALISED_TOWERS}


def checkerboard(blocks: int = 4, size: int = 7) -> Interactions:
    """User r of a block has all items of the block, item r last, which is held out."""
    columns = [
        (block * size + r, block * size + item, 1_000 if item == r else item)
        for block in range(blocks)
        for r in range(size)
        for item in range(size)
    ]
    users, items, times = zip(*columns, strict=True)
    kinds = ("harbour", "mountain", "festival", "quantum")
    titles = {str(item): f"{kinds[item // size]} number {item}" for item in range(blocks * size)}
    return Interactions.from_columns(users, items, None, times).describe_items(titles, {})


@pytest.mark.parametrize("name", sorted(set(NAMES) - NOT_PERSONALISED - FITS_ITS_NEGATIVES))
@pytest.mark.parametrize("seed", [0, 1])
def test_the_checkerboard_is_completed(name, seed):
    """Every user must get the one unseen item of their block."""
    run = api.run(name, checkerboard(), protocol="full", cutoffs=1, seed=seed, **TOY.get(name, {}))
    assert run.full["HR@1"] == 1.0
    assert [run.recommend(user, 1)[0].item for user in range(28)] == list(range(28))


# Settings.


def numeric_settings() -> list[tuple[str, str, type]]:
    found = []
    for name in NAMES:
        for key, field in registry.algorithm(name).settings.model_fields.items():
            types = set(get_args(field.annotation) or [field.annotation]) - {NoneType}
            found += [(name, key, t) for t in types if t in (int, float)]
    return found


def rejection(name: str, key: str, value: object) -> str:
    with pytest.raises(ConfigError) as error:
        registry.algorithm(name).settings.of({key: value})
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "key", "of"), numeric_settings(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_invalid_numbers_are_rejected_by_name(name, key, of):
    for value in (-1, "many", [1], float("nan"), float("inf"), *([1.5] if of is int else [])):
        message = rejection(name, key, value)
        assert message.startswith(f"setting {key!r} is {value!r}; "), message
        # Pydantic's wording of a rule, or ours.
        assert "should be" in message or "expected" in message
        assert message.endswith(f"Change it with --set {key}=VALUE.")


def test_yes_is_not_a_number():
    """`--set epochs=yes` is YAML for true, which must not become one epoch."""
    accepted = []
    for name, key, _ in numeric_settings():
        try:
            registry.algorithm(name).settings.of({key: True})
        except ConfigError:
            continue
        accepted.append(f"{name} {key}")
    assert accepted == []


@pytest.mark.parametrize(
    ("name", "key", "value", "rule"),
    [
        ("bpr", "embedding_size", 0, "greater than or equal to 1"),
        ("bpr", "embedding_size", 5_000, "less than or equal to 4096"),
        ("bpr", "epochs", 0, "greater than or equal to 1"),
        ("bpr", "learning_rate", 0, "greater than 0"),
        ("bpr", "reg_user", -0.01, "greater than or equal to 0"),
        ("gmf", "negatives", 0, "greater than or equal to 1"),
        ("gmf", "learning_rate", -0.1, "greater than 0"),
        ("als", "reg", 0, "greater than 0"),
        ("als", "alpha", -1, "greater than or equal to 0"),
        ("ease", "reg", 0, "greater than 0"),
        ("ease", "max_memory", 0, "greater than 0"),
        ("slim", "reg_l1", -0.1, "greater than or equal to 0"),
        ("slim", "max_sweeps", 0, "greater than or equal to 1"),
    ],
)
def test_the_error_names_the_rule(name, key, value, rule):
    message = rejection(name, key, value)
    assert f"setting {key!r} is {value!r}" in message
    assert rule in message


@every_algorithm
def test_an_unknown_setting_is_rejected(name):
    assert "unknown setting 'colour'" in rejection(name, "colour", "blue")


@pytest.mark.parametrize(
    ("typed", "meant"), [("learning_rat", "learning_rate"), ("embeding_size", "embedding_size")]
)
def test_an_almost_known_setting_gets_a_suggestion(typed, meant):
    assert f"Did you mean {meant!r}?" in rejection("gmf", typed, 1)


@every_algorithm
def test_every_setting_has_a_help_text(name):
    assert all(text for _, _, text in registry.algorithm(name).settings.rows())
    assert registry.algorithm(name).summary
