"""Limits of a key: what a malicious node may claim, send and report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from deployment.test_server import InProcessNodes, new_federation, served

from coterie.deployment.enrolment import Roster
from coterie.deployment.membership import describe_refused
from coterie.deployment.node_evaluation import NodeMetrics, contributions
from coterie.deployment.node_limits import (
    MESSAGE_BYTES,
    NodeLimits,
    OverLimit,
    reply_bytes_a_user,
    reply_limits,
)
from coterie.deployment.node_service import ENROL, TRAIN
from coterie.deployment.private_terms import without_users
from coterie.deployment.server_config import ServerConfig
from coterie.errors import NoQuorum

LIMITS = ServerConfig(items="items.csv").limits


class Claiming(InProcessNodes):
    """Keyed nodes; the last one sends another roster than its own."""

    keyed = True

    def __init__(self, paths: list[Path], roster: Roster) -> None:
        super().__init__(paths)
        self.roster = roster

    def _call(self, kind: str, node: int, data: bytes) -> bytes | None:
        if kind == ENROL and node == len(self.paths) - 1:
            return self.roster.to_json().encode()
        return super()._call(kind, node, data)


def invented(n: int, positives: int) -> Roster:
    return Roster([f"invented {k}" for k in range(n)], [True] * n, positives)


@pytest.mark.parametrize(
    ("roster", "reason", "text"),
    [
        (
            invented(20_000, 20_000),
            "too many users",
            r"it lists 20,000 users; expected at most 10,000 \(most_users_a_node\)",
        ),
        (
            invented(3, 2_000_000),
            "too many interactions",
            "it claims 2,000,000 interactions of 3 users; expected at most 30 of each",
        ),
        (invented(3, 1 << 39), "too many interactions", "it claims 549,755,813,888 interactions"),
    ],
)
def test_a_roster_that_claims_too_much_is_refused(roster, reason, text, few_people, tmp_path):
    """The federation goes on without that node, and the refusal names its key and the remedy."""
    terms, paths = new_federation("pfpl+", few_people, tmp_path, 2, epochs=1, rounds_an_epoch=1)
    point = served(tmp_path, terms, Claiming([*paths, paths[0]], roster), least_nodes=2)
    assert point.history.updates > 0
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["refused"][reason] >= 1
    said = status["last_refused"][reason]
    assert said.startswith("node 2 with key SHA256:2, 20")
    with pytest.raises(OverLimit, match=text):
        LIMITS.check("2", roster, len(terms.items))
    assert "revoke its key" in said


def test_limits_are_those_of_the_key():
    roster = invented(50, 50)
    limits = NodeLimits(users=10, users_of={"ann": 50}, positives_a_user=100)
    assert limits.check("ann", roster, 100) is roster
    with pytest.raises(OverLimit, match=r"set most_users_of: \{bob: 50\} in the server's file"):
        limits.check("bob", roster, 100)
    assert limits.roster_bytes("ann") - limits.roster_bytes("bob") == 40 * 512
    with pytest.raises(
        OverLimit, match="claims 5,001 interactions of 50 users; expected at most 1"
    ):
        limits.check("ann", replace(roster, positives=5_001), 1_000)


def test_a_node_that_claims_anothers_user_is_named_to_the_owner(few_people, tmp_path):
    """The first node keeps the user. The refusal of the other one says who has it, and the way."""
    terms, paths = new_federation("fedfast", few_people, tmp_path, 2, rounds=1)
    thief = Roster([str(few_people.user_ids[0])], [True], 1)
    nodes = Claiming([paths[0], paths[1]], thief)
    with pytest.raises(
        NoQuorum,
        match=r"node 1 with key SHA256:1, .*of node 0 with key SHA256:0; .*"
        r"coterie federation transfer FOLDER --from 0 --to 1; set prefixed_ids",
    ):
        served(tmp_path, terms, nodes, least_nodes=2, wait_seconds=0.3)


def test_with_prefixes_no_node_claims_the_users_of_another():
    limits = NodeLimits(users=10, positives_a_user=10, prefixed=True)
    limits.check("ann", Roster(["ann-1"], [True], 1), 10)
    with pytest.raises(OverLimit, match="lists user ann-1; expected ids that begin with mallory-"):
        limits.check("mallory", Roster(["ann-1"], [True], 1), 10)


def test_refusals_without_details_are_counts():
    assert (
        describe_refused({"malformed": 2}, {"malformed": "node 1, 2026"})
        == "Refused: malformed: 2. "
    )


def test_replies_are_as_large_as_updates_of_the_users(few_people, tmp_path):
    """Twenty users, with a row for each of 30 items: kilobytes, not the 256 MB of before."""
    terms, paths = new_federation("fedfast", few_people, tmp_path, 2, rounds=1)
    largest: dict[str, int] = {}

    class Measured(InProcessNodes):
        def send(
            self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
        ) -> dict[str, bytes]:
            replies = super().send(kind, out)
            largest[kind] = max([*map(len, replies.values()), largest.get(kind, 0)])
            return replies

    nodes = Measured(paths)
    served(tmp_path, terms, nodes)
    for kind in (ENROL, TRAIN):
        assert largest[kind] <= min(nodes.most_bytes[kind].values())
    assert max(nodes.most_bytes[TRAIN].values()) < 200_000
    assert nodes.most_bytes[ENROL]["0"] == MESSAGE_BYTES + 512 * 10_000


@pytest.mark.parametrize("protocol", ["ring", "secagg"])
def test_secure_replies_are_within_their_limit(protocol, few_people, tmp_path):
    pytest.importorskip("cryptography")
    terms, paths = new_federation(
        "fcf", few_people, tmp_path, 1, rounds=1, secure_aggregation=protocol
    )

    class Measured(InProcessNodes):
        largest = 0

        def _call(self, kind: str, node: int, data: bytes) -> bytes | None:
            reply = super()._call(kind, node, data)
            if kind == TRAIN:
                self.largest = max(self.largest, len(reply or b""))
            return reply

    nodes = Measured(paths)
    served(tmp_path, terms, nodes)
    assert 0 < nodes.largest <= nodes.most_bytes[TRAIN]["0"] < 1 << 23


def test_the_limit_of_a_reply_by_hand(few_people, tmp_path):
    terms, _ = new_federation("fcf", few_people, tmp_path, 1)
    world = replace(without_users(terms.experiment), n_items=30)
    a_user = reply_bytes_a_user(terms.federation, world, terms.federation.init(world))
    # 30 items with an index and 5 entries of four bytes each, and 32 bytes for the user.
    assert a_user == 32 + 4 * 30 * (1 + 5)
    assert reply_limits(a_user, {"ann": 2, "bob": 0}) == {
        "ann": MESSAGE_BYTES + 2 * a_user,
        "bob": MESSAGE_BYTES + a_user,
    }


def test_a_node_that_reports_perfect_metrics_shows():
    """Its weight is its number of users, and the median is without it."""
    reports = {
        "ann": NodeMetrics(50, "test", {"HR@10": 10.0}),
        "bob": NodeMetrics(50, "test", {"HR@10": 12.0}),
        "mallory": NodeMetrics(100, "test", {"HR@10": 100.0}),
        "cem": NodeMetrics(0, "test", {}),
    }
    found = contributions(reports, ["HR@10"])
    assert found["metrics_median"] == {"HR@10": 0.24}
    assert found["metrics_by_node"] == {
        "ann": {"users": 50, "HR@10": 0.2},
        "bob": {"users": 50, "HR@10": 0.24},
        "mallory": {"users": 100, "HR@10": 1.0},
    }


def test_the_status_has_the_contribution_of_each_node(people, tmp_path):
    terms, paths = new_federation("fedfast", people, tmp_path, 2, rounds=1)
    served(tmp_path, terms, InProcessNodes(paths))
    status = json.loads((tmp_path / "status.json").read_text())
    of_nodes = status["metrics_by_node"]
    assert of_nodes.keys() == {"0", "1"}
    values = [found["HR@10"] for found in of_nodes.values()]
    assert status["metrics_median"]["HR@10"] == pytest.approx(sum(values) / 2)
