"""Warm starts: rows follow their ids, and no test interaction was in training before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import coterie
from coterie.errors import ConfigError, LeakError
from coterie.experiments import checkpoint
from coterie.experiments.run_folder import read_catalogue

FEW = {"rounds": 3, "embedding_size": 4, "clusters": 3}


def pairs(users: range, items: range, seed: int = 0, first_time: int = 0) -> pd.DataFrame:
    """Half of the items for every user, each at its own time."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"u{u}", f"i{i}")
        for u in users
        for i in rng.permutation(items)[: len(items) // 2].tolist()
    ]
    return pd.DataFrame(rows, columns=["user_id", "item_id"]).assign(
        timestamp=first_time + np.arange(len(rows))
    )


def file_of(frame: pd.DataFrame, place: Path) -> str:
    frame.to_csv(place, index=False)
    return str(place)


@pytest.fixture
def earlier(tmp_path) -> Path:
    """Twenty users, thirty items."""
    old = file_of(pairs(range(20), range(30)), tmp_path / "old.csv")
    coterie.run("fedfast", old, out=tmp_path / "earlier", protocol="loo-50", candidates=5, **FEW)
    return tmp_path / "earlier"


def start_later(tmp_path: Path, earlier: Path, data: pd.DataFrame, **changes):
    return coterie.run(
        "fedfast",
        file_of(data, tmp_path / "new.csv"),
        out=tmp_path / "later",
        protocol="loo-50",
        candidates=5,
        start_from=str(earlier),
        **(FEW | {"learning_rate": 1e-9} | changes),
    )


def later_data(tmp_path: Path) -> pd.DataFrame:
    """The old data without two users, then data of old and new users with old and new items."""
    before = pd.read_csv(tmp_path / "old.csv")
    new = pairs(range(15, 25), range(25, 40), seed=1, first_time=10_000)
    return pd.concat([before[~before.user_id.isin(["u0", "u1"])], new]).drop_duplicates(
        ["user_id", "item_id"]
    )


def test_rows_follow_their_ids_and_others_are_new(tmp_path, earlier):
    """With a tiny learning rate the later run ends where it began."""
    old_ids = read_catalogue(earlier)
    old = checkpoint.state_arrays(earlier)
    try:
        start_later(
            tmp_path,
            earlier,
            later_data(tmp_path).query("user_id in ['u20', 'u21', 'u22', 'u23', 'u24']"),
        )
    except LeakError:
        pytest.fail("new users were not in training")
    new_ids = read_catalogue(tmp_path / "later")
    new = checkpoint.state_arrays(tmp_path / "later")
    known = {str(i): n for n, i in enumerate(old_ids.item_ids)}
    shared = 0
    for n, item in enumerate(new_ids.item_ids):
        if str(item) in known:
            shared += 1
            np.testing.assert_allclose(
                new["item_rows"][n], old["item_rows"][known[str(item)]], atol=1e-5
            )
    assert 0 < shared < len(new_ids.item_ids)
    np.testing.assert_allclose(new["dense"], old["dense"], atol=1e-5)


def test_training_data_of_the_earlier_run_may_not_be_tested(tmp_path, earlier):
    """The same data without the last item of every user: its test items were in training."""
    frame = pd.read_csv(tmp_path / "old.csv")
    shorter = frame[frame.groupby("user_id").cumcount(ascending=False) > 0]
    with pytest.raises(
        LeakError,
        match=r"start_from=.*: 20 of 20 test interactions were training data of that run",
    ):
        start_later(tmp_path, earlier, shorter)


@pytest.mark.parametrize(
    "changes", [{"embedding_size": 5}, {"model": "neumf"}], ids=["another size", "another model"]
)
def test_another_kind_of_model_is_refused(tmp_path, earlier, changes):
    complaint = "user_rows has another size in that run; expected the same model"
    with pytest.raises(ConfigError, match=complaint):
        start_later(
            tmp_path,
            earlier,
            later_data(tmp_path).query("user_id in ['u20', 'u21', 'u22']"),
            **changes,
        )


def test_tables_per_cluster_cannot_be_reused(tmp_path):
    data = pairs(range(20), range(30))
    settings = {"aggregate": "cluster", "protocol": "loo-50", "candidates": 5} | FEW
    coterie.run("fedbso", file_of(data, tmp_path / "old.csv"), out=tmp_path / "earlier", **settings)
    newer = pairs(range(30, 50), range(30), seed=3)
    with pytest.raises(ConfigError, match="aggregate=cluster has item rows for every cluster"):
        coterie.run(
            "fedbso",
            file_of(newer, tmp_path / "new.csv"),
            start_from=str(tmp_path / "earlier"),
            **settings,
        )


def test_private_client_state_is_reused(tmp_path):
    """With a tiny learning rate a later run of FPL ends with the rows of the first run."""
    held = {"protocol": "loo-50", "candidates": 5, "embedding_size": 4, "epochs": 2}
    old = pairs(range(20), range(30))
    first = coterie.run(
        "pfpl+", file_of(old, tmp_path / "old.csv"), out=tmp_path / "earlier", **held
    )
    later = pairs(range(10, 20), range(30, 40), seed=2, first_time=10_000)
    whole = pd.concat([old, later])
    second = coterie.run(
        "pfpl+",
        file_of(whole, tmp_path / "new.csv"),
        start_from=str(tmp_path / "earlier"),
        learning_rate=1e-9,
        **held | {"split": "global-time", "fraction": 0.1},
    )
    np.testing.assert_allclose(second.model.user_rows, first.model.user_rows, atol=1e-6)
    known = np.isin(second.catalogue.item_ids, first.catalogue.item_ids)
    np.testing.assert_allclose(second.model.item_rows[known], first.model.item_rows, atol=1e-6)


def test_private_client_state_is_not_sent_to_a_server(tmp_path):
    held = {"protocol": "loo-50", "candidates": 5, "embedding_size": 4, "epochs": 2}
    coterie.run(
        "pfpl+",
        file_of(pairs(range(20), range(30)), tmp_path / "old.csv"),
        out=tmp_path / "earlier",
        **held,
    )
    newer = file_of(pairs(range(30, 50), range(30), seed=3), tmp_path / "new.csv")
    with pytest.raises(ConfigError, match="user_rows is private client state of that run"):
        coterie.run("bpr", newer, start_from=str(tmp_path / "earlier"), **held)


def test_an_algorithm_without_rows_cannot_be_warm_started(tmp_path, earlier):
    newer = file_of(pairs(range(30, 50), range(30), seed=3), tmp_path / "new.csv")
    with pytest.raises(
        ConfigError, match="has no user or item rows to start from; expected one that has them"
    ):
        coterie.run("ease", newer, protocol="loo-50", candidates=5, start_from=str(earlier))
