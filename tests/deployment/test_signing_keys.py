"""Keys by which clients know each other, and servers that ask for less protection than agreed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography")

from deployment.test_enrolment import stores, terms_of
from deployment.test_node import nodes_of, transport_to
from small_federation import play, world_for

from coterie.core.progress import Progress
from coterie.data.splits import split
from coterie.deployment.enrolment import EnrolledUsers, Roster
from coterie.deployment.node import NodeEngine
from coterie.deployment.node_data import node_data_of, roster_of
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import NodeService
from coterie.deployment.transfer import Permit, SignedPermit
from coterie.deployment.user_package import pack, unpack
from coterie.federated.wire import Malformed

SECAGG = {"secure_aggregation": "secagg"}


@pytest.mark.parametrize(
    ("agreed", "asked"),
    [("secagg", "none"), ("secagg", "ring"), ("ring", "none"), ("ring", "secagg")],
)
def test_a_server_gets_no_other_protocol_than_agreed(agreed, asked, people, tmp_path):
    """A plain exchange, or the stages of another protocol: nodes reply to neither."""
    training = split(people, "temporal", 0.2, seed=0).training()
    of_nodes, of_server = (
        world_for("fcf", training, rounds=1, secure_aggregation=protocol)
        for protocol in (agreed, asked)
    )
    nodes = nodes_of("fcf", of_nodes, training, tmp_path, 2)
    hosts = np.arange(training.n_users, dtype=np.int32) % 2
    with pytest.raises(Malformed, match=f"of protocol {asked}; this federation has {agreed}"):
        play("fcf", of_server, NodeEngine.over(hosts, transport_to(nodes)))


def enrolled(people, folder: Path, n: int = 2) -> tuple[list[NodeStore], EnrolledUsers]:
    terms = terms_of(people, "fcf", **SECAGG)
    made = stores(people, folder, n)
    rosters = {str(k): roster_of(terms, store) for k, store in enumerate(made)}
    return made, EnrolledUsers.of(rosters)


class Log(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(text)


def test_every_user_has_a_key_that_stays(people, tmp_path):
    made, members = enrolled(people, tmp_path)
    assert len(set(members.signing_keys)) == len(members.users) == people.n_users
    again = roster_of(terms_of(people, "fcf", **SECAGG), made[0])
    index = members.index()
    assert again.signing_keys == [members.signing_keys[index[user]] for user in again.users]
    # Without `secagg` there are none.
    assert roster_of(terms_of(people, "fcf"), made[0]).signing_keys == []


def test_nodes_pin_keys_and_refuse_a_list_that_replaces_their_own(people, tmp_path):
    made, members = enrolled(people, tmp_path)
    terms = replace(terms_of(people, "fcf", **SECAGG), run="a run")
    logs = [Log(), Log()]
    for store, log in zip(made, logs, strict=True):
        service = NodeService(store, log)
        service.set_seed("1")
        service.begin(terms, members.indices_for(store.users()))
    pinned = [[line for line in log.lines if "fingerprint" in line] for log in logs]
    assert pinned[0] == pinned[1]
    assert len(pinned[0]) == 1

    service = NodeService(made[0], logs[0])
    service.load()
    own = members.index()[made[0].users()[0]]
    foreign = members.index()[made[1].users()[0]]
    keys = list(members.signing_keys)
    keys[foreign] = "ab" * 32
    changed = replace(members, signing_keys=keys)
    service.begin(terms, changed.indices_for(made[0].users()))
    assert "other signing keys for 1 users" in logs[0].lines[-1]
    data = node_data_of(terms, members.indices_for(made[0].users()), made[0], 1)
    assert data.identities is not None
    assert data.identities.public(foreign) == bytes.fromhex(members.signing_keys[foreign])
    assert data.identities.public(people.n_users) is None

    keys = list(members.signing_keys)
    keys[own] = "cd" * 32
    replaced = replace(members, signing_keys=keys)
    with pytest.raises(Malformed, match="another signing key for user"):
        service.begin(terms, replaced.indices_for(made[0].users()))


def test_a_key_moves_with_its_user_and_is_erased_with_it(people, tmp_path):
    made, _ = enrolled(people, tmp_path)
    user = made[0].users()[0]
    key = made[0].identities([user])[0].public
    permit = SignedPermit(Permit.new("", [user], "0", "1").to_json(), "")
    package = pack(made[0], [user], permit)
    unpack(package, made[1])
    assert made[1].identities([user])[0].public == key
    made[1].forget(user)
    secret = made[0].identities([user])[0].secret
    assert secret not in made[1].path.read_bytes()


@pytest.mark.parametrize("keys", [["00"], ["ab" * 32, "zz" * 32], ["AB" * 32, "cd" * 32]])
def test_malformed_keys_are_refused(keys):
    roster = Roster(["ann", "bob"], [True, True], 4, signing_keys=keys)
    with pytest.raises(Malformed, match="signing key"):
        Roster.parse(roster.to_json().encode())
