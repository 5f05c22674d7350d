"""Kill a run with SIGKILL at random moments, resume it, and compare the final model with an undisturbed one. Prints JSON.

    python benchmarks/kill_and_resume.py --kills 50 [--dataset ml-100k] [--algorithm fedfast] [--rounds 200]

Moments are spread over the whole life of the process: starting, reading, training, saving, evaluating.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COTERIE = (sys.executable, "-m", "coterie.cli.main")


def command(options: argparse.Namespace, out: Path) -> list[str]:
    settings = [
        "--set",
        f"rounds={options.rounds}",
        "--set",
        f"checkpoint_every={options.checkpoint_every}",
    ]
    return [
        *COTERIE,
        "run",
        options.algorithm,
        "-d",
        options.dataset,
        *settings,
        "--out",
        str(out),
        "-q",
    ]


def fingerprint(folder: Path) -> str:
    return hashlib.sha256((folder / "model.npz").read_bytes()).hexdigest()


def killed(options: argparse.Namespace, out: Path, after: float) -> str:
    """Start a run, kill it, and say how far it had come."""
    process = subprocess.Popen(
        command(options, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if not (out / "config.yaml").exists():
        return "before the folder"
    if (out / "result.json").exists():
        return "after the result"
    return (
        "with a checkpoint" if (out / "checkpoint.npz").exists() else "before the first checkpoint"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--algorithm", default="fedfast")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--checkpoint-every", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="coterie-kills-"))
    began = time.perf_counter()
    subprocess.run(command(options, place / "whole"), check=True, stdout=subprocess.DEVNULL)
    life = time.perf_counter() - began
    wanted = fingerprint(place / "whole")
    same = 0
    stages = []
    for moment in np.random.default_rng(options.seed).uniform(0, life, options.kills):
        out = place / "killed"
        stages.append(killed(options, out, float(moment)))
        again = (
            [*COTERIE, "resume", str(out), "-q"]
            if (out / "config.yaml").exists()
            else command(options, out)
        )
        subprocess.run(again, check=True, stdout=subprocess.DEVNULL)
        same += fingerprint(out) == wanted
        shutil.rmtree(out)
    shutil.rmtree(place)
    found = {
        "kills": options.kills,
        "identical": same,
        "sha256": wanted,
        "undisturbed_s": round(life, 1),
    }
    print(
        json.dumps(
            found | {"killed": {stage: stages.count(stage) for stage in dict.fromkeys(stages)}}
        )
    )


if __name__ == "__main__":
    main()
