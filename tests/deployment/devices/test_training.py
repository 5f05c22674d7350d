"""Browsers as clients: the model is the simulation's, and what was sent is what was received."""

from __future__ import annotations

import hashlib
import json

import numpy as np
from deployment.devices.conftest import ON_DEVICES, SETTINGS, Site
from deployment.devices.test_gateway import Recording, serve_with
from deployment.test_server import same, simulated

from coterie.deployment.enrolment import Roster
from coterie.deployment.node_service import ENROL, EVALUATE, FINISH

ROUNDS = SETTINGS["epochs"] * SETTINGS["rounds_an_epoch"]


def test_two_nodes_and_three_devices_train_the_model_of_the_simulation(site: Site) -> None:
    with site.listening() as (gateway, _):
        for user in ON_DEVICES:
            site.start(site.client(user, gateway))
        nodes = Recording(site.nodes(), gateway, site.round_seconds)
        point = serve_with(site, nodes)
    site.stop()
    expected = simulated(site.terms, site.renamed())
    assert same(point.state, expected)
    assert point.history.updates == ROUNDS * (site.people.n_users)
    for client in site.clients:
        assert client.refused == []
        assert sorted(client.sent) == list(range(ROUNDS))
        assert client.model is not None
        assert client.model[0] == ROUNDS
        assert np.array_equal(client.model[1]["item_rows"], expected["item_rows"])
        assert np.array_equal(client.model[1]["item_bias"], expected["item_bias"])
        # What the gateway received is what the device sent, byte for byte.
        sent = [made[0][1] for _, made in sorted(client.sent.items())]
        told = [(len(body), hashlib.sha256(body).hexdigest()) for body in sent]
        assert [(r["bytes"], r["sha256"]) for r in client.receipts] == told
        stored = gateway.store.last_message(client.browser.device)
        assert stored is not None
        assert stored.reply == sent[-1]
    status = json.loads((site.folder / "status.json").read_text())
    assert (status["state"], status["dropped"], status["refused"]) == ("finished", 0, {})
    # The server learns pseudonyms, and nothing about histories; the gateway evaluates nothing.
    replies = {kind: reply for kind, reply in nodes.__dict__["replies"] if reply is not None}
    roster = Roster.parse(replies[ENROL])
    assert roster.users == [f"devices-{client.browser.device}" for client in site.clients]
    assert (roster.learning, roster.positives) == ([True] * 3, 3)
    assert b"phone of" not in replies[ENROL]
    assert json.loads(replies[FINISH]) == {"users": 0, "part": "", "sums": {}}
    assert EVALUATE not in replies
