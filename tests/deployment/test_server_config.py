"""The config file of a server: the folder made from it, and what is refused."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from coterie.attacks.poisoning.replay import attack_run
from coterie.core.progress import SILENT, Progress
from coterie.deployment import certificates
from coterie.deployment.address import Address
from coterie.deployment.enrolment import FederationTerms, ItemContent
from coterie.deployment.fleet.join import NodeUsers, join
from coterie.deployment.fleet.serve import serve, update_status
from coterie.deployment.server_config import prepare_folder
from coterie.deployment.server_folder import FORMAT
from coterie.errors import ConfigError, DataError, RunError
from coterie.experiments import experiment, run_folder
from coterie.experiments.finished_run import Run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "items.csv").write_text("item_id\nx\ny\n")
    place = tmp_path / "federation.yaml"
    place.write_text(
        f"algorithm: fedfast\nrounds: 3\nitems: {tmp_path / 'items.csv'}\nleast_nodes: 2\n"
    )
    return place


def test_a_new_run_folder(config: Path, tmp_path: Path):
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    terms = FederationTerms.from_json((folder / "terms.json").read_text())
    assert (terms.items, terms.experiment.settings.rounds) == (["x", "y"], 3)  # type: ignore[attr-defined]
    assert json.loads((folder / "service.json").read_text())["least_nodes"] == 2
    assert prepare_folder(config, tmp_path / "run", SILENT) == folder
    assert FederationTerms.from_json((folder / "terms.json").read_text()).run == terms.run


def test_an_unfinished_run_of_the_same_settings_is_named(config: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    warnings: list[str] = []

    class Warnings(Progress):
        def warn(self, line: str) -> None:
            warnings.append(line)

    assert prepare_folder(config, None, Warnings()) == Path("runs/fedfast-federation-1")
    assert warnings == []
    assert prepare_folder(config, None, Warnings()) == Path("runs/fedfast-federation-2")
    assert warnings == [
        "runs/fedfast-federation-1 has the same settings and is unfinished: resume it with "
        "the same command and --out runs/fedfast-federation-1"
    ]
    prepare_folder(config, tmp_path / "chosen", Warnings())
    assert len(warnings) == 1
    for n in (1, 2):
        # A server that has finished says so in its status; it writes no result.json.
        update_status(Path(f"runs/fedfast-federation-{n}"), "finished")
    prepare_folder(config, None, Warnings())
    assert warnings[1:] == [
        "runs/fedfast-federation-2 is a finished run of the same settings; this one is new",
    ]


def test_a_federation_s_run_is_not_replayed_without_data(config: Path, tmp_path: Path):
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    with pytest.raises(ConfigError, match=r"interactions are on its nodes.*--set dataset=NAME"):
        attack_run(folder, "noise")


@pytest.mark.parametrize(
    ("given", "requests"),
    [("", "whole"), ("requests: sticky\n", "sticky"), ("requests: resampled\n", "resampled")],
)
def test_people_request_all_items_by_default(config: Path, tmp_path: Path, given, requests):
    """Requests of a few items show clicks: fine for a paper's simulation, not for people."""
    pytest.importorskip("torch")
    items = tmp_path / "titles.csv"
    items.write_text("item_id,title\nx,a word\ny,another\n")
    config.write_text(f"algorithm: sttfedrec-dssm\n{given}items: {items}\n")
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    terms = FederationTerms.from_json((folder / "terms.json").read_text())
    assert terms.config["requests"] == requests


@pytest.mark.parametrize(
    ("given", "defence"),
    [
        ("", "bounded"),
        ("robust: none\n", "none"),
        ("secure_aggregation: secagg\n", "none"),
        ("secure_aggregation: secagg\nrobust: groups\n", "groups"),
    ],
)
def test_a_federation_is_defended_by_default(config: Path, tmp_path: Path, given, defence):
    config.write_text(config.read_text() + given)
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    terms = FederationTerms.from_json((folder / "terms.json").read_text())
    assert terms.config["robust"] == defence


def test_a_federation_keeps_the_defence_it_began_with(config: Path, tmp_path: Path):
    """One that began before there were defences has none."""
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    terms = json.loads((folder / "terms.json").read_text())
    terms["config"]["robust"] = "none"
    (folder / "terms.json").write_text(json.dumps(terms))
    assert prepare_folder(config, folder, SILENT) == folder


def test_a_folder_of_a_later_version_is_refused(config: Path, tmp_path: Path):
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    (folder / "format.json").write_text(json.dumps({"format": FORMAT + 1}))
    expected = f"has format {FORMAT + 1}, of a later Coterie; expected at most {FORMAT}. Update"
    with pytest.raises(RunError, match=expected):
        prepare_folder(config, tmp_path / "run", SILENT)
    (folder / "format.json").unlink()  # as in folders of early versions
    assert prepare_folder(config, tmp_path / "run", SILENT) == folder


@pytest.mark.parametrize("name", ["terms.json", "format.json"])
def test_a_damaged_folder_is_refused(config: Path, tmp_path: Path, name: str):
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    (folder / name).write_bytes(b"{\x00")
    with pytest.raises(RunError, match=rf"{name} cannot be read .* from a backup"):
        prepare_folder(config, tmp_path / "run", SILENT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("algorithm: gmf", "gmf is trained in one place"),
        (
            "algorithm: fedbso\nbest_user: loss\nsecure_aggregation: ring",
            "best_user=loss needs every client's own loss",
        ),
        ("client_dropout: 0.1", "'client_dropout' is 0.1, which is for simulations"),
        ("validation: true\npatience: 3", "'patience' is 3, but 'evaluate_every' is 0"),
        (
            "algorithm: fcf\nvalidation: true\npatience: 3\nevaluate_every: 1",
            "clients of fcf store a part of the model and have only the last one, not the best",
        ),
        ("algorithm: fedease\nopen: true", "users of fedease cannot join while it trains"),
        (
            "cluster_by: region",
            "'cluster_by' is 'region', which needs a feature of every user on the server",
        ),
        ("feedback: explicit\nheadline: RMSE", "'headline' is 'RMSE', which nodes do not report"),
        ("quorum: 2", "'quorum' is 2"),
        ("lest_nodes: 2", "unknown setting 'lest_nodes'. Did you mean 'least_nodes'"),
        ("split: global-time", "needs the interactions of all users in one place"),
    ],
)
def test_unsupported_settings_are_refused(config: Path, tmp_path: Path, change: str, message: str):
    key = change.partition(":")[0]
    lines = [line for line in config.read_text().splitlines() if not line.startswith(f"{key}:")]
    if change == "algorithm: gmf":
        lines = [line for line in lines if "rounds" not in line]  # gmf has no such setting
    config.write_text("\n".join([*lines, change]))
    with pytest.raises(ConfigError, match=message):
        prepare_folder(config, tmp_path / "run", SILENT)
    assert not (tmp_path / "run").exists()


def test_towers_need_titles(config: Path, tmp_path: Path):
    config.write_text(config.read_text().replace("fedfast", "sttfedrec-dssm"))
    with pytest.raises(
        DataError, match=r"items\.csv: column 'title' is missing, and sttfedrec-dssm reads"
    ):
        prepare_folder(config, tmp_path / "run", SILENT)
    (tmp_path / "items.csv").write_text(
        "item_id,title,categories,body\nx,Heat,crime|city,\ny,Alien,space,long\nx,Heat!,crime,\n"
    )
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    terms = FederationTerms.from_json((folder / "terms.json").read_text())
    assert (terms.items, terms.titles) == (["x", "y"], ["Heat!", "Alien"])
    content = ItemContent.from_json((folder / "told.json").read_text())
    assert (content.categories, content.bodies) == ([["crime"], ["space"]], ["", "long"])


def test_settings_of_a_resumed_federation_stay_the_same(config: Path, tmp_path: Path):
    """Settings of the server may change; settings of the experiment may not."""
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
    progress = RecordedProgress()
    serve(config, "127.0.0.1:8017", folder, None, True, progress)
    sees, defence, finished = progress.lines
    assert sees.startswith("without secure aggregation the server receives of every client: the ")
    assert defence.startswith("robust=bounded: ")
    assert finished == f"{folder} is finished; there is nothing to do"


class RecordedProgress(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)


def test_errors_name_the_config_file(config: Path, tmp_path: Path):
    config.write_text(config.read_text() + "quorum: 7\n")
    with pytest.raises(ConfigError, match=r"'quorum' is 7.*Change it in .*federation\.yaml\.$"):
        prepare_folder(config, tmp_path / "run", SILENT)
    config.write_text("algorithm: fedfast\n")
    with pytest.raises(ConfigError, match="names no items; expected `items: FILE`"):
        prepare_folder(config, tmp_path / "run", SILENT)


def test_other_commands_refuse_a_federations_folder(config: Path, tmp_path: Path):
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    with pytest.raises(RunError, match="belongs to a federation; expected a run of one machine"):
        experiment.resume(folder)
    with pytest.raises(
        RunError, match="whose users are on nodes: there, use coterie recommend --node STORE"
    ):
        Run.peek(folder)


def test_a_server_has_keys_or_is_insecure(config: Path, tmp_path: Path):
    certificates.init(tmp_path / "keys", ["127.0.0.1"])
    with pytest.raises(ConfigError, match="--keys and --insecure are both given"):
        serve(config, "127.0.0.1:8000", tmp_path / "run", tmp_path / "keys", True, SILENT)
    assert not (tmp_path / "run").exists()


def test_an_address_of_another_machine(config: Path, tmp_path: Path):
    """192.0.2.1 is for documentation: no machine has it."""
    certificates.init(tmp_path / "keys", ["192.0.2.1"])
    with pytest.raises(RunError, match=r"cannot listen at 192\.0\.2\.1:8000: this machine has no"):
        serve(config, "192.0.2.1:8000", tmp_path / "run", tmp_path / "keys", False, SILENT)
    with pytest.raises(RunError, match=r"no address is known of nowhere\.invalid"):
        serve(config, "nowhere.invalid:8000", tmp_path / "run", tmp_path / "keys", False, SILENT)
    assert not (tmp_path / "run").exists()


def test_a_port_that_is_taken(config: Path, tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RunError, match=r"cannot listen at .*: something listens there"):
            serve(
                config, f"127.0.0.1:{taken.getsockname()[1]}", tmp_path / "run", None, True, SILENT
            )
    assert not (tmp_path / "run").exists()


def test_a_store_serves_one_node(tmp_path: Path):
    (tmp_path / "mine.csv").write_text("user_id,item_id\nann,x\n")
    with (
        run_folder.locked_file(tmp_path / "node.lock", "locked twice"),
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


def test_a_missing_item_file(config: Path, tmp_path: Path):
    (tmp_path / "items.csv").unlink()
    with pytest.raises(DataError, match=r"items\.csv: does not exist"):
        prepare_folder(config, tmp_path / "run", SILENT)


@pytest.mark.parametrize(("key", "ca"), [("a.key", None), (None, "ca.pem")])
def test_a_node_needs_both_key_and_ca(tmp_path: Path, key: str | None, ca: str | None):
    credentials = key and tmp_path / key, ca and tmp_path / ca
    with pytest.raises(ConfigError, match="expected both"):
        join(
            NodeUsers(tmp_path / "mine.csv", {}),
            tmp_path / "node.db",
            "127.0.0.1:8000",
            credentials,  # type: ignore[arg-type]
            True,
            SILENT,
        )
    assert not (tmp_path / "node.db").exists()


@pytest.mark.parametrize(
    ("text", "message"), [("nowhere", "expected HOST:PORT"), ("host:99999", "expected HOST:PORT")]
)
def test_addresses(text: str, message: str):
    with pytest.raises(ConfigError, match=message):
        Address.of(text)


def test_plaintext_is_allowed_on_loopback_only():
    Address.of("127.0.0.1:8000").refuse_plaintext(True, "keys")
    with pytest.raises(ConfigError, match="could be read and changed on the way"):
        Address.of("10.0.0.5:8000").refuse_plaintext(True, "keys")
    with pytest.raises(ConfigError, match="no certificates are named"):
        Address.of("127.0.0.1:8000").refuse_plaintext(False, "keys")
