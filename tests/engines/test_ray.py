"""The Ray engine: the same bits as in one process, for any number of actors, even if some die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.calling import settings, start
from small_federation import FEDERATED, ON_KERNELS, play, play_locally, sha256, world_for

from coterie.core.progress import SILENT
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines.ray import RayEngine, connected, refuse_stopped, refuse_unreachable
from coterie.engines.sudden_end import MESSAGE
from coterie.errors import ConfigError, RunError
from coterie.federated.engine import Engine

ray = pytest.importorskip("ray")
WITH_PYTORCH = [name for name in FEDERATED if name not in ON_KERNELS]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    connected("", SILENT)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def choices(people) -> TrainingSet:
    return split(people, "leave-one-out", 0.2, seed=0).training()


def on_ray(
    name: str, training: TrainingSet, nodes: int, **changes: Any
) -> tuple[list[Any], list[Any]]:
    world = world_for(name, training, engine="ray", nodes=nodes, **changes)
    return play(name, world, RayEngine.over(world, training, SILENT))


@pytest.mark.long
@pytest.mark.parametrize("name", ON_KERNELS)
def test_two_actors_give_the_local_run(name, choices, cluster):
    local = play_locally(name, choices, rounds=2)
    remote = on_ray(name, choices, 2, rounds=2)
    assert sha256(local[0][-1]) == sha256(remote[0][-1])
    costs = [
        [(t.accepted, t.dropped, t.bytes_up, t.bytes_down) for t in all_costs]
        for _, all_costs in (local, remote)
    ]
    assert costs[0] == costs[1]


@pytest.mark.long
@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
@pytest.mark.parametrize("nodes", [1, 4])
def test_the_number_of_actors_does_not_change_a_run(name, nodes, choices, cluster):
    assert sha256(play_locally(name, choices)[0][-1]) == sha256(on_ray(name, choices, nodes)[0][-1])


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {"client_dropout": 0.3},
        {"secure_aggregation": "ring"},
        {"secure_aggregation": "secagg"},
        {"model": "neumf"},
    ],
    ids=str,
)
def test_dropout_secure_aggregation_and_neumf_on_ray(changes, choices, cluster):
    if "secure_aggregation" in changes:
        pytest.importorskip("cryptography")
    local = play_locally("fedfast", choices, **changes)
    remote = on_ray("fedfast", choices, 3, **changes)
    assert sha256(local[0][-1]) == sha256(remote[0][-1])


@pytest.mark.long
@pytest.mark.parametrize("name", WITH_PYTORCH)
def test_a_round_in_pytorch_differs_only_in_the_last_bits(name, choices, cluster):
    local = play_locally(name, choices, rounds=1)
    remote = on_ray(name, choices, 2, rounds=1)
    for field, array in local[0][-1].arrays().items():
        assert np.allclose(array, remote[0][-1].arrays()[field], rtol=1e-5, atol=1e-6), field


@pytest.mark.long
def test_an_actor_that_dies_is_started_again(choices, cluster):
    """Killed before every round: the shard is restored, and the run does not change."""
    world = world_for("fedfast", choices, engine="ray", nodes=2)
    engine = RayEngine.over(world, choices, SILENT)
    victims = []

    class Deadly(Engine):
        gather = engine.gather
        call = engine.call

        def aggregate(self, *given: Any) -> Any:
            _, made = ray.get(
                engine.shards[1].make.remote(lambda world, node: {"pid": os.getpid()})
            )
            pid = made["pid"]
            victims.append(pid)
            os.kill(pid, signal.SIGKILL)
            return engine.aggregate(*given)

    states, _ = play("fedfast", world, Deadly())
    assert len(set(victims)) == len(victims) > 2
    assert sha256(states[-1]) == sha256(play_locally("fedfast", choices)[0][-1])


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_unreachable_cluster_is_reported(address):
    with pytest.raises(ConfigError, match="no Ray cluster can be reached"):
        refuse_unreachable(address)


def test_a_service_that_stopped_is_reported():
    with pytest.raises(RunError, match=r"Ray's raylet at 127\.0\.0\.1:1 has stopped .* Resume the"):
        refuse_stopped({"raylet": ("127.0.0.1", 1)})


@pytest.mark.parametrize(("ending", "message"), [("os._exit(1)", MESSAGE + "\n"), ("", "")])
def test_a_sudden_end_is_reported(ending: str, message: str):
    """Ray's library exits without an exception; a run that ends by itself says nothing."""
    code = f"import os; from coterie.engines.sudden_end import *; report_sudden_end(); {ending}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == message


def child_named(name: str, parent: int) -> int:
    found = subprocess.run(
        ["pgrep", "-P", str(parent), "-x", name], capture_output=True, check=True
    )
    return int(found.stdout)


@pytest.mark.long
@pytest.mark.parametrize("service", ["raylet", "gcs_server"])
def test_a_run_whose_ray_is_killed_stops_and_resumes(service: str, tmp_path: Path):
    """Ray ends the process at its next use of the object store, or tries again and again."""
    changes = settings(engine="ray", nodes=2, rounds=400, evaluate_every=400)
    run = start("run", "fedfast", "--dataset", "synthetic", "--out", "a", *changes, cwd=tmp_path)
    until = time.monotonic() + 60
    while not (tmp_path / "a" / "checkpoint.npz").exists():
        assert time.monotonic() < until
        time.sleep(0.1)
    os.kill(child_named(service, run.pid), signal.SIGKILL)
    _, err = run.communicate(timeout=40)
    messages = {1: "this process ended suddenly", 2: "has stopped (Connection refused)"}
    assert messages[run.returncode] in err
    assert "Traceback" not in err
    resumed = start("resume", "a", cwd=tmp_path)
    _, err = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, err
