"""Runs that go on from the weights of another one: rows follow their ids, and nothing that is tested was trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import coterie
from coterie.errors import ConfigError, LeakError
from coterie.experiments import checkpoint
from coterie.experiments.folder import read_catalogue

FEW = {"rounds": 3, "embedding_size": 4, "clusters": 3}


def pairs(users: range, items: range, seed: int = 0, first_time: int = 0) -> pd.DataFrame:
    """Half of the items for everybody, at times of their own."""
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
    """Twenty people, thirty items."""
    old = file_of(pairs(range(20), range(30)), tmp_path / "old.csv")
    coterie.run("fedfast", old, out=tmp_path / "earlier", protocol="loo-50", candidates=5, **FEW)
    return tmp_path / "earlier"


def go_on(tmp_path: Path, earlier: Path, data: pd.DataFrame, **changes):
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
    """What there was, then what some of the same people and some new ones did with items that are partly new."""
    before = pd.read_csv(tmp_path / "old.csv")
    new = pairs(range(15, 25), range(25, 40), seed=1, first_time=10_000)
    return pd.concat([before[~before.user_id.isin(["u0", "u1"])], new]).drop_duplicates(
        ["user_id", "item_id"]
    )


def test_rows_follow_their_ids_and_others_are_new(tmp_path, earlier):
    """With hardly any step size the later run ends where it began."""
    old_ids = read_catalogue(earlier)
    old = checkpoint.state_arrays(earlier)
    try:
        go_on(
            tmp_path,
            earlier,
            later_data(tmp_path).query("user_id in ['u20', 'u21', 'u22', 'u23', 'u24']"),
        )
    except LeakError:
        pytest.fail("people who are new were never trained on")
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


def test_what_was_trained_on_may_not_be_tested(tmp_path, earlier):
    """The same data with the last item of everybody left out: what is held out now was training before."""
    frame = pd.read_csv(tmp_path / "old.csv")
    shorter = frame[frame.groupby("user_id").cumcount(ascending=False) > 0]
    with pytest.raises(
        LeakError,
        match=r"start_from=.*: 20 of 20 test interactions were training data of that run; expected none",
    ):
        go_on(tmp_path, earlier, shorter)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"embedding_size": 5}, "has user_rows of another size"),
        ({"model": "neumf"}, "has user_rows of another size"),
    ],
)
def test_another_kind_of_model_is_refused(tmp_path, earlier, changes, said):
    with pytest.raises(ConfigError, match=f"{said}; expected the same model"):
        go_on(
            tmp_path,
            earlier,
            later_data(tmp_path).query("user_id in ['u20', 'u21', 'u22']"),
            **changes,
        )


def test_tables_of_clusters_cannot_be_gone_on_from(tmp_path):
    data = pairs(range(20), range(30))
    kept = {"aggregate": "cluster", "protocol": "loo-50", "candidates": 5} | FEW
    coterie.run("fedbso", file_of(data, tmp_path / "old.csv"), out=tmp_path / "earlier", **kept)
    newer = pairs(range(30, 50), range(30), seed=3)
    with pytest.raises(ConfigError, match="aggregate=cluster keeps item rows for every cluster"):
        coterie.run(
            "fedbso",
            file_of(newer, tmp_path / "new.csv"),
            start_from=str(tmp_path / "earlier"),
            **kept,
        )


def test_devices_go_on_from_what_they_kept(tmp_path):
    """With hardly any step size a later run of FPL ends with the rows that devices and server had."""
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


def test_what_stayed_on_devices_does_not_come_to_a_server(tmp_path):
    held = {"protocol": "loo-50", "candidates": 5, "embedding_size": 4, "epochs": 2}
    coterie.run(
        "pfpl+",
        file_of(pairs(range(20), range(30)), tmp_path / "old.csv"),
        out=tmp_path / "earlier",
        **held,
    )
    newer = file_of(pairs(range(30, 50), range(30), seed=3), tmp_path / "new.csv")
    with pytest.raises(ConfigError, match="user_rows of that run stayed on people's devices"):
        coterie.run("bpr", newer, start_from=str(tmp_path / "earlier"), **held)


def test_an_algorithm_without_rows_has_nothing_to_go_on_from(tmp_path, earlier):
    newer = file_of(pairs(range(30, 50), range(30), seed=3), tmp_path / "new.csv")
    with pytest.raises(
        ConfigError, match="has no rows of users or items to go on from; expected one that has"
    ):
        coterie.run("ease", newer, protocol="loo-50", candidates=5, start_from=str(earlier))
