"""A node's store: only its owner reads it, two generations of what devices keep, and what is forgotten is gone from the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data.interactions import Interactions
from coterie.deployment.node_store import NEVER, NodeStore
from coterie.errors import RunError, UnknownName

WHO = ["ann", "bob", "cem"]


@pytest.fixture
def store(tmp_path: Path) -> NodeStore:
    made = NodeStore.create(tmp_path / "node.db")
    made.put_interactions(
        Interactions.from_columns(
            ["ann", "ann", "bob", "cem"],
            ["x", "y", "y", "secret-item"],
            [5, 3, 4, 1],
            [10, 20, 30, 40],
        )
    )
    return made


def rows(*numbers: float) -> dict[str, np.ndarray]:
    return {"user_rows": np.array([[n, -n] for n in numbers], np.float32)}


def first(store: NodeStore) -> list[float]:
    return store.private_state(WHO)["user_rows"][:, 0].tolist()


def test_only_the_owner_can_read_it(store: NodeStore):
    assert store.path.stat().st_mode & 0o777 == 0o600
    store.path.chmod(0o640)
    with pytest.raises(RunError, match="can be read by others \\(mode 640\\); expected 600"):
        NodeStore.open(store.path)


def test_it_outlives_the_process(store: NodeStore):
    store.begin(WHO, rows(1, 2, 3))
    store.put_numbers({"cem": 7, "ann": 2})
    store.close()
    again = NodeStore.open(store.path)
    assert again.users() == WHO
    assert again.numbers() == {2: "ann", 7: "cem"}
    assert first(again) == [1, 2, 3]
    data = again.interactions()
    assert sorted(
        zip(
            data.user_ids[data.users],
            data.item_ids[data.items],
            data.ratings,
            data.times,
            strict=True,
        )
    ) == [
        ("ann", "x", 5, 10),
        ("ann", "y", 3, 20),
        ("bob", "y", 4, 30),
        ("cem", "secret-item", 1, 40),
    ]


def test_what_was_made_counts_once_it_was_accepted(store: NodeStore):
    store.begin(WHO, rows(1, 2, 3))
    store.made(WHO, rows(10, 20, 30), tag=5)
    assert first(store) == [1, 2, 3]
    assert store.settle(WHO, np.array([5, NEVER, 5])).all()
    assert first(store) == [10, 2, 30]


def test_an_exchange_can_be_played_again(store: NodeStore):
    """The server crashed before it wrote down that it had accepted anything: it asks for the same round again."""
    store.begin(WHO, rows(1, 2, 3))
    store.made(WHO, rows(10, 20, 30), tag=5)
    assert store.settle(WHO, np.full(3, NEVER)).all()
    assert first(store) == [1, 2, 3]
    store.made(WHO, rows(11, 21, 31), tag=5)
    assert store.settle(WHO, np.full(3, 5)).all()
    assert first(store) == [11, 21, 31]
    assert store.settle(WHO, np.full(3, 5)).all()
    assert first(store) == [11, 21, 31]


def test_a_store_from_an_earlier_day_is_noticed(store: NodeStore):
    store.begin(WHO, rows(1, 2, 3))
    assert store.settle(WHO, np.array([NEVER, 9, NEVER])).tolist() == [True, False, True]


def test_nobodys_beginning_is_written_over(store: NodeStore):
    store.begin(WHO, rows(1, 2, 3))
    store.begin(WHO, rows(7, 7, 7))
    assert first(store) == [1, 2, 3]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_any_course_of_accepted_lost_and_repeated_exchanges(tmp_path_factory, course):
    """A model of one person: `heard` says that the server accepted, `again` that the exchange was played twice."""
    store = NodeStore.create(tmp_path_factory.mktemp("store") / "node.db")
    store.put_interactions(Interactions.from_columns(["ann"], ["x"]))
    store.begin(["ann"], rows(0))
    counts = 0.0
    last = NEVER
    for tag, (heard, again) in enumerate(course):
        for _ in range(1 + again):
            assert store.settle(["ann"], np.array([last])).all()
            now = float(store.private_state(["ann"])["user_rows"][0, 0])
            assert now == counts
            store.made(["ann"], rows(now + tag + 1), tag)
        if heard:
            counts = counts + tag + 1
            last = tag
    store.settle(["ann"], np.array([last]))
    assert float(store.private_state(["ann"])["user_rows"][0, 0]) == counts


def test_all_of_a_person_can_be_had(store: NodeStore):
    store.begin(WHO, rows(1, 2, 3))
    assert store.export("ann") == {
        "user_id": "ann",
        "interactions": [
            {"item_id": "x", "rating": 5.0, "timestamp": 10},
            {"item_id": "y", "rating": 3.0, "timestamp": 20},
        ],
        "private_state": {"user_rows": [1.0, -1.0]},
        "from_server": {},
    }


def test_what_is_forgotten_is_gone_from_the_file(store: NodeStore):
    store.begin(WHO, rows(1, 2, 3))
    store.made(WHO, rows(4, 5, 6), tag=1)
    assert b"secret-item" in store.path.read_bytes()
    store.forget("cem")
    store.close()
    left = b"".join(path.read_bytes() for path in store.path.parent.iterdir())
    assert b"secret-item" not in left
    assert b"cem" not in left
    assert NodeStore.open(store.path).users() == ["ann", "bob"]


def test_nobody_who_is_not_there(store: NodeStore):
    for ask in (store.export, store.forget):
        with pytest.raises(UnknownName, match="dave"):
            ask("dave")


def test_a_file_replaces_what_was_known_about_its_people(store: NodeStore):
    store.put_interactions(Interactions.from_columns(["bob"], ["z"], [1], [50]))
    assert [line["item_id"] for line in store.export("bob")["interactions"]] == ["z"]
    assert len(store.export("ann")["interactions"]) == 2


def test_what_is_no_store(tmp_path: Path):
    with pytest.raises(RunError, match="does not exist"):
        NodeStore.open(tmp_path / "nowhere.db")
    other = tmp_path / "other.db"
    other.write_bytes(b"this is no database " * 100)
    other.chmod(0o600)
    with pytest.raises(RunError, match="is no store of a node"):
        NodeStore.open(other)
    with pytest.raises(RunError, match="exists already"):
        NodeStore.create(other)


def test_a_process_that_is_late_brings_nobody_back(store: NodeStore):
    """Somebody was forgotten while a message was answered."""
    store.begin(WHO, rows(1, 2, 3))
    store.forget("bob")
    store.made(WHO, rows(4, 5, 6), tag=1)
    store.put_model(WHO, rows(7, 8, 9), b"model")
    assert store.settle(["ann", "cem"], np.array([1, 1])).all()
    assert store.private_state(["ann", "cem"])["user_rows"][:, 0].tolist() == [4, 6]
    assert store.given("bob") == {}
    assert store.given("cem")["user_rows"].tolist() == [9, -9]
    for table in ("kept", "given", "did"):
        assert not store.connection.execute(
            f"select 1 from {table} where person = 'bob'"
        ).fetchall()


def test_what_is_no_store_at_all(tmp_path: Path):
    table = tmp_path / "mine.csv"
    table.write_text("user_id,item_id")
    with pytest.raises(RunError, match="is no store of a node"):
        NodeStore.open(table)
