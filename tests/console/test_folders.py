"""What the console may read: runs in the named folders, and nothing by way of links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from consoles import write_run

from coterie.console.folders import DEEPEST, Folders, id_of
from coterie.console.summaries import RunSummaries
from coterie.errors import ConfigError


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in Folders.of([folder]).found().values())


def test_runs_federations_and_papers_are_found(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one")
    (tmp_path / "runs" / "hospital").mkdir()
    (tmp_path / "runs" / "hospital" / "terms.json").write_text("{}")
    (tmp_path / "runs" / "paper").mkdir()
    (tmp_path / "runs" / "paper" / "found.json").write_text("{}")
    kinds = {one.name: one.kind for one in Folders.of([tmp_path / "runs"]).found().values()}
    assert kinds == {"one": "run", "hospital": "federation", "paper": "paper"}


def test_a_named_folder_may_be_a_run_itself(tmp_path: Path) -> None:
    assert names(write_run(tmp_path / "one")) == ["one"]


def test_hidden_and_deep_folders_are_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / ".trash" / "one")
    write_run(tmp_path.joinpath(*"abcd"[:DEEPEST]))
    write_run(tmp_path.joinpath(*"efgh"[: DEEPEST + 1]))
    assert names(tmp_path) == ["a/b/c"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    secret = write_run(tmp_path / "elsewhere" / "secret")
    root = tmp_path / "runs"
    root.mkdir()
    (root / "linked").symlink_to(secret)
    half = root / "half"
    half.mkdir()
    (half / "config.yaml").write_text("algorithm: fedavg\n")
    (half / "result.json").symlink_to(secret / "result.json")
    folders = Folders.of([root])
    (found,) = folders.found().values()
    assert found.name == "half"
    assert not found.has("result.json")
    summary = RunSummaries().of(found)
    assert (summary.state, summary.value) == ("stopped", None)
    assert not folders.holds(root / "linked" / "result.json")
    assert not folders.holds(root / ".." / "elsewhere" / "secret")
    assert folders.holds(half / "config.yaml")


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.yaml").write_text("algorithm: fedavg\n")
    os.mkfifo(tmp_path / "one" / "result.json")
    (found,) = Folders.of([tmp_path]).found().values()
    assert RunSummaries().of(found).algorithm == "fedavg"


def test_ids_are_those_of_paths(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one")
    other = write_run(tmp_path / os.fsdecode(b"\xff<b>"))
    found = Folders.of([tmp_path]).found()
    assert {one.path for one in found.values()} == {one, other}
    assert id_of(one) in found
    assert all(len(key) == 16 and key.isalnum() for key in found)


def test_a_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; expected a folder with runs"):
        Folders.of([tmp_path / "runs"])


def test_data_files_are_plain_files_of_the_folders(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user_id,item_id\n1,2\n")
    (tmp_path / "b.exe").write_text("")
    (tmp_path / "c.csv").symlink_to("/etc/hostname")
    assert Folders.of([tmp_path]).data_files() == [tmp_path / "a.csv"]
