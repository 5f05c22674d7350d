"""`coterie choose`: the table, JSON, the report, mistakes and Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import SMALL, Done, settings, start

Command = Callable[..., Done]
BRIEF = ["--minutes", "0.01", *SMALL]


def test_choose_prints_a_table_and_a_recommendation(coterie: Command, tmp_path: Path) -> None:
    done = coterie("choose", "--may-leave", "sums", *BRIEF)
    assert done.code == 0, done.err
    written = json.loads((tmp_path / "runs" / "choose-synthetic-1" / "choice.json").read_text())
    for one in written["candidates"]:
        assert f"│ {one['algorithm']} " in done.out
        assert f"{one['value']:.4f}" in done.out
    assert "NDCG@10 by full ranking on the validation part" in done.out
    assert "not allowed: fedavg: in spite of secure aggregation a server sees of" in done.out
    assert f"next: coterie run {written['best']} --dataset synthetic" in done.out
    assert "report: runs/choose-synthetic-1/report.html" in done.out
    page = (tmp_path / "runs" / "choose-synthetic-1" / "report.html").read_text()
    assert "coterie choose --may-leave sums" in page
    assert re.search(r"\d of \d+: fedals: NDCG@10", done.err)


def test_choose_with_json_prints_one_object(coterie: Command) -> None:
    done = coterie("choose", "--may-leave", "disclosed", "--disclosure", "0.5", *BRIEF, "--json")
    found = json.loads(done.out)
    assert done.err == ""
    assert (found["may_leave"], found["disclosure"], found["part"]) == (
        "disclosed",
        0.5,
        "validation",
    )
    assert {one["algorithm"] for one in found["candidates"]} == {"sfpl", "sfpl+", "pfpl", "pfpl+"}
    assert found["best"] == max(found["candidates"], key=lambda one: one["value"])["algorithm"]


def test_choose_reads_a_file(coterie: Command, tmp_path: Path) -> None:
    lines = ["user_id,item_id,timestamp"]
    lines += [f"u{u},i{(u + k * k) % 12},{k}" for u in range(30) for k in range(5)]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    done = coterie(
        "choose", "--dataset", "mine.csv", "--may-leave", "sums", "--minutes", "0.01", "-q"
    )
    assert done.code == 0, done.err
    assert "left out: fl-dssm, fl-clsm: item texts are needed, and the data has none" in done.out
    assert (tmp_path / "runs" / "choose-mine-1" / "report.html").exists()


MISTAKES = [
    (["--may-leave", "all"], "--may-leave is 'all'; expected sums, updates or disclosed."),
    (["--may-leave", "sums", "--disclosure", "0.1"], "Set --may-leave disclosed."),
    (["--may-leave", "sums", "--set", "corre=5"], "Did you mean 'core'?"),
    (["--may-leave", "sums", "--set", "fedal.rounds=5"], "unknown method 'fedal'"),
    (["--may-leave", "sums", "--dataset", "nowhere.csv"], "nowhere.csv"),
]


@pytest.mark.parametrize(
    ("arguments", "complaint"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES]
)
def test_mistake_is_one_line(coterie: Command, arguments: list[str], complaint: str) -> None:
    assert complaint in coterie("choose", *arguments, "-q").error


def test_an_occupied_folder_is_refused_before_training(coterie: Command, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    done = coterie("choose", "--may-leave", "sums", *BRIEF, "--out", "full", "-q")
    assert "full exists and is not empty" in done.error


def test_interrupted_choice_leaves_nothing_behind(tmp_path: Path) -> None:
    endless = settings(**{"fcf.rounds": 10_000_000, "fedals.rounds": 9_000_000})
    process = start(
        "choose", "--may-leave", "sums", *SMALL, *endless, "--minutes", "60", cwd=tmp_path
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "fedease" in line:
            break
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
