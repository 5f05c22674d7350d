"""`coterie attack`: the table, the files it writes, and mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import SMALL, Done, call_apart

Command = Callable[..., Done]


@pytest.fixture(scope="session")
def attacked_run(place: Path) -> Path:
    folder = place / "attacked"
    done = call_apart(
        "run", "fedavg", *SMALL, "--set", "rounds=3", "--json", "--out", folder, cwd=place
    )
    assert done.code == 0, done.err
    return folder


def test_prints_a_table_and_writes_two_files(coterie: Command, attacked_run: Path) -> None:
    before = (attacked_run / "result.json").read_bytes()
    done = coterie("attack", attacked_run, "--attack", "noise", "--set", "amplitude=2")
    assert done.code == 0, done.err
    assert "ER@10 of the target" in done.out
    assert "attack.html" in done.out
    assert "1 of 60 users attack" in (attacked_run / "attack.html").read_text()
    assert (attacked_run / "result.json").read_bytes() == before


def test_json_is_the_file_and_nothing_else(coterie: Command, attacked_run: Path) -> None:
    done = coterie("attack", attacked_run, "-a", "boost", "--share", "0.1", "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found == json.loads((attacked_run / "attack.json").read_text())
    assert (found["attack"], found["attackers"]) == ("boost", 6)


def test_settings_of_the_run_can_be_changed(coterie: Command, attacked_run: Path) -> None:
    done = coterie(
        "attack", attacked_run, "--set", "rounds=1", "--set", "participation=1", "--json"
    )
    assert json.loads(done.out)["selected"] == {"clean": 1, "attacked": 1}


def test_what_was_changed_is_in_the_report_of_another_folder(
    coterie: Command, attacked_run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "defended"
    arguments = ["attack", attacked_run, "--set", "robust=bounded", "--set", "rounds=2"]
    done = coterie(*arguments, "--out", out)
    assert done.code == 0, done.err
    assert "Settings that differ from the run's: robust=bounded, rounds=2." in done.out
    found = json.loads((out / "attack.json").read_text())
    assert (found["changes"], found["steps"]) == ({"robust": "bounded", "rounds": 2}, 2)
    assert "is not empty; expected a new folder" in coterie(*arguments, "--out", out).error


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--set", "dataset=ml-1m"], "setting 'dataset' is 'ml-1m'; expected that of the run"),
        (["--set", "algorithm=fcf"], "setting 'algorithm' is 'fcf'; expected that of the run"),
        (["--seed", "-1"], "the seed of the attackers is -1; expected 0 or more"),
        (
            ["-a", "pieck", "--set", "amplitude=4"],
            "setting 'amplitude' is of the attack noise, and the attack is pieck; expected one of",
        ),
        (["--attack", "nois"], "unknown attack 'nois'. Did you mean 'noise'?"),
        (["--share", "1.5"], "the share of attackers is 1.5; expected more than 0"),
        (["--target", "none such"], "unknown item 'none such' in --target."),
        (["--set", "amplitude=9"], "setting 'amplitude' is 9; input should be less than 8"),
        (["--set", "amplitud=9"], "unknown setting 'amplitud'"),
        (
            ["--attack", "takeover"],
            "attack 'takeover' does not apply to this algorithm: its server",
        ),
    ],
)
def test_mistakes(coterie: Command, attacked_run: Path, arguments: list[str], error: str) -> None:
    assert error in coterie("attack", attacked_run, "--quiet", *arguments).error
