"""What a snapshot of a federation costs, on the server and on a node. Prints a table.

    python benchmarks/rollback_storage.py
    python benchmarks/rollback_storage.py --dataset ml-1m --nodes 10

Nodes are in this process. The bytes of a server's snapshot are those of its files; they are links
to files of a commit, so that taking it writes none. The bytes of a node's snapshot are what its
store is smaller without it. Milliseconds are those of a node, medians, with the disk.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from statistics import mean, median

import coterie
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.deployment import server_commits
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import NodeService
from coterie.deployment.server import serve
from coterie.deployment.server_config import ServerConfig
from coterie.experiments.config import Experiment

TIMES = 5
ROUNDS = 20
EVERY = 10


class LocalNodes:
    """Nodes in this process."""

    keyed = False
    refused: Mapping[str, int] = {}
    last_refused: Mapping[str, str] = {}

    def __init__(self, paths: list[Path]) -> None:
        self.services = {path.stem: NodeService(NodeStore.open(path)) for path in paths}

    def fingerprint(self, name: str) -> str:
        return ""

    def limit_replies(self, kind: str, most_bytes: Mapping[str, int]) -> None:
        return

    def signed(self, name: str, text: str, signature: str) -> bool:
        return False

    def joined(self) -> dict[str, int]:
        return dict.fromkeys(self.services, 0)

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        return {name: self.services[name].answer(kind, data) for name, data in out.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--nodes", type=int, default=3)
    given = parser.parse_args()
    data = coterie.load(given.dataset)
    print("| algorithm | server's snapshot | node's snapshot | store without it | taken in |")
    print("| --- | --- | --- | --- | --- |")
    for name in ("fedfast", "fcf"):
        with tempfile.TemporaryDirectory() as folder:
            print(row_of(name, data, Path(folder), given.nodes))


def row_of(name: str, data: Interactions, folder: Path, n_nodes: int) -> str:
    paths = train(name, data, folder, n_nodes)
    snapshot = server_commits.snapshot_folder(folder, EVERY)
    of_server = sum(path.stat().st_size for path in snapshot.iterdir())
    of_node = mean(snapshot_bytes(path) for path in paths)
    of_store = mean(vacuumed(path, ROUNDS) for path in paths)
    milliseconds = 1000 * median(seconds_to_take(path) for path in paths)
    return (
        f"| `{name}` | {of_server / 1000:,.0f} kB | {of_node / 1000:,.0f} kB | "
        f"{of_store / 1000:,.0f} kB | {milliseconds:.0f} ms |"
    )


def train(name: str, data: Interactions, folder: Path, n_nodes: int) -> list[Path]:
    """A federation of some rounds; returns the stores of its nodes."""
    experiment = Experiment.of(
        {"algorithm": name, "dataset": "given.csv", "popularity_prior": 0.0, "rounds": ROUNDS}
    )
    terms = FederationTerms(experiment.flat(), [str(item) for item in data.item_ids], "storage")
    paths = [folder / f"{node}.db" for node in range(n_nodes)]
    for node, path in enumerate(paths):
        with closing(NodeStore.create(path)) as store:
            store.put_interactions(data.select(data.users % n_nodes == node).compact())
            NodeService(store).set_seed()
    config = ServerConfig(items="items.csv", snapshot_every=EVERY)
    nodes = LocalNodes(paths)
    serve(folder, terms, nodes, config, progress=SILENT)
    for service in nodes.services.values():
        service.store.close()
    return paths


def snapshot_bytes(path: Path) -> float:
    """What the store is smaller without its snapshots, for each of them."""
    whole = vacuumed(path, 0)
    return (whole - vacuumed(path, ROUNDS)) / (ROUNDS // EVERY)


def vacuumed(path: Path, dropped: int) -> int:
    """The bytes of a store without the snapshots up to a round."""
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with closing(NodeStore.open(copy)) as store:
        with store.transaction():
            store.drop_snapshots([n for n in store.snapshot_rounds() if n <= dropped])
        store.connection.execute("vacuum")
    size = copy.stat().st_size
    copy.unlink()
    return size


def seconds_to_take(path: Path) -> float:
    found = []
    with closing(NodeStore.open(path)) as store:
        if not store.layout:
            return 0.0  # clients of this algorithm have no private state
        for n in range(TIMES):
            began = time.perf_counter()
            with store.transaction():
                store.put_snapshot(ROUNDS + n)
            found.append(time.perf_counter() - began)
    return median(found)


if __name__ == "__main__":
    main()
