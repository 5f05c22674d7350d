"""A server among malicious nodes: what they send is refused, counted, and changes no result."""

from __future__ import annotations

import json
import resource
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deployment.test_server import InProcessNodes, new_federation, served
from federated.fuzzing import GIGABYTES, mangled

from coterie.deployment.enrolment import Roster
from coterie.deployment.node_service import ENROL, FINISH
from coterie.federated.wire import Malformed, decode, encode

MESSAGES = 1_000


class MaliciousNodes(InProcessNodes):
    """Nodes of which some reply with mangled replies of another node."""

    def __init__(self, paths: list[Path], liars: set[int], users: dict[int, np.ndarray]) -> None:
        super().__init__(paths)
        self.liars = liars
        self.users = users
        self.lies = 0
        self.rng = np.random.default_rng(7)

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        if kind == ENROL:
            return super().send(kind, out)
        honest = super().send(
            kind, {name: data for name, data in out.items() if int(name) not in self.liars}
        )
        model = next(iter(honest.values()), b"COT1" + bytes(40))
        return honest | {
            name: self.lie(int(name), model) for name in out if int(name) in self.liars
        }

    def lie(self, node: int, model: bytes) -> bytes:
        self.lies += 1
        while self.could_be_valid(node, reply := mangled(model, self.rng)):
            pass
        return reply

    def could_be_valid(self, node: int, reply: bytes) -> bool:
        """An update for one of the node's own users may be valid, so it is not sent."""
        try:
            users = decode(reply).arrays.get("users")
        except Malformed:
            return False
        return users is not None and bool(np.isin(users, self.users[node]).any())


class SilentNodes(MaliciousNodes):
    """The same nodes do not reply at all."""

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        replies = super().send(kind, out)
        if kind == ENROL:
            return replies
        return {name: data for name, data in replies.items() if int(name) not in self.liars}


@pytest.mark.parametrize("name", ["fedfast", pytest.param("pfpl+", marks=pytest.mark.long)])
def test_a_thousand_malicious_replies(name, people, tmp_path):
    """Ten of twelve nodes are malicious for a hundred rounds: the model is that of the other two,
    and memory does not grow."""
    few = (
        {"rounds": 105, "participation": 0.5}
        if name == "fedfast"
        else {"epochs": 2, "rounds_an_epoch": 50}
    )
    terms, paths = new_federation(name, people, tmp_path, 12, **few)
    liars = set(range(2, 12))
    hosted = {node: np.arange(node, people.n_users, 12) for node in range(12)}
    for folder in ("with", "without"):
        (tmp_path / folder).mkdir()
    silent = SilentNodes(paths, liars, hosted)
    expected = served(tmp_path / "without", replace(terms, run="another"), silent, quorum=0.01)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    nodes = MaliciousNodes(paths, liars, hosted)
    found = served(tmp_path / "with", terms, nodes, quorum=0.01)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert nodes.lies >= MESSAGES
    status = json.loads((tmp_path / "with" / "status.json").read_text())
    assert sum(status["refused"].values()) > MESSAGES
    assert grown < 20 * 1024  # KiB
    for field, array in expected.state.shared_arrays().items():
        assert np.array_equal(found.state.shared_arrays()[field], array), field
    assert found.history.updates == expected.history.updates


def test_ten_thousand_messages_to_the_decoder(people, tmp_path):
    data = encode(
        3,
        {"users": np.arange(40, dtype=np.int32), "items": np.arange(200, dtype=np.int32)},
        {"dense": np.ones((9, 5), np.float32)},
    )
    rng = np.random.default_rng(1)
    read = 0
    messages = [mangled(data, rng) for _ in range(10_000)]
    tracemalloc.start()
    try:
        for message in messages:
            try:
                found = decode(message)
            except Malformed:
                continue
            read += 1
            arrays = (*found.arrays.values(), *found.common.values())
            assert sum(array.nbytes for array in arrays) <= len(message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < read < 6_000  # a message with changed numbers is still well-formed
    assert peak < 200_000
    with pytest.raises(Malformed, match="longer than the message"):
        decode(GIGABYTES)


def test_a_thousand_rosters(people):
    """A mangled roster is refused, or still consistent: a changed user id is a user id."""
    data = Roster([str(u) for u in range(50)], [True] * 50, 700).to_json().encode()
    rng = np.random.default_rng(2)
    refused = 0
    for _ in range(1_000):
        try:
            roster = Roster.parse(mangled(data, rng))
        except Malformed:
            refused += 1
            continue
        assert len(set(roster.users)) == len(roster.learning) > 0
    assert refused > 500


class BrokenNode(InProcessNodes):
    """One node replies with a fixed text to some kinds of messages."""

    def __init__(self, paths: list[Path], kinds: set[str], reply: bytes) -> None:
        super().__init__(paths)
        self.kinds = kinds
        self.reply = reply

    def _call(self, kind: str, node: int, data: bytes) -> bytes | None:
        if node == 2 and kind in self.kinds:
            return self.reply
        return super()._call(kind, node, data)


@pytest.mark.parametrize("reply", [b"", b"{}", b"[" * 10_000, GIGABYTES])
def test_a_node_without_a_valid_roster_is_left_out(reply, people, tmp_path):
    terms, paths = new_federation("fedfast", people, tmp_path, 3)
    point = served(tmp_path, terms, BrokenNode(paths, {ENROL}, reply), least_nodes=2)
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["refused"]["malformed roster"] >= 1
    assert len(point.state.user_rows) == int((np.arange(people.n_users) % 3 != 2).sum())


@pytest.mark.parametrize(
    "reply", [b"", b"{}", b'{"users": 5, "part": "test", "sums": {"HR@10": 99}}', GIGABYTES]
)
def test_invalid_metrics_are_refused(reply, people, tmp_path):
    terms, paths = new_federation("fedfast", people, tmp_path, 3)
    point = served(tmp_path, terms, BrokenNode(paths, {FINISH}, reply))
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["refused"] == {"malformed metrics": 1}
    assert 0 < point.history.curve[-1]["HR@10"] < 1
