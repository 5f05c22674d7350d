"""Disclosure rates: numbers, distributions, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import api
from coterie.algorithms.fpl import FPL
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.data.splits import Split
from coterie.data.training_set import PrivacyPreferences, TrainingSet
from coterie.errors import ConfigError, DataError
from coterie.federated.disclosure import rates
from coterie.federated.federation import NodeData
from coterie.federated.preferences import with_preferences
from coterie.types import Rows

USERS = np.arange(4000, dtype=np.int32)
FIRST_EPOCH = np.ones(4000, np.int64)


def node(n_users: int = 4000, preferences: PrivacyPreferences | None = None) -> NodeData:
    empty = Rows(np.zeros(n_users + 1, np.int64), np.empty(0, np.int32))
    return NodeData(
        np.arange(n_users, dtype=np.int32),
        TrainingSet(n_users, 5, empty, empty, None, {}, preferences),
        7,
    )


def drawn(disclosure: object) -> np.ndarray:
    return rates(FPL.of({"disclosure": disclosure}), node(), USERS, FIRST_EPOCH)


def test_a_number_is_the_rate_of_all_users():
    assert set(drawn(0.25).tolist()) == {0.25}
    assert set(drawn("0.25").tolist()) == {0.25}


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [
        ("uniform(0.2, 0.6)", 0.4, 0.4 / 12**0.5),
        ("beta(2, 6)", 0.25, (2 * 6 / (8**2 * 9)) ** 0.5),
        ("choice(0, 0.5, 1)", 0.5, (1 / 6) ** 0.5),
    ],
)
def test_a_distribution_has_its_mean_and_deviation(text, mean, deviation):
    values = drawn(text)
    assert values.mean() == pytest.approx(mean, abs=4 * deviation / 4000**0.5)
    assert values.std() == pytest.approx(deviation, rel=0.05)
    assert values.min() >= 0
    assert values.max() <= 1


def test_a_users_rate_does_not_depend_on_the_other_users():
    whole = drawn("uniform(0, 1)")
    few = rates(FPL.of({"disclosure": "uniform(0, 1)"}), node(), USERS[10:20], FIRST_EPOCH[:10])
    np.testing.assert_array_equal(few, whole[10:20])


@pytest.mark.parametrize(
    "wrong",
    [
        -0.1,
        1.5,
        "often",
        "uniform(0.5)",
        "uniform(0.6, 0.2)",
        "beta(0, 1)",
        "choice(2)",
        "choice()",
        "normal(0, 1)",
        True,
        None,
    ],
)
def test_invalid_rates_are_errors(wrong):
    with pytest.raises(ConfigError, match="disclosure"):
        FPL.of({"disclosure": wrong})


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 5), st.integers(1, 6)), st.floats(0, 1, width=32), max_size=12
    )
)
def test_the_latest_rate_applies(rate_at):
    """A user's rate in an epoch is the latest one that starts no later."""
    entries = sorted(rate_at)
    counts = np.bincount([u for u, _ in entries], minlength=6) if entries else np.zeros(6, np.int64)
    since = Rows(
        np.concatenate([[0], np.cumsum(counts)]), np.array([e for _, e in entries], np.int32)
    )
    preferences = PrivacyPreferences(
        since, np.array([rate_at[key] for key in entries], np.float32), np.empty(0, bool)
    )
    for epoch in range(1, 8):
        actual = rates(
            FPL.of({"disclosure": 0.125}),
            node(6, preferences),
            np.arange(6, dtype=np.int32),
            np.full(6, epoch),
        )
        for u in range(6):
            earlier = [e for v, e in entries if v == u and e <= epoch]
            assert actual[u] == np.float32(rate_at[u, max(earlier)] if earlier else 0.125)


INTERACTIONS = Interactions.from_columns(["ann", "ann", "bob", "bob", "cyd"], [1, 2, 2, 3, 1])


def read_preferences(
    tmp_path: Path, rows: str, name: str = "disclosure_file", suffix: str = ".csv"
) -> PrivacyPreferences:
    path = tmp_path / f"preferences{suffix}"
    path.write_text(rows)
    training = Split("own", INTERACTIONS, INTERACTIONS).training()
    settings = FPL.of({name: str(path)})
    preferences = with_preferences(
        training, settings, INTERACTIONS.user_ids, INTERACTIONS.item_ids, SILENT
    ).preferences
    assert preferences is not None
    return preferences


def test_a_file_of_rates(tmp_path):
    preferences = read_preferences(tmp_path, "user_id,disclosure\nbob,0.5\nann,0\n")
    np.testing.assert_array_equal(
        preferences.rates_at(np.arange(3), FIRST_EPOCH[:3]), np.array([0, 0.5, np.nan], np.float32)
    )


def test_rates_that_change(tmp_path):
    rows = "user_id\tepoch\tdisclosure\nann\t4\t1\nann\t1\t0.25\n"
    preferences = read_preferences(tmp_path, rows, suffix=".tsv")
    ann = np.zeros(1, int)
    by_epoch = [preferences.rates_at(ann, np.array([epoch]))[0] for epoch in (1, 3, 4, 9)]
    assert by_epoch == [0.25, 0.25, 1, 1]


def test_preferences_are_part_of_a_runs_training_fingerprint(tmp_path, people):
    """An edited file gives another fingerprint: resume and reports must notice it."""
    path = tmp_path / "pi.csv"
    path.write_text(f"user_id,disclosure\n{people.user_ids[0]},0.5\n")
    one, same = (
        api.run("pfpl+", people, epochs=1, disclosure_file=str(path)).result["trained_on"]
        for _ in range(2)
    )
    path.write_text(f"user_id,disclosure\n{people.user_ids[0]},0.25\n")
    other = api.run("pfpl+", people, epochs=1, disclosure_file=str(path)).result["trained_on"]
    assert one == same != other


def test_private_items_of_a_file(tmp_path):
    rows = "user_id,item_id\nann,2\ncyd,3\nbob,3\n"
    preferences = read_preferences(tmp_path, rows, "private_items")
    # Positives: ann 1 and 2, bob 2 and 3, cyd 1. (cyd, 3) is not among them.
    assert preferences.hidden.tolist() == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "user_id,disclosure\nann,1.5\n",
            "line 2, column 'disclosure' is '1.5'; expected a number from 0 to 1",
        ),
        ("user_id,disclosure\nann,much\n", "line 2, column 'disclosure' is 'much'"),
        ("user_id,disclosure\nann,nan\n", "line 2"),
        (
            "user_id,disclosure,epoch\nann,1,0\n",
            "column 'epoch' is '0'; expected a whole number from 1",
        ),
        ("user_id,disclosure\nann,1\nann,0.5\n", "line 3 names user ann again"),
        ("user_id,rate\nann,1\n", "Add disclosure"),
        ("user_id,disclosure\nzed,1\n", "no value of column 'user_id' is in the data .first: zed"),
        ("", "is empty; expected a header"),
        ("user_id,disclosure\n", "has a header and no rows"),
        ("user_id,disclosure\nann,0,2\n", "line 2 has 3 cells; expected 2"),
        ("user_id,disclosure\n\n\nann,7\n", "line 4, column 'disclosure' is '7'"),
        ("user_id;disclosure\nann;1\n", "separated by commas or tabs"),
        ("user_id,disclosure\nann,\0\n", "line 2"),
    ],
)
def test_faults_of_a_file_are_named(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        read_preferences(tmp_path, rows)


def test_a_run_with_a_file_of_rates(tmp_path, people):
    path = tmp_path / "pi.csv"
    path.write_text("user_id,disclosure\n" + "".join(f"{u},0\n" for u in people.user_ids))
    small = {"epochs": 2, "embedding_size": 4}
    zero, by_file, full = (
        api.run("pfpl+", people, **small | changes)
        for changes in ({"disclosure": 0}, {"disclosure_file": str(path)}, {})
    )
    np.testing.assert_array_equal(zero.model.item_rows, by_file.model.item_rows)
    assert not np.array_equal(zero.model.item_rows, full.model.item_rows)
