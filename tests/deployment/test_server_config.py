"""What a server is asked to serve: the folder it leaves, and what it refuses."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from coterie.core.progress import SILENT, Progress
from coterie.deployment import certificates
from coterie.deployment.enrolment import FederationTerms, ItemContent
from coterie.deployment.flower.join import NodeUsers, join
from coterie.deployment.flower.processes import Address
from coterie.deployment.flower.serve import follow, serve
from coterie.deployment.server_config import prepare_folder
from coterie.errors import ConfigError, CoterieError, DataError, NoQuorum, RunError
from coterie.experiments import experiment
from coterie.experiments import folder as disk
from coterie.experiments.run import Run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "items.csv").write_text("item_id\nx\ny\n")
    place = tmp_path / "federation.yaml"
    place.write_text(
        f"algorithm: fedfast\nrounds: 3\nitems: {tmp_path / 'items.csv'}\nleast_nodes: 2\n"
    )
    return place


def test_a_folder_to_serve_from(config: Path, tmp_path: Path):
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    terms = FederationTerms.from_json((folder / "terms.json").read_text())
    assert (terms.items, terms.experiment.settings.rounds) == (["x", "y"], 3)  # type: ignore[attr-defined]
    assert json.loads((folder / "service.json").read_text())["least_nodes"] == 2
    assert prepare_folder(config, tmp_path / "run", SILENT) == folder
    assert FederationTerms.from_json((folder / "terms.json").read_text()).run == terms.run


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("algorithm: gmf", "gmf is trained in one place"),
        ("algorithm: fedbso\nsecure_aggregation: ring", "has to know everybody's own update"),
        ("client_dropout: 0.1", "'client_dropout' is 0.1, which is for simulations"),
        (
            "validation: true\npatience: 3",
            "'patience' is 3, which a federation of nodes cannot do yet",
        ),
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
    config.write_text(
        "\n".join([*(line for line in lines if not (own_steps and "rounds" in line)), change])
    )
    with pytest.raises(ConfigError, match=told):
        prepare_folder(config, tmp_path / "run", SILENT)
    assert not (tmp_path / "run").exists()


def test_towers_need_titles(config: Path, tmp_path: Path):
    config.write_text(config.read_text().replace("fedfast", "sttfedrec-dssm"))
    with pytest.raises(
        DataError, match=r"items\.csv: has no column title, and sttfedrec-dssm reads"
    ):
        prepare_folder(config, tmp_path / "run", SILENT)
    (tmp_path / "items.csv").write_text(
        "item_id,title,categories,body\nx,Heat,crime|city,\ny,Alien,space,long\nx,Heat!,crime,\n"
    )
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    terms = FederationTerms.from_json((folder / "terms.json").read_text())
    assert (terms.items, terms.titles) == (["x", "y"], ["Heat!", "Alien"])
    told = ItemContent.from_json((folder / "told.json").read_text())
    assert (told.categories, told.bodies) == ([["crime"], ["space"]], ["", "long"])


def test_a_federation_goes_on_as_it_began(config: Path, tmp_path: Path):
    """How long it waits for nodes may change, and nothing that is trained."""
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    config.write_text(config.read_text() + "quorum: 0.9\n")
    assert prepare_folder(config, folder, SILENT) == folder
    assert json.loads((folder / "service.json").read_text())["quorum"] == 0.9
    config.write_text(config.read_text().replace("rounds: 3", "rounds: 4"))
    with pytest.raises(ConfigError, match="setting 'rounds' is 4, but the federation began with 3"):
        prepare_folder(config, folder, SILENT)


def test_a_finished_federation_is_finished(config: Path, tmp_path: Path):
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    (folder / "status.json").write_text('{"state": "finished"}')
    said = Said()
    serve(config, "127.0.0.1:8017", folder, None, True, said)
    assert said.lines == [f"{folder} is finished; nothing is left to do"]


class Said(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)


def test_faults_are_to_be_changed_where_they_stand(config: Path, tmp_path: Path):
    config.write_text(config.read_text() + "quorum: 7\n")
    with pytest.raises(ConfigError, match=r"'quorum' is 7.*Change it in .*federation\.yaml\.$"):
        prepare_folder(config, tmp_path / "run", SILENT)
    config.write_text("algorithm: fedfast\n")
    with pytest.raises(ConfigError, match="names no items; expected `items: FILE`"):
        prepare_folder(config, tmp_path / "run", SILENT)


def test_what_is_no_run_of_one_machine(config: Path, tmp_path: Path):
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    with pytest.raises(RunError, match="is a federation's; expected a run of one machine"):
        experiment.resume(folder)
    with pytest.raises(RunError, match="whose people are on nodes: coterie recommend --node STORE"):
        Run.peek(folder)


@pytest.mark.parametrize(
    ("server", "insecure", "told"),
    [
        (
            "10.0.0.9:8000",
            False,
            r"the certificate in .* is for 127\.0\.0\.1, server\.example; expected one of those",
        ),
        ("127.0.0.1:8000", True, "--keys and --insecure are both given"),
    ],
)
def test_who_a_server_is(config: Path, tmp_path: Path, server: str, insecure: bool, told: str):
    certificates.init(tmp_path / "keys", ["127.0.0.1", "server.example"], [])
    with pytest.raises(ConfigError, match=told):
        serve(config, server, tmp_path / "run", tmp_path / "keys", insecure, SILENT)
    assert not (tmp_path / "run").exists()


def test_a_port_that_is_taken(config: Path, tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="cannot be used"):
            serve(
                config, f"127.0.0.1:{taken.getsockname()[1]}", tmp_path / "run", None, True, SILENT
            )
    assert not (tmp_path / "run").exists()


def test_a_store_is_one_nodes(tmp_path: Path):
    (tmp_path / "mine.csv").write_text("user_id,item_id\nann,x\n")
    with (
        disk.held(made(tmp_path / "node.flower")),
        pytest.raises(RunError, match=r"node\.db is in use by another coterie join"),
    ):
        join(
            NodeUsers(tmp_path / "mine.csv", {}),
            tmp_path / "node.db",
            "127.0.0.1:9",
            (None, None),
            True,
            SILENT,
        )


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_items_have_to_be_somewhere(config: Path, tmp_path: Path):
    (tmp_path / "items.csv").unlink()
    with pytest.raises(DataError, match=r"items\.csv: does not exist"):
        prepare_folder(config, tmp_path / "run", SILENT)


def test_the_servers_failure_is_our_program(tmp_path: Path):
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
def test_a_node_shows_who_it_is_and_knows_whom_it_trusts(
    tmp_path: Path, key: str | None, ca: str | None
):
    proof = key and tmp_path / key, ca and tmp_path / ca
    with pytest.raises(ConfigError, match="expected both"):
        join(
            NodeUsers(tmp_path / "mine.csv", {}),
            tmp_path / "node.db",
            "127.0.0.1:8000",
            proof,
            True,
            SILENT,
        )  # type: ignore[arg-type]
    assert not (tmp_path / "node.db").exists()


@pytest.mark.parametrize(
    ("text", "told"), [("nowhere", "expected HOST:PORT"), ("host:99999", "expected HOST:PORT")]
)
def test_addresses(text: str, told: str):
    with pytest.raises(ConfigError, match=told):
        Address.of(text)


def test_in_the_clear_on_loopback_alone():
    Address.of("127.0.0.1:8000").refuse_plaintext(True, "keys")
    with pytest.raises(ConfigError, match="could be read and changed on the way"):
        Address.of("10.0.0.5:8000").refuse_plaintext(True, "keys")
    with pytest.raises(ConfigError, match="no certificates are named"):
        Address.of("127.0.0.1:8000").refuse_plaintext(False, "keys")
