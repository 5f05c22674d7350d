"""The gateway as a node: who takes part, deadlines, drop-outs, repeated rounds, crashes."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment.devices.conftest import ON_DEVICES, SETTINGS, Site, update_of
from deployment.devices.stand_in import Answer, Client
from deployment.test_enrolment import terms_of
from deployment.test_server import InProcessNodes, Stop, same, simulated

from coterie.deployment.devices import board
from coterie.deployment.devices.board import OpenExchange
from coterie.deployment.devices.clients import refuse_without_client
from coterie.deployment.devices.nodes import NodesWithDevices
from coterie.deployment.devices.qr_codes import qr_text
from coterie.deployment.devices.store import DeviceStore
from coterie.deployment.node_evaluation import KIND
from coterie.deployment.node_service import TRAIN
from coterie.deployment.server import serve
from coterie.deployment.server_config import ServerConfig
from coterie.errors import ConfigError, RunError, StoreError, UnknownName
from coterie.experiments.config import Experiment
from coterie.federated.wire import decode
from coterie.types import Message

ROUNDS = SETTINGS["epochs"] * SETTINGS["rounds_an_epoch"]


class Recording(NodesWithDevices):
    """Nodes whose messages are written down; `dies` may end the server after a reply."""

    __slots__ = ("__dict__",)

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        self.__dict__.setdefault("kinds", []).append(kind)
        replies = super().send(kind, out, seconds)
        self.__dict__.setdefault("replies", []).append((kind, replies.get("devices")))
        dies = self.__dict__.get("dies")
        if dies is not None and dies(kind, self.__dict__["kinds"].count(kind)):
            raise Stop
        return replies


def serve_with(site: Site, nodes: NodesWithDevices, **settings: Any) -> Any:
    given = {"items": "items.csv", "wait_seconds": 20.0, "least_nodes": 3, "open": site.is_open}
    return serve(site.folder, site.terms, nodes, ServerConfig(**given | settings))


# What a round waits for


def test_a_device_that_does_not_answer_drops_out_at_the_deadline(site: Site) -> None:
    with site.listening() as (gateway, _):
        first, second = site.browsers(gateway)
        began = time.monotonic()
        with site.asking(gateway, seconds=0.8) as replies:
            late = first.message(0)
            assert second.update(second.message(0), update_of(1)).status == 200
        assert 0.7 < time.monotonic() - began < 5
        assert decode(replies[0]).arrays["users"].tolist() == [1]
        answer = first.update(late, update_of(0))
        assert answer.status == 409
        assert "not open" in answer.error


def test_a_round_does_not_wait_for_devices_that_are_away(site: Site, monkeypatch: Any) -> None:
    monkeypatch.setattr(board, "PRESENT_SECONDS", 0.4)
    monkeypatch.setattr(board, "LOOK_SECONDS", 0.1)
    with site.listening() as (gateway, _):
        first, second = site.browsers(gateway)
        time.sleep(0.5)
        first.message(0)
        began = time.monotonic()
        with site.asking(gateway, seconds=20) as replies:
            assert first.update(first.message(0), update_of(0)).status == 200
        assert time.monotonic() < began + 5
        assert decode(replies[0]).arrays["users"].tolist() == [0]
        time.sleep(0.5)
        began = time.monotonic()
        with site.asking(gateway, t=1, seconds=20) as replies:
            pass
        assert time.monotonic() < began + 3
        assert decode(replies[0]).arrays["users"].tolist() == []
        assert second.message(0).status == 204
        # A device that has the message is waited for, however long its user looks at it.
        with site.asking(gateway, t=2, seconds=20) as replies:
            found = second.message(0)
            time.sleep(0.8)
            assert second.update(found, update_of(1, 2)).status == 200
        assert decode(replies[0]).arrays["users"].tolist() == [1]


def test_a_round_that_is_repeated_does_not_ask_again(site: Site) -> None:
    """After a crash or without a quorum the server sends the same message. What a device sent for
    it is on disk, and others are asked for the first time."""
    with site.listening() as (gateway, _):
        first, second = site.browsers(gateway)
        with site.asking(gateway, seconds=0.5):
            assert first.update(first.message(0), update_of(0)).status == 200
    with site.listening() as (gateway, _):
        with site.asking(gateway) as replies:
            assert first.message(0).status == 204
            again = second.message(0)
            assert (again.headers["coterie-round"], again.headers["coterie-attempt"]) == ("0", "2")
            assert second.update(again, update_of(1)).status == 200
        assert decode(replies[0]).arrays["users"].tolist() == [0, 1]
        # Another model in the same round is another message.
        with site.asking(gateway, model=1) as replies:
            for k, browser in enumerate((first, second)):
                found = browser.message(0)
                assert found.headers["coterie-attempt"] == "3"
                assert browser.update(found, update_of(k, value=5)).status == 200
        assert (decode(replies[0]).arrays["item_rows"] == 5).all()


def test_the_end_waits_until_devices_have_the_model(site: Site) -> None:
    with site.listening() as (gateway, _):
        browsers = site.browsers(gateway)
        common = {"item_rows": np.ones((120, 5), np.float32), KIND: np.zeros(1, np.uint8)}
        message = Message(6, np.arange(2, dtype=np.int32), common, {})
        held: list[Answer] = []
        poll = threading.Thread(target=lambda: held.append(browsers[0].message(20)))
        poll.start()
        time.sleep(0.1)
        until = time.monotonic() + 20
        end = threading.Thread(target=gateway.receive_model, args=(message, True, until))
        end.start()
        poll.join(5)
        states = [held[0].headers[f"coterie-{name}"] for name in ("state", "model")]
        assert (held[0].status, states) == (204, ["finished", "6"])
        for browser in browsers:
            assert end.is_alive()
            found = decode(browser.signed("GET", "/device/model").body)
            assert (found.round, found.common.keys()) == (6, {"item_rows"})
        end.join(5)
        assert not end.is_alive()


def test_an_update_that_ends_after_its_round_does_not_count(site: Site) -> None:
    """Validated and stored while the round closed, or in the next round already."""
    gateway = site.gateway()
    message = Message(0, np.arange(1, dtype=np.int32), {}, {})
    first = OpenExchange(message, {"a": 0}, {}, {})
    gateway.board.open(first)
    assert gateway.board.close() == {}
    assert not gateway.board.put("a", first, b"late")
    gateway.board.open(OpenExchange(message, {"a": 0}, {}, {}))
    assert not gateway.board.put("a", first, b"late")
    assert gateway.board.close() == {}


# Federations


def test_a_server_that_dies_in_any_round_resumes(site: Site) -> None:
    """The gateway dies with it, after devices sent updates that no round has counted."""
    clients: list[Client] = []
    at = {1, 3, ROUNDS}
    point = None
    for life in range(len(at) + 1):
        with site.listening() as (gateway, _):
            if not clients:
                for user in ON_DEVICES:
                    clients.append(site.client(user, gateway))
                    site.start(clients[-1])
            nodes = Recording(site.nodes(), gateway, site.round_seconds)
            due = sorted(at)[life] if life < len(at) else 0
            committed = 0
            if (site.folder / "status.json").exists():
                committed = json.loads((site.folder / "status.json").read_text())["round"]

            def dies(kind: str, count: int, due: int = due, committed: int = committed) -> bool:
                return kind == TRAIN and due > 0 and committed + count == due

            nodes.__dict__["dies"] = dies
            try:
                point = serve_with(site, nodes)
            except Stop:
                continue
    site.stop()
    assert point is not None
    assert same(point.state, simulated(site.terms, site.renamed()))
    assert [client.refused for client in clients] == [[], [], []]
    for client in clients:
        # No message was answered twice with other bytes.
        assert all(len(made) == 1 for made in client.sent.values())


def test_devices_that_come_later_join_an_open_federation(site: Site) -> None:
    """Round 0 has no devices. The first device comes then, and is a user from round 1 on."""
    site.is_open = True
    site.terms = replace(terms_of(site.people, "pfpl+", **SETTINGS | {"epochs": 4}), run="a run")
    with site.listening() as (gateway, _):
        nodes = Recording(site.nodes(), gateway, site.round_seconds)

        def come(kind: str, count: int) -> bool:
            if kind == TRAIN and count == 1:
                site.start(site.client(3, gateway))
            return False

        nodes.__dict__["dies"] = come
        point = serve_with(site, nodes, least_nodes=2)
    site.stop()
    (client,) = site.clients
    members = json.loads((site.folder / "members.json").read_text())
    assert members["users"][-1] == f"devices-{client.browser.device}"
    assert sorted(client.sent) == list(range(1, 8))
    assert point.history.updates == 8 * 197 + 7
    assert client.refused == []


def test_a_revoked_device_is_erased_from_the_federation(site: Site) -> None:
    with site.listening() as (gateway, _):
        nodes = Recording(site.nodes(), gateway, site.round_seconds)
        for user in ON_DEVICES:
            site.start(site.client(user, gateway))

        def revoke(kind: str, count: int) -> bool:
            if kind == TRAIN and count == 2:
                DeviceStore.open(site.folder).revoke(site.clients[0].browser.device)
            return False

        nodes.__dict__["dies"] = revoke
        point = serve_with(site, nodes)
    site.stop()
    revoked = site.clients[0]
    members = json.loads((site.folder / "members.json").read_text())
    assert f"devices-{revoked.browser.device}" not in members["users"]
    assert len([user for user in members["users"] if user]) == 199
    assert sorted(revoked.sent) == [0, 1]
    assert "revoked" in revoked.refused[-1]
    assert point.history.updates == 2 * 200 + (ROUNDS - 2) * 199
    listed = {device.id: device for device in gateway.store.devices()}
    assert listed[revoked.browser.device].number is None


def test_nobody_else_can_be_the_gateway(site: Site) -> None:
    class Impostor(InProcessNodes):
        def joined(self) -> dict[str, int]:
            return {"devices": 1, "ann": 2}

    nodes = NodesWithDevices(Impostor([]), site.gateway(), 1.0)
    assert nodes.joined() == {"ann": 2}
    assert not nodes.signed("devices", "text", "")


def test_the_gateway_joins_with_enough_devices(site: Site) -> None:
    gateway = site.gateway()
    joined = []
    for k in range(4):
        joined.append(gateway.connection())
        gateway.store.enrol(gateway.store.add_code(), bytes([k]), "", 9)
    assert joined == [None, None, None, -1]
    # Before a roster lists the devices, no number is a known one.
    assert gateway.connection() == -2
    gateway.roster()
    known = gateway.connection()
    assert known == gateway.connection() == 5
    (site.folder / "members.json").write_text("{}")
    gateway.store.put_numbers({gateway.store.active()[0].user: 7}, [])
    for device in gateway.store.active():
        gateway.store.revoke(device.id)
    assert gateway.connection() is not None
    assert gateway.roster().forgotten == [7]
    gateway.store.put_numbers({}, [7])
    assert gateway.connection() is None


def test_devices_do_not_follow_a_roll_back(site: Site) -> None:
    gateway = site.gateway()
    gateway.store.enrol(gateway.store.add_code(), b"k", "", 9)
    roster = gateway.roster()
    assert (roster.rollbacks, roster.snapshots) == (0, [])
    from coterie.deployment.node_snapshots import can_return_to

    assert not any(can_return_to(n, roster.snapshots, roster.unchanged_since) for n in range(999))


# Settings


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"algorithm": "fedfast"}, ("fedfast", "users' rows", "pfpl or pfpl+ or fedals")),
        ({"algorithm": "fedals"}, ("reg 0", "how many they have", "reg: 0.05")),
        ({"algorithm": "fedals", "feedback": "explicit"}, ("explicit", "likes, not ratings")),
        ({"algorithm": "fedease"}, ("fedease", "cannot join later")),
        ({"algorithm": "fcf"}, ("fcf", "no client")),
        ({"algorithm": "sfpl+"}, ("sfpl+", "one client")),
        ({"secure_aggregation": "secagg"}, ("secagg", "stages", "ChaCha20")),
        ({"epsilon": 2.0}, ("epsilon 2", "ledger")),
        ({"triples": 0}, ("triples 0", "how many they have", "triples: 20")),
        ({"rounds_an_epoch": 0}, ("rounds_an_epoch 0", "rounds_an_epoch: 1")),
    ],
)
def test_federations_without_a_client_are_refused(changes: Any, parts: tuple[str, ...]) -> None:
    given = {"algorithm": "pfpl+", "dataset": "given.csv", "popularity_prior": 0.0}
    if "algorithm" not in changes:
        given |= {"triples": 5, "rounds_an_epoch": 2}
    with pytest.raises(ConfigError) as error:
        refuse_without_client(Experiment.of(given | changes))
    for part in (
        *parts,
        "expected",
        "leave --devices out" if "follows from" not in str(error.value) else "Set ",
    ):
        assert part in str(error.value)


# The store


def test_the_store_is_its_owners(tmp_path: Path) -> None:
    made = DeviceStore.make(tmp_path)
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    code = made.add_code()
    assert code.encode() not in made.path.read_bytes()
    assert code.replace("-", "").encode() not in made.path.read_bytes()
    device = made.enrol(code, b"key", "a phone", 5)
    again = DeviceStore.make(tmp_path)
    assert again.active() == [device]
    with pytest.raises(UnknownName, match="device 'nobody'"):
        again.revoke("nobody")
    again.revoke(device.id)
    with pytest.raises(RunError, match="revoked already"):
        again.revoke(device.id)
    with pytest.raises(RunError, match=r"no gateway\.db"):
        DeviceStore.open(tmp_path / "elsewhere")
    made.path.write_bytes(b"garbage" * 1000)
    with pytest.raises(StoreError, match="begin a new run"):
        DeviceStore.open(tmp_path)


def test_qr_codes_hold_the_address() -> None:
    """Read back without a decoder: the blocks are the modules of the same code."""
    import segno

    address = "https://10.0.0.5:8001/device/#code=7QF2-M9XK-0D4R-HT3W"
    lines = qr_text(address).splitlines()
    modules = [
        [{"█": (0, 0), "▀": (0, 1), "▄": (1, 0), " ": (1, 1)}[c][half] for c in line]
        for line in lines
        for half in (0, 1)
    ]
    expected = [list(row) for row in segno.make(address, micro=False).matrix]
    inner = [row[2:-2] for row in modules[2 : 2 + len(expected)]]
    assert inner == expected
    assert {c for row in modules[:2] for c in row} == {0}
