"""Disclosure rates and private items that users of nodes chose: the server never knows them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from deployment.test_server import InProcessNodes, new_federation, same, served, simulated

from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.fleet.join import NodeUsers
from coterie.deployment.node_data import roster_of
from coterie.deployment.node_private_store import NodeStore
from coterie.errors import ConfigError, DataError, UserError


@pytest.fixture
def files(people: Interactions, tmp_path: Path) -> dict[str, str]:
    """Rates of every third user, and the first item of every fifth."""
    rates = [f"{user},{0.25 * (k % 4)}" for k, user in enumerate(people.user_ids[::3])]
    (tmp_path / "rates.csv").write_text("\n".join(["user_id,disclosure", *rates]))
    firsts = people.rows.offsets[:-1][::5]
    pairs = [
        f"{people.user_ids[people.users[k]]},{people.item_ids[people.items[k]]}" for k in firsts
    ]
    (tmp_path / "private.csv").write_text("\n".join(["user_id,item_id", *pairs]))
    return {
        "disclosure_file": str(tmp_path / "rates.csv"),
        "private_items": str(tmp_path / "private.csv"),
    }


def prefer(paths: list[Path], files: dict[str, str]) -> None:
    for path in paths:
        with closing(NodeStore.open(path)) as store:
            store.put_meta(**files)


def test_preferences_stay_on_nodes_and_count(files, people, tmp_path):
    """The model is that of a simulation with the files, which only nodes have."""
    terms, paths = new_federation("pfpl+", people, tmp_path, 2, disclosure=0.5)
    prefer(paths, files)
    point = served(tmp_path, terms, InProcessNodes(paths))
    known = FederationTerms(terms.config | files, terms.items, terms.run)
    assert same(point.state, simulated(known, people))
    assert not same(point.state, simulated(terms, people))
    assert "rates.csv" not in (tmp_path / "members.json").read_text()


def test_an_algorithm_without_rates_is_refused(files, people, tmp_path):
    terms, paths = new_federation("fedfast", people, tmp_path, 2)
    prefer(paths, files)
    with (
        closing(NodeStore.open(paths[0])) as store,
        pytest.raises(ConfigError, match="fedfast has no disclosure rates"),
    ):
        roster_of(terms, store)


def test_files_are_checked_when_a_node_joins(files, people, tmp_path):
    (tmp_path / "mine.csv").write_text("user_id,item_id,timestamp\n1,2,3\n1,3,4\n")
    users = NodeUsers(tmp_path / "mine.csv", ReadOptions(), disclosure_file=tmp_path / "none.csv")
    with closing(NodeStore.create(tmp_path / "mine.db")) as store:
        with pytest.raises(UserError, match=r"none\.csv"):
            users.read()
        (tmp_path / "none.csv").write_text("user_id,disclosure\n1,2.5\n")
        with pytest.raises(DataError, match=r"'2\.5'; expected a number from 0 to 1"):
            users.read()
        users = replace(users, disclosure_file=tmp_path / "rates.csv")
        users.put(store, users.read())
        assert store.meta("disclosure_file") == files["disclosure_file"]
        users = replace(users, disclosure_file=None)
        users.put(store, users.read())
        assert store.meta("disclosure_file") == ""
