"""Whole runs in their own process: the output and the run folder."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from calling import SMALL, Done, call_apart, start

KEYS = ["algorithm", "dataset", "protocol", "seed", "rounds", "seconds", "bytes_up", "bytes_down"]
KEYS += ["metrics", "full", "run"]
LONG = ["--set", "epochs=10000000", "--set", "evaluate_every=5"]


def arrays(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "model.npz", allow_pickle=False) as packed:
        return {name: packed[name] for name in packed.files}


def same_arrays(one: Path, other: Path) -> bool:
    a = arrays(one)
    b = arrays(other)
    return a.keys() == b.keys() and all(
        a[n].tobytes() == b[n].tobytes() and a[n].dtype == b[n].dtype for n in a
    )


def test_json_is_one_object_on_standard_output_and_nothing_else(
    json_run: tuple[Done, Path],
) -> None:
    done, folder = json_run
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("}\n")
    assert done.out.count("\n") == 1
    result = json.loads(done.out)
    assert list(result)[: len(KEYS)] == KEYS
    choice = [result[key] for key in ("algorithm", "dataset", "protocol", "seed")]
    assert choice == ["bpr", "synthetic", "loo-50", 0]
    assert (result["rounds"], result["bytes_up"], result["bytes_down"]) == (4, 0, 0)
    assert result["seconds"] > 0
    assert Path(result["run"]) == folder


def test_result_file_is_the_object_that_was_printed(json_run: tuple[Done, Path]) -> None:
    done, folder = json_run
    assert json.loads((folder / "result.json").read_text()) == json.loads(done.out)


def test_metrics_have_their_documented_names(json_run: tuple[Done, Path]) -> None:
    result = json.loads(json_run[0].out)
    accuracy = {"HR@10", "NDCG@10", "MRR@10", "P@10", "R@10", "F1@10", "AUC"}
    assert accuracy <= result["metrics"].keys()
    assert accuracy | {"IC@10", "Gini@10"} <= result["full"].keys()
    assert all(np.isfinite(v) for part in ("metrics", "full") for v in result[part].values())


def test_config_of_a_run_repeats_it_bit_for_bit(bpr_run: Path, place: Path) -> None:
    done = call_apart("run", bpr_run / "config.yaml", "--json", "--out", place / "again", cwd=place)
    first = json.loads((bpr_run / "result.json").read_text())
    again = json.loads(done.out)
    assert same_arrays(bpr_run, place / "again")
    assert (first["metrics"], first["full"]) == (again["metrics"], again["full"])
    assert (bpr_run / "users.csv").read_bytes() == (place / "again" / "users.csv").read_bytes()
    assert (bpr_run / "config.yaml").read_bytes() == (place / "again" / "config.yaml").read_bytes()


def test_mistake_is_one_line_and_exit_code_2(place: Path) -> None:
    done = call_apart("run", "bpr", "--set", "embeding_size=3", cwd=place)
    assert done == Done(
        2, "", "error: unknown setting 'embeding_size' (value 3). Did you mean 'embedding_size'?\n"
    )


def test_interrupted_run_prints_how_to_resume_and_can_start_again(tmp_path: Path) -> None:
    # The path is longer than a terminal line.
    folder = tmp_path / "a long name, as temporary folders have on many systems, with some spaces"
    process = start("run", "bpr", *SMALL, *LONG, "--out", folder, cwd=tmp_path)
    try:
        wait_for(folder / "metrics.jsonl")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    assert f"coterie resume {folder}" in err, "the command is on one line, to be copied"
    done = call_apart(
        "run", folder / "config.yaml", "--set", "epochs=2", "--json", "--out", "b", cwd=tmp_path
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["rounds"] == 2


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        if time.monotonic() > deadline:
            pytest.fail("training did not begin within a minute")
        time.sleep(0.02)
