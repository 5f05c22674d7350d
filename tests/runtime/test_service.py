"""What a server is asked to serve: the folder it leaves, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.errors import ConfigError, CoterieError, DataError, NoQuorum, RunError
from coterie.progress import SILENT
from coterie.runtime.enrolment import Terms, Told
from coterie.runtime.flower.join import People, join
from coterie.runtime.flower.processes import Address
from coterie.runtime.flower.serve import follow
from coterie.runtime.service import prepared


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "items.csv").write_text("item_id\nx\ny\n")
    place = tmp_path / "federation.yaml"
    place.write_text(f"algorithm: fedfast\nrounds: 3\nitems: {tmp_path / 'items.csv'}\nleast_nodes: 2\n")
    return place


def test_a_folder_to_serve_from(config: Path, tmp_path: Path):
    folder = prepared(config, tmp_path / "run", SILENT)
    terms = Terms.from_json((folder / "terms.json").read_text())
    assert (terms.items, terms.experiment.settings.rounds) == (["x", "y"], 3)  # type: ignore[attr-defined]
    assert json.loads((folder / "service.json").read_text())["least_nodes"] == 2
    assert prepared(config, tmp_path / "run", SILENT) == folder
    assert Terms.from_json((folder / "terms.json").read_text()).run == terms.run


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("algorithm: gmf", "gmf is trained in one place"),
        ("algorithm: fedbso\nprotect: ring", "has to know everybody's own update"),
        ("drop_out: 0.1", "'drop_out' is 0.1, which is for simulations"),
        ("validation: true\npatience: 3", "'patience' is 3, which a federation of nodes cannot do yet"),
        ("cluster_by: region", "features of people stay with them"),
        ("quorum: 2", "'quorum' is 2"),
        ("lest_nodes: 2", "unknown setting 'lest_nodes'"),
        ("split: global-time", "needs everybody's interactions in one place"),
    ],
)
def test_what_cannot_be_served(config: Path, tmp_path: Path, change: str, told: str):
    key = change.partition(":")[0]
    lines = [line for line in config.read_text().splitlines() if not line.startswith(f"{key}:")]
    own_steps = change == "algorithm: gmf"
    config.write_text("\n".join([*(line for line in lines if not (own_steps and "rounds" in line)), change]))
    with pytest.raises(ConfigError, match=told):
        prepared(config, tmp_path / "run", SILENT)
    assert not (tmp_path / "run").exists()


def test_towers_need_titles(config: Path, tmp_path: Path):
    config.write_text(config.read_text().replace("fedfast", "sttfedrec-dssm"))
    with pytest.raises(DataError, match=r"items\.csv: has no column title, and sttfedrec-dssm reads"):
        prepared(config, tmp_path / "run", SILENT)
    (tmp_path / "items.csv").write_text(
        "item_id,title,categories,body\nx,Heat,crime|city,\ny,Alien,space,long\nx,Heat!,crime,\n"
    )
    folder = prepared(config, tmp_path / "run", SILENT)
    terms = Terms.from_json((folder / "terms.json").read_text())
    assert (terms.items, terms.titles) == (["x", "y"], ["Heat!", "Alien"])
    told = Told.from_json((folder / "told.json").read_text())
    assert (told.categories, told.bodies) == ([["crime"], ["space"]], ["", "long"])


def test_items_have_to_be_somewhere(config: Path, tmp_path: Path):
    (tmp_path / "items.csv").unlink()
    with pytest.raises(DataError, match=r"items\.csv: does not exist"):
        prepared(config, tmp_path / "run", SILENT)


def test_the_servers_failure_is_ours(tmp_path: Path):
    (tmp_path / "failed.json").write_text('{"exit_code": 3, "error": "0 of 2 nodes"}')
    with pytest.raises(NoQuorum, match="0 of 2 nodes"):
        follow(tmp_path, lambda: None, SILENT)
    (tmp_path / "failed.json").unlink()
    with pytest.raises(RunError, match="stopped with code 9"):
        follow(tmp_path, lambda: 9, SILENT)


def test_a_fault_of_ours_is_no_users_mistake(tmp_path: Path):
    (tmp_path / "failed.json").write_text('{"exit_code": 1, "error": "KeyError()"}')
    with pytest.raises(CoterieError, match="KeyError") as raised:
        follow(tmp_path, lambda: None, SILENT)
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(("key", "ca"), [("a.key", None), (None, "ca.pem")])
def test_a_node_shows_who_it_is_and_knows_whom_it_trusts(tmp_path: Path, key: str | None, ca: str | None):
    proof = key and tmp_path / key, ca and tmp_path / ca
    with pytest.raises(ConfigError, match="expected both"):
        join(People(tmp_path / "mine.csv", {}), tmp_path / "node.db", "127.0.0.1:8000", proof, True, SILENT)  # type: ignore[arg-type]
    assert not (tmp_path / "node.db").exists()


@pytest.mark.parametrize(("text", "told"), [("nowhere", "expected HOST:PORT"), ("host:99999", "expected HOST:PORT")])
def test_addresses(text: str, told: str):
    with pytest.raises(ConfigError, match=told):
        Address.of(text)


def test_in_the_clear_on_loopback_alone():
    Address.of("127.0.0.1:8000").refuse_in_the_clear(True, "keys")
    with pytest.raises(ConfigError, match="could be read and changed on the way"):
        Address.of("10.0.0.5:8000").refuse_in_the_clear(True, "keys")
    with pytest.raises(ConfigError, match="no certificates are named"):
        Address.of("127.0.0.1:8000").refuse_in_the_clear(False, "keys")
