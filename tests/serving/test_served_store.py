"""A node's store serves its own users, with what `coterie recommend --node` prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from asking import Caller
from deployment.test_node_evaluation import federation
from deployment.test_server import InProcessNodes, served

from coterie.data.interactions import Interactions
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import NodeService
from coterie.errors import RunError
from coterie.serving.sources import StoreFile, source_of
from coterie.serving.watcher import ModelWatcher


@pytest.fixture(scope="module")
def bare(people: Interactions) -> Interactions:
    return replace(people, user_features={}, item_categories=None, item_bodies=None)


@pytest.mark.parametrize("name", ["fedals", "fedavg", "fcf", "fedease", "pfpl+"])
def test_all_users_of_a_node_get_what_the_node_recommends(
    name: str, bare: Interactions, tmp_path: Path
) -> None:
    """Rows of users come from the server, from private state, or are solved on the node."""
    terms, paths = federation(name, bare, tmp_path)
    served(tmp_path, terms, InProcessNodes(paths))
    model = source_of(paths[0]).load()
    service = NodeService(NodeStore.open(paths[0]))
    users = NodeStore.open(paths[0]).users()
    assert set(model.user_index) == set(users)
    for user in users[:20]:
        found = json.loads(model.for_user(model.user_index[user], 5, exclude_seen=True))
        expected = service.recommend(user, 5)
        assert [one["item"] for one in found] == [one.item for one in expected]
        scores = [one["score"] for one in found]
        assert scores == pytest.approx([one.score for one in expected], abs=1e-6)


def test_other_users_histories_and_erased_users(bare: Interactions, tmp_path: Path) -> None:
    terms, paths = federation("fedals", bare, tmp_path)
    with pytest.raises(RunError, match="holds no model yet"):
        StoreFile(paths[0]).load()
    served(tmp_path, terms, InProcessNodes(paths))
    watching = ModelWatcher(source_of(paths[0]))
    api = Caller.of(watching)
    own, other = (NodeStore.open(path).users()[0] for path in paths)
    assert api.get("/recommendations", user=own).status == 200
    assert api.get("/recommendations", user=other).status == 404
    answer = api.post("/recommendations", {"history": [terms.items[0]]})
    assert answer.status == 422
    assert "recommends to its own" in answer.error
    assert api.get("/similar-items", item=terms.items[0]).status == 200
    about = api.get("/model").data
    assert (about["source"], about["trained_at"]) == ("node store", None)
    NodeStore.open(paths[0]).forget(own)
    watching.check()
    assert api.get("/health").data["status"] == "ok"
    assert api.get("/recommendations", user=own).status == 404
    assert watching.current.version != about["version"]
