"""`coterie disclosure`: the table, the files it writes, and mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import SMALL, Done, call_apart

Command = Callable[..., Done]
WARNING = "pi is a disclosure rate, not a privacy guarantee."


@pytest.fixture(scope="session")
def disclosing_run(place: Path) -> Path:
    folder = place / "pfpl"
    done = call_apart(
        "run", "pfpl+", *SMALL, "--set", "epochs=2", "--json", "--out", folder, cwd=place
    )
    assert done.code == 0, done.err
    return folder


def test_prints_a_table_and_writes_two_files(coterie: Command, disclosing_run: Path) -> None:
    before = (disclosing_run / "result.json").read_bytes()
    done = coterie("disclosure", disclosing_run, "--rounds", "1,5")
    assert done.code == 0, done.err
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in done.out.splitlines()
        if line[:1] == "│"
    ]
    assert [row[:2] for row in rows[:2]] == [["1", "bias-sign"], ["1", "factor-sign"]]
    assert [row[3].split("/")[0] for row in rows if row[1] == "bias-sign"] == ["1.000", "1.000"]
    assert WARNING in done.out
    assert "disclosure.md" in done.out
    assert "Replaying pfpl+" in done.err
    assert WARNING in (disclosing_run / "disclosure.md").read_text()
    assert (disclosing_run / "result.json").read_bytes() == before


def test_json_is_the_file_and_nothing_else(coterie: Command, disclosing_run: Path) -> None:
    done = coterie("disclosure", disclosing_run, "--rounds", "2", "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found == json.loads((disclosing_run / "disclosure.json").read_text())
    assert (found["algorithm"], found["warning"]) == ("pfpl+", WARNING)
    assert {line["rounds"] for line in found["figures"]} == {2}


def test_quiet_still_prints_the_warning(coterie: Command, disclosing_run: Path) -> None:
    done = coterie("disclosure", disclosing_run, "--rounds", "1", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert WARNING in done.out
    assert "popular:" not in done.out


def test_fits_a_screen_of_eighty_columns(
    disclosing_run: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = call_apart("disclosure", disclosing_run, "--rounds", "1", "--quiet", cwd=place)
    drawn = [line for line in done.out.splitlines() if line[:1] in ("│", "┃")]
    assert max(map(len, drawn)) <= 80
    assert any("factor-sign" in line for line in drawn), "no word is cut"


@pytest.mark.parametrize(
    ("name", "attackers"),
    [("fedals", ["ids", "scores", "pursuit"]), ("fedease", ["ids"]), ("fedslim", ["ids"])],
)
def test_algorithms_of_sums(coterie: Command, place: Path, name: str, attackers: list[str]) -> None:
    folder = place / name
    done = call_apart("run", name, *SMALL, "--set", "rounds=1", "--out", folder, cwd=place)
    assert done.code == 0, done.err
    done = coterie("disclosure", folder, "--rounds", "1")
    assert done.code == 0, done.err
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in done.out.splitlines()
        if line[:1] == "│"
    ]
    assert [row[1] for row in rows] == attackers
    assert [cell.split("/")[0] for cell in rows[0][3:6]] == ["1.000", "1.000", "1.000"]
    assert "Nothing is private." in done.out
    assert "the item ids that a client sends" in (folder / "disclosure.md").read_text()


def test_help(coterie: Command) -> None:
    done = coterie("disclosure", "--help")
    assert done.code == 0
    assert "Run folder" in done.out
    assert WARNING in " ".join(done.out.replace("│", " ").split())


def test_wrong_folder(coterie: Command, tmp_path: Path) -> None:
    assert "does not exist" in coterie("disclosure", "nowhere").error
    (tmp_path / "empty").mkdir()
    assert "has no config.yaml" in coterie("disclosure", "empty").error
    (tmp_path / "file").write_text("")
    assert "it is a file" in coterie("disclosure", "file").error


def test_wrong_algorithm(coterie: Command, bpr_run: Path) -> None:
    line = coterie("disclosure", bpr_run).error
    assert "algorithm is bpr" in line
    for name in ("sfpl", "sfpl+", "pfpl", "pfpl+", "fcf", "fedals", "fedease", "fedslim"):
        assert name in line
    assert not (bpr_run / "disclosure.md").exists()


@pytest.mark.parametrize("rounds", ["ten", "1,x", "0", "3,-2", ""])
def test_wrong_rounds(coterie: Command, disclosing_run: Path, rounds: str) -> None:
    line = coterie("disclosure", disclosing_run, f"--rounds={rounds}").error
    assert "rounds" in line
    assert "10" in line
