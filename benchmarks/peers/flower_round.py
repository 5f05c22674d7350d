"""Seconds of rounds in Flower's simulation. Prints JSON. compare.py runs it in .venv.

    .venv/bin/python flower_round.py JOB.npz --rounds 3 --cpus-per-client 1

A client is a virtual node of its own with a ClientApp; what it keeps is in its context. The server
has Flower's FedAvg. A round begins when clients are configured and ends when their models are
averaged; the first one, in which Ray's workers start, is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import flwr
import ray
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_clients import Job, train_client

MARK = "COTERIE_PEER=flower"
OWN = "own"
"""The record of what a client keeps, in its context."""


@cache
def job_at(path: str) -> Job:
    """Read once by every worker process."""
    torch.set_num_threads(1)
    return Job.read(Path(path))


def core_seconds() -> float:
    """CPU time of this process and of all that it started, found by a mark in their environment."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if MARK.encode() not in (process / "environ").read_bytes():
                continue
            # After the name, which may have blanks: user time and system time are 12th and 13th.
            figures = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        ticks += int(figures[11]) + int(figures[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class TimedFedAvg(FedAvg):
    """Flower's FedAvg, with the seconds of every round."""

    def __init__(self) -> None:
        super().__init__(fraction_train=1.0, fraction_evaluate=0.0)
        self.began = 0.0
        self.spent = 0.0
        self.seconds: list[float] = []
        self.core_seconds: list[float] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.began = time.perf_counter()
        self.spent = core_seconds()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        averaged = super().aggregate_train(server_round, replies)
        self.seconds.append(time.perf_counter() - self.began)
        self.core_seconds.append(core_seconds() - self.spent)
        return averaged


def client_app(path: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        job = job_at(path)
        client = int(context.node_config["partition-id"])
        own = context.state.array_records.get(OWN)
        before = torch.tensor(job.own[client]) if own is None else own.to_torch_state_dict()[OWN]
        shared = message.content.array_records["arrays"].to_torch_state_dict()
        model, after = train_client(job, client, shared, before)
        context.state[OWN] = ArrayRecord({OWN: after})
        content = RecordDict()
        content["arrays"] = ArrayRecord(model)
        content["metrics"] = MetricRecord({"num-examples": job.weight(client)})
        return Message(content=content, reply_to=message)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpus-per-client", type=float, default=1.0)
    options = parser.parse_args()
    path = str(options.job.resolve())
    job = Job.read(options.job)
    strategy = TimedFedAvg()
    server = ServerApp()

    @server.main()
    def rounds(grid: Grid, context: Context) -> None:
        strategy.start(grid, ArrayRecord(job.shared()), num_rounds=options.rounds + 1)

    resources = {"num_cpus": options.cpus_per_client, "num_gpus": 0.0}
    run_simulation(
        server,
        client_app(path),
        job.n_clients,
        backend_config={
            "init_args": {"num_cpus": os.cpu_count() or 1, "logging_level": "error"},
            "client_resources": resources,
        },
    )
    print(
        json.dumps(
            {
                "flwr": flwr.__version__,
                "ray": ray.__version__,
                "torch": torch.__version__,
                "cpus_per_client": options.cpus_per_client,
                "round_s": statistics.median(strategy.seconds[1:]),
                "round_core_s": statistics.median(strategy.core_seconds[1:]),
            }
        )
    )


if __name__ == "__main__":
    main()
