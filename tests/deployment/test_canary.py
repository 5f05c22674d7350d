"""What leaves a node: nothing of a history beyond the algorithm's updates, and as many bytes as
the simulator counts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment.test_node_evaluation import bare, federation  # noqa: F401  a fixture
from deployment.test_server import InProcessNodes, served
from small_federation import FEDERATED, ON_KERNELS

from coterie.data.interactions import Interactions
from coterie.deployment.node_service import ENROL, FINISH, TRAIN
from coterie.experiments import experiment
from coterie.federated.secagg import crypto
from coterie.federated.secagg.crypto import KeyPair
from coterie.federated.secagg.identity import Identity
from coterie.federated.validation import DTYPES
from coterie.federated.wire import Decoded, decode

SECRET_TIME = 1_234_567_890_123 // 1000


class Recorded(InProcessNodes):
    """Records all that leaves the nodes."""

    def __init__(self, paths: list[Path]) -> None:
        super().__init__(paths)
        self.sent: list[tuple[str, str, bytes]] = []

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        replies = super().send(kind, out)
        self.sent += [(kind, name, data) for name, data in sorted(replies.items())]
        return replies

    def updates(self) -> list[Decoded]:
        return [decode(data) for kind, _, data in self.sent if kind == TRAIN]


def recorded(
    name: str, people: Interactions, folder: Path, n: int = 2, **settings: object
) -> Recorded:
    folder.mkdir()
    terms, paths = federation(name, people, folder, n, **settings)
    nodes = Recorded(paths)
    served(folder, terms, nodes)
    return nodes


def in_order(people: Interactions) -> Interactions:
    """Gives each interaction a time of its own, so that the newest one is unique."""
    return replace(people, times=np.arange(len(people), dtype=np.int64) + 1)


def with_other_tests(people: Interactions) -> Interactions:
    """Replaces each user's newest interaction, which is held out, by another new item."""
    items = people.items.copy()
    for user, place in enumerate(people.rows.offsets[1:] - 1):
        had = set(people.items[people.users == user].tolist())
        if len(had) == 1:
            continue  # users with one interaction are not tested
        items[place] = next(i for i in range(people.n_items - 1, -1, -1) if i not in had)
    return replace(people, items=items)


@pytest.mark.parametrize("name", FEDERATED)
def test_held_out_items_never_leave_a_node(name, bare, tmp_path):  # noqa: F811
    """With other test items, all messages except the last metrics are the same, byte for byte."""
    ordered = in_order(bare)
    one, two = (
        recorded(name, data, tmp_path / label)
        for label, data in (("one", ordered), ("two", with_other_tests(ordered)))
    )
    assert [m for m in one.sent if m[0] != FINISH] == [m for m in two.sent if m[0] != FINISH]
    assert [m for m in one.sent if m[0] == FINISH] != [m for m in two.sent if m[0] == FINISH]


@pytest.mark.parametrize("name", FEDERATED)
def test_timestamps_never_leave_a_node(name, bare, tmp_path):  # noqa: F811
    """Shifting the clocks of users changes no message."""
    shift = np.random.default_rng(0).integers(0, 10**6, bare.n_users)
    moved = replace(bare, times=bare.times + shift[bare.users])
    one, two = (
        recorded(name, data, tmp_path / label) for label, data in (("one", bare), ("two", moved))
    )
    assert one.sent == two.sent


@pytest.mark.parametrize("name", FEDERATED)
def test_messages_hold_updates_and_no_names(name, bare, tmp_path):  # noqa: F811
    """Messages hold columns of updates; no item id, no time, and user ids only in the roster."""
    named = replace(
        bare,
        item_ids=np.array([f"secret-item-{i}" for i in range(bare.n_items)], dtype=object),
        user_ids=np.array([f"person-{u}" for u in range(bare.n_users)], dtype=object),
        times=np.full(len(bare), SECRET_TIME),
    )
    nodes = recorded(name, named, tmp_path / "one")
    for kind, _, data in nodes.sent:
        assert b"secret-item" not in data
        assert SECRET_TIME.to_bytes(8, "little") not in data
        assert (b"person-" in data) == (kind == ENROL)
        if kind == FINISH:
            assert set(json.loads(data)) == {"users", "part", "sums"}
        if kind == ENROL:
            roster = json.loads(data)
            for unused in ("forgotten", "permits", "signing_keys", "snapshots"):
                assert roster.pop(unused) == []
            assert (roster.pop("rollbacks"), roster.pop("unchanged_since")) == (0, 0)
            assert roster.pop("most_rollbacks") is None
            assert set(roster) == {"users", "learning", "positives"}
    for update in nodes.updates():
        assert set(update.arrays) <= set(DTYPES)
        assert not update.common


@pytest.mark.parametrize("name", ["pfpl", "pfpl+", "sfpl+"])
@pytest.mark.parametrize("disclosed", [0.0, 1.0])
def test_a_canary(name, disclosed, bare, tmp_path):  # noqa: F811
    """A single user has an item: it is sent if the user discloses all, and never if nothing."""
    canary = "canary"
    data = bare
    users = [*data.user_ids[data.users].astype(str), str(data.user_ids[7])]
    items = [*data.item_ids[data.items].astype(str), canary]
    times = [*data.times, 1]  # type: ignore[misc]
    data = Interactions.from_columns(users, items, None, times)
    data = replace(data, item_texts=np.array([f"Title {i}" for i in data.item_ids], dtype=object))
    nodes = recorded(
        name,
        data,
        tmp_path / "one",
        disclosure=disclosed,
        epochs=2,
        rounds_an_epoch=3,
        users_per_round=200,
    )
    item = data.item_ids.tolist().index(canary)
    user = data.user_ids.tolist().index(str(bare.user_ids[7]))
    sent = [
        item in update.arrays["items"][slice(*update.arrays["offsets"][[k, k + 1]])]
        for update in nodes.updates()
        for k in np.flatnonzero(update.arrays["users"] == user)
    ]
    assert len(sent) == 6
    assert any(sent) == bool(disclosed)


@pytest.mark.parametrize("name", ON_KERNELS)
def test_bytes_are_as_many_as_the_simulator_counts(name, bare, tmp_path):  # noqa: F811
    """With each user on a node of its own, as the simulator assumes: within two percent."""
    few = bare.select(bare.users < 30)
    few = replace(few, user_ids=few.user_ids[:30])
    folder = tmp_path / "one"
    folder.mkdir()
    terms, paths = federation(name, few, folder, 30)
    served(folder, terms, InProcessNodes(paths))
    status = json.loads((folder / "status.json").read_text())
    simulated = experiment.run(terms.experiment, few).result
    assert status["bytes_up"] == pytest.approx(simulated["bytes_up"], rel=0.02)
    # FedEASE's message is empty: the simulator leaves out a few bytes of its envelope.
    assert status["bytes_down"] == pytest.approx(simulated["bytes_down"], rel=0.02, abs=8 * 30)


def test_no_secret_of_secure_aggregation_leaves_a_node(bare, tmp_path, monkeypatch):  # noqa: F811
    """Private keys and seeds are in no message, and in no file of the server: logs, checkpoints."""
    pytest.importorskip("cryptography")
    secrets: set[bytes] = set()

    def collect(kind: type, read: Callable[[Any], bytes]) -> None:
        generate = kind.generate

        def generated(cls: type) -> Any:
            made = generate()
            secrets.add(read(made))
            return made

        monkeypatch.setattr(kind, "generate", classmethod(generated))

    collect(KeyPair, lambda pair: pair.secret)
    collect(Identity, lambda identity: identity.secret)
    token_bytes = crypto.secrets.token_bytes

    def token(size: int) -> bytes:
        made = token_bytes(size)
        secrets.add(made)
        return made

    monkeypatch.setattr(crypto.secrets, "token_bytes", token)
    nodes = recorded("fcf", bare, tmp_path / "one", secure_aggregation="secagg", rounds=2)
    assert len(secrets) > 100
    texts = [data for _, _, data in nodes.sent]
    stores = {path.name for path in nodes.paths}
    texts += [
        path.read_bytes()
        for path in (tmp_path / "one").rglob("*")
        if path.is_file() and path.name.partition("-")[0] not in stores
    ]
    whole = b"\n".join(texts)
    for secret in secrets:
        for form in (secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")):
            assert form not in whole
    # The test can fail: the store itself holds the identities.
    held = b"".join(path.read_bytes() for path in nodes.paths)
    assert any(secret in held for secret in secrets)
