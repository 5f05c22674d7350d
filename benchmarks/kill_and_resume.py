"""Kill a run with SIGKILL at random times, resume it, compare the final models. Prints JSON.

    python benchmarks/kill_and_resume.py --kills 50 [--dataset ml-100k] [--algorithm fedfast]

The times are uniform over the life of the process: starting, reading, training, saving, evaluating.
The model must be bit-identical to that of an uninterrupted run.
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
from collections import Counter
from pathlib import Path

import numpy as np

COTERIE = (sys.executable, "-m", "coterie.cli.main")


def command(options: argparse.Namespace, out: Path) -> list[str]:
    arguments = [*COTERIE, "run", options.algorithm, "-q"]
    arguments += ["-d", options.dataset]
    arguments += ["--set", f"rounds={options.rounds}"]
    arguments += ["--set", f"checkpoint_every={options.checkpoint_every}"]
    return [*arguments, "--out", str(out)]


def fingerprint(folder: Path) -> str:
    return hashlib.sha256((folder / "model.npz").read_bytes()).hexdigest()


def killed(options: argparse.Namespace, out: Path, after: float) -> str:
    """Start a run, kill it after some seconds, and return the stage it had reached."""
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
    if (out / "checkpoint.npz").exists():
        return "with a checkpoint"
    return "before the first checkpoint"


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
    folder = Path(tempfile.mkdtemp(prefix="coterie-kills-"))
    began = time.perf_counter()
    subprocess.run(command(options, folder / "whole"), check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    expected = fingerprint(folder / "whole")
    identical = 0
    stages: Counter[str] = Counter()
    for moment in np.random.default_rng(options.seed).uniform(0, seconds, options.kills):
        out = folder / "killed"
        stages[killed(options, out, float(moment))] += 1
        if (out / "config.yaml").exists():
            again = [*COTERIE, "resume", str(out), "-q"]
        else:
            again = command(options, out)
        subprocess.run(again, check=True, stdout=subprocess.DEVNULL)
        identical += fingerprint(out) == expected
        shutil.rmtree(out)
    shutil.rmtree(folder)
    result = {
        "kills": options.kills,
        "identical": identical,
        "sha256": expected,
        "uninterrupted_s": round(seconds, 1),
        "killed": stages,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
