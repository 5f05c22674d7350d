"""A server among nodes that lie: whatever they send is refused and counted, and has no effect on what honest people train."""

from __future__ import annotations

import json
import resource
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deployment.test_server import Together, beginning, served
from federated.fuzzing import GIGABYTES, mangled

from coterie.deployment.enrolment import Roster
from coterie.federated.wire import Malformed, decode, encode

MESSAGES = 1_000


class Lying(Together):
    """Nodes whose answers to a round are mangled ones of another node."""

    def __init__(self, paths: list[Path], liars: set[int], people: dict[int, np.ndarray]) -> None:
        super().__init__(paths)
        self.liars = liars
        self.people = people
        self.lies = 0
        self.rng = np.random.default_rng(7)

    def send(self, kind: str, out: Mapping[str, bytes]) -> dict[str, bytes]:
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
        while self.could_be_true(node, made := mangled(model, self.rng)):
            pass
        return made

    def could_be_true(self, node: int, made: bytes) -> bool:
        """Who really says that a user of its own did something is no liar."""
        try:
            users = decode(made).arrays.get("users")
        except Malformed:
            return False
        return users is not None and bool(np.isin(users, self.people[node]).any())


class Silent(Lying):
    """They say nothing in place of lies."""

    def send(self, kind: str, out: Mapping[str, bytes]) -> dict[str, bytes]:
        back = super().send(kind, out)
        return (
            back
            if kind == ENROL
            else {name: data for name, data in back.items() if int(name) not in self.liars}
        )


@pytest.mark.parametrize("name", ["fedfast", pytest.param("pfpl+", marks=pytest.mark.long)])
def test_a_thousand_lies_to_a_server(name, people, tmp_path):
    """Ten of twelve nodes lie in a hundred rounds: the model is that of the other two, and memory stays what it was."""
    few = (
        {"rounds": 105, "participation": 0.5}
        if name == "fedfast"
        else {"epochs": 2, "rounds_an_epoch": 50}
    )
    terms, paths = beginning(name, people, tmp_path, 12, **few)
    liars = set(range(2, 12))
    hosted = {node: np.arange(node, people.n_users, 12) for node in range(12)}
    for folder in ("among liars", "without them"):
        (tmp_path / folder).mkdir()
    away = Silent(paths, liars, hosted)
    same = served(tmp_path / "without them", replace(terms, run="another"), away, quorum=0.01)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    nodes = Lying(paths, liars, hosted)
    found = served(tmp_path / "among liars", terms, nodes, quorum=0.01)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert nodes.lies >= MESSAGES
    status = json.loads((tmp_path / "among liars" / "status.json").read_text())
    assert sum(status["refused"].values()) > MESSAGES
    assert grown < 20 * 1024  # KiB
    for field, array in same.state.shared_arrays().items():
        assert np.array_equal(found.state.shared_arrays()[field], array), field
    assert found.history.updates == same.history.updates


def test_ten_thousand_messages_to_the_decoder(people, tmp_path):
    data = encode(
        3,
        {"users": np.arange(40, dtype=np.int32), "items": np.arange(200, dtype=np.int32)},
        {"dense": np.ones((9, 5), np.float32)},
    )
    rng = np.random.default_rng(1)
    read = 0
    lies = [mangled(data, rng) for _ in range(10_000)]
    tracemalloc.start()
    try:
        for made in lies:
            try:
                found = decode(made)
            except Malformed:
                continue
            read += 1
            assert sum(a.nbytes for a in (*found.arrays.values(), *found.common.values())) <= len(
                made
            )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < read < 6_000  # numbers that changed are numbers all the same
    assert peak < 200_000
    with pytest.raises(Malformed, match="longer than the message"):
        decode(GIGABYTES)


def test_a_thousand_rolls(people):
    """A person's id may change and be a person's id; nothing else comes out than a roll that makes sense, or a refusal."""
    data = Roster([str(u) for u in range(50)], [True] * 50, 700).to_json().encode()
    rng = np.random.default_rng(2)
    refused = 0
    for _ in range(1_000):
        try:
            said = Roster.parse(mangled(data, rng))
        except Malformed:
            refused += 1
            continue
        assert len(set(said.people)) == len(said.learning) > 0
    assert refused > 500


class Babbling(Together):
    """One node that says nonsense to some kinds of messages."""

    def __init__(self, paths: list[Path], kinds: set[str], said: bytes) -> None:
        super().__init__(paths)
        self.kinds = kinds
        self.said = said

    def _call(self, kind: str, node: int, data: bytes) -> bytes | None:
        return self.said if node == 2 and kind in self.kinds else super()._call(kind, node, data)


@pytest.mark.parametrize("said", [b"", b"{}", b"[" * 10_000, GIGABYTES])
def test_who_cannot_say_whom_it_hosts_has_no_part(said, people, tmp_path):
    terms, paths = beginning("fedfast", people, tmp_path, 3)
    point = served(tmp_path, terms, Babbling(paths, {ENROL}, said), least_nodes=2)
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["refused"]["malformed roster"] >= 1
    assert len(point.state.user_rows) == int((np.arange(people.n_users) % 3 != 2).sum())


@pytest.mark.parametrize(
    "said", [b"", b"{}", b'{"people": 5, "part": "test", "sums": {"HR@10": 99}}', GIGABYTES]
)
def test_what_a_model_is_not_worth(said, people, tmp_path):
    terms, paths = beginning("fedfast", people, tmp_path, 3)
    point = served(tmp_path, terms, Babbling(paths, {FINISH}, said))
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["refused"] == {"malformed metrics": 1}
    assert 0 < point.history.curve[-1]["HR@10"] < 1
