"""A node's policy: its file, what its owner sees, and where it is kept."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from deployment.test_signing_keys import Log

from coterie.data.options import ReadOptions
from coterie.deployment.fleet.join import NodeUsers, confirm_policy
from coterie.deployment.node_policy import (
    NodePolicy,
    describe_policy,
    policy_of,
    put_policy,
    read_policy,
)
from coterie.deployment.node_private_store import NodeStore
from coterie.errors import ConfigError, StoreError, UnknownName

STRICT = """
algorithms: [fedfast, fcf]
secure_aggregation: secagg
smallest_group: 20
epsilon_limit: 5
questions_an_hour: 1000
questions_a_day: 5000
replays_a_day: 0
evaluation: no
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text)
    return path


def test_a_file_has_the_rules(tmp_path):
    policy = read_policy(written(tmp_path, STRICT))
    assert policy == NodePolicy(
        algorithms=("fedfast", "fcf"),
        secure_aggregation="secagg",
        smallest_group=20,
        epsilon_limit=5.0,
        questions_an_hour=1000,
        questions_a_day=5000,
        replays_a_day=0,
        evaluation=False,
    )


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("algorithm: [fcf]", ConfigError, "unknown setting 'algorithm'. Did you mean 'algorithms'"),
        ("algorithms: [fcv]", UnknownName, r"fcv.* in .*policy\.yaml"),
        ("smallest_group: 2", ConfigError, r"policy\.yaml: .*'smallest_group' is 2; .*Change it"),
        (
            "algorithms: fcf",
            ConfigError,
            r"'algorithms' is 'fcf'; expected a list, such as \[fcf\]",
        ),
        (
            "",
            ConfigError,
            r"policy\.yaml: is empty; expected keys and values such as 'rollbacks: 3'",
        ),
        ("epsilon_limit: 0", ConfigError, "'epsilon_limit' is 0"),
        ("questions_an_hour: yes", ConfigError, "'questions_an_hour' is True"),
        ("- fcf", ConfigError, "is a list"),
    ],
)
def test_mistakes_in_a_file_are_named(text, error, message, tmp_path):
    with pytest.raises(error, match=message):
        read_policy(written(tmp_path, text))


def test_a_policy_in_plain_words(tmp_path):
    lines = "\n".join(describe_policy(read_policy(written(tmp_path, STRICT))))
    assert "trains fedfast, fcf." in lines
    assert "with secagg only" in lines
    assert "at least 20 clients" in lines
    assert "at most epsilon 5 over all runs" in lines
    assert "1,000 messages an hour and 5,000 a day" in lines
    assert "No metrics are reported." in lines
    usual = "\n".join(describe_policy(NodePolicy()))
    assert "any algorithm" in usual
    assert "a server may read them" in usual
    assert "sums over at least 10 users" in usual


def test_the_owner_sees_the_policy_and_confirms_it(tmp_path):
    """That of the file; without a file that of the store; else the defaults."""
    table = tmp_path / "mine.csv"
    table.write_text("user_id,item_id\nann,x\nann,y\n")
    path = tmp_path / "mine.db"
    strict = read_policy(written(tmp_path, STRICT))
    log = Log()
    assert confirm_policy(None, path, log, lambda question: True)
    assert log.lines == [f"policy: {line}" for line in describe_policy(NodePolicy())]
    with closing(NodeStore.create(path)) as store:
        for users in (
            NodeUsers(table, ReadOptions(), policy=strict),
            NodeUsers(table, ReadOptions()),
        ):
            users.put(store, users.read())
        assert policy_of(store) == strict
    log = Log()
    assert not confirm_policy(
        None, path, log, lambda question: question != "Join with this policy?"
    )
    assert log.lines[:-1] == [f"policy: {line}" for line in describe_policy(strict)]
    assert log.lines[-1].startswith("not joined. For other rules,")


def test_a_damaged_policy_stops_the_node(tmp_path):
    """The defaults could allow more than the owner did."""
    with closing(NodeStore.create(tmp_path / "mine.db")) as store:
        put_policy(store, NodePolicy(algorithms=("fcf",)))
        store.put_meta(policy='{"algorithms": 5}')
        with pytest.raises(StoreError, match="its policy cannot be read"):
            policy_of(store)


@pytest.mark.parametrize("limit", ["3.5", ""])
def test_limits_of_an_earlier_store_become_its_policy(limit, tmp_path):
    path = tmp_path / "mine.db"
    with closing(NodeStore.create(path)) as store:
        for table in ("asked", "answered", "evaluated", "snapshot"):
            store.connection.execute(f"drop table {table}")
        store.put_meta(epsilon_limit=limit, least_group="25")
        store.connection.execute("pragma user_version = 3")
    with closing(NodeStore.open(path)) as store:
        expected = NodePolicy(
            epsilon_limit=float(limit) if limit else None, smallest_evaluation_group=25
        )
        assert policy_of(store) == expected
        assert store.meta("least_group") is None
        tables = {name for (name,) in store.connection.execute("select name from sqlite_master")}
        assert {"asked", "answered", "evaluated"} <= tables


def test_the_page_has_every_rule():
    page = Path("docs/policy.md").read_text()
    for name, default, _ in NodePolicy.rows():
        row = re.search(rf"^\| `{name}` \| ([^|]*) \|", page, re.MULTILINE)
        assert row is not None, name
        assert row[1].replace(",", "") == (default or "none"), name
