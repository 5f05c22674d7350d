"""Backups of a server: a copied run folder resumes, and what it needs of the nodes' stores."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from deployment.test_enrolment import stores
from deployment.test_server import InProcessNodes, Stop, same, simulated

from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.node_service import SIMULATED, NodeService
from coterie.deployment.server import serve
from coterie.deployment.server_config import ServerConfig, prepare_folder
from coterie.experiments.history import Point

DOCS = Path(__file__).parents[2] / "docs"
ROUNDS = {"fedfast": "rounds: 4", "pfpl+": "epochs: 2\nrounds_an_epoch: 2"}
Fails = Callable[[str, int, int], bool]


@dataclass(frozen=True)
class Site:
    """A server's config file and the stores of two nodes."""

    folder: Path
    people: Interactions

    @property
    def config(self) -> Path:
        return self.folder / "federation.yaml"

    @property
    def stores(self) -> list[Path]:
        return sorted((self.folder / "nodes").glob("*.db"))

    def terms(self, run: Path) -> FederationTerms:
        return FederationTerms.from_json((run / "terms.json").read_text())

    def serve(self, run: Path, fails: Fails = lambda *call: False) -> Point:
        """What `coterie serve --config FILE --out RUN` does, with nodes in this process."""
        prepare_folder(self.config, run, SILENT)
        service = ServerConfig.of(json.loads((run / "service.json").read_text()))
        return serve(run, self.terms(run), InProcessNodes(self.stores, fails), service)

    def equals_the_simulation(self, point: Point, run: Path) -> bool:
        return same(point.state, simulated(self.terms(run), self.people))


def new_stores(people: Interactions, folder: Path) -> None:
    folder.mkdir()
    for store in stores(people, folder, 2):
        NodeService(store).set_seed(SIMULATED)
        store.close()


def new_site(name: str, people: Interactions, folder: Path) -> Site:
    site = Site(folder, people)
    new_stores(people, folder / "nodes")
    (folder / "items.csv").write_text("\n".join(["item_id", *map(str, people.item_ids)]))
    site.config.write_text(
        f"algorithm: {name}\nembedding_size: 5\n{ROUNDS[name]}\nitems: {folder / 'items.csv'}\n"
        "wait_seconds: 1\nleast_nodes: 2\n"
    )
    assert site.stores
    return site


def stopping_at(at: int, before: Callable[[], object] = lambda: None, early: int = 0) -> Fails:
    """Stop the server at a call; `before` runs at an earlier one."""

    def fails(kind: str, node: int, call: int) -> bool:
        if call == early and node == 0:
            before()
        if call == at and node == 1:
            raise Stop
        return False

    return fails


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_copy_of_a_stopped_server_resumes(name: str, at: int, people, tmp_path: Path):
    """The original is lost: the copy, with another path, ends with the same model."""
    site = new_site(name, people, tmp_path)
    run = tmp_path / "run"
    with pytest.raises(Stop):
        site.serve(run, stopping_at(at))
    copy = shutil.copytree(run, tmp_path / "elsewhere" / "restored")
    shutil.rmtree(run)
    point = site.serve(copy)
    assert site.equals_the_simulation(point, copy)
    assert json.loads((copy / "status.json").read_text())["state"] == "finished"


def test_a_copy_of_a_finished_server_sends_nothing(people, tmp_path: Path):
    site = new_site("pfpl+", people, tmp_path)
    run = tmp_path / "run"
    site.serve(run)
    copy = shutil.copytree(run, tmp_path / "copy")
    called: list[str] = []

    def seen(kind: str, node: int, call: int) -> bool:
        called.append(kind)
        return False

    point = site.serve(copy, seen)
    assert set(called) <= {"enrol"}
    assert site.equals_the_simulation(point, copy)
    assert (copy / "model.npz").read_bytes() == (run / "model.npz").read_bytes()


def restored(name: str, people: Interactions, folder: Path, with_stores: bool) -> tuple[Site, Path]:
    """A server that is restored from a backup which is two rounds old."""
    site = new_site(name, people, folder)
    run = folder / "run"

    def back_up() -> None:
        shutil.copytree(run, folder / "backup")
        shutil.copytree(folder / "nodes", folder / "backup of nodes")

    with pytest.raises(Stop):
        site.serve(run, stopping_at(5, before=back_up, early=3))
    rounds = [
        json.loads((path / "status.json").read_text())["round"] for path in (run, folder / "backup")
    ]
    assert rounds[0] == rounds[1] + 2
    if with_stores:
        shutil.rmtree(folder / "nodes")
        shutil.copytree(folder / "backup of nodes", folder / "nodes")
    return site, folder / "backup"


@pytest.mark.parametrize(
    ("name", "with_stores"), [("fedfast", False), ("fedfast", True), ("pfpl+", True)]
)
def test_an_old_backup_gives_the_same_model(name, with_stores, people, tmp_path: Path):
    """Without private client state the backup of the server is enough. With it, the stores of the
    nodes must be as old."""
    site, backup = restored(name, people, tmp_path, with_stores)
    assert site.equals_the_simulation(site.serve(backup), backup)


def test_users_whose_private_state_is_newer_than_the_backup_drop_out(people, tmp_path: Path):
    """The documented limit: their nodes cannot go back, and the status counts them."""
    site, backup = restored("pfpl+", people, tmp_path, with_stores=False)
    before = dropped(backup)
    point = site.serve(backup)
    assert not site.equals_the_simulation(point, backup)
    assert dropped(backup) >= before + len(people.user_ids)
    assert all(np.isfinite(array).all() for array in point.state.shared_arrays().values())


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
def test_a_node_that_lost_its_store(name: str, people, tmp_path: Path):
    """Only private client state is lost with it; its users then count as dropped."""
    site = new_site(name, people, tmp_path)
    run = tmp_path / "run"
    with pytest.raises(Stop):
        site.serve(run, stopping_at(4))
    new_stores(people, tmp_path / "new")
    shutil.copy(tmp_path / "new" / site.stores[1].name, site.stores[1])
    point = site.serve(run)
    without_state = name == "fedfast"
    assert site.equals_the_simulation(point, run) == without_state
    assert (dropped(run) == 0) == without_state


def dropped(run: Path) -> int:
    return int(json.loads((run / "status.json").read_text())["dropped"])


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
def test_the_page_names_every_file_of_a_server(name: str, people, tmp_path: Path):
    site = new_site(name, people, tmp_path)
    run = tmp_path / "run"
    found = set()

    def look() -> None:
        found.update(path.name for path in run.iterdir())

    site.serve(run, stopping_at(99, before=look, early=4))
    found |= {path.name for path in run.iterdir()}
    page = (DOCS / "operations.md").read_text()
    named = set(re.findall(r"`([\w.-]+\.(?:json|jsonl|npz|yaml))`", page))
    numbered = {re.sub(r"-\d+\.npz", "-N.npz", file) for file in found if not file.startswith(".")}
    assert numbered <= named
