"""The app that a SuperLink runs: our server, with Flower's grid as its connection to nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from coterie.deployment.enrolment import FederationTerms, ItemContent
from coterie.deployment.flower.client import BODY, BYTES, CALL, body
from coterie.deployment.server import serve
from coterie.deployment.server_config import ServerConfig
from coterie.errors import CoterieError, RunError
from coterie.experiments import run_folder

PAUSE = 0.05
STALLED = 10.0
"""Seconds after which a pull of replies counts as blocked."""
app = ServerApp()


@dataclass(frozen=True, slots=True)
class FlowerNodes:
    """Nodes by Flower's ids. These are random, so nothing in a run may depend on them."""

    grid: Grid
    deadline: float
    keyed: bool

    def joined(self) -> list[str]:
        return sorted(map(str, self.grid.get_node_ids()))

    def send(self, kind: str, out: Mapping[str, bytes]) -> dict[str, bytes]:
        """Send one message to each node; nodes without a reply at the deadline are left out."""
        messages = [
            Message(
                RecordDict({BODY: ConfigRecord({BYTES: data})}),
                dst_node_id=int(name),
                message_type=f"{CALL}.{kind}",
                ttl=self.deadline,
            )
            for name, data in out.items()
        ]
        waiting = dict(zip(self.grid.push_messages(messages), out, strict=True))
        replies: dict[str, bytes] = {}
        until = time.monotonic() + self.deadline
        pool = ThreadPoolExecutor(1 + len(out))
        while waiting and time.monotonic() < until:
            for reply in pull(pool, self.grid, list(waiting)):
                name = waiting.pop(reply.metadata.reply_to_message_id, None)
                if name is not None and not reply.has_error():
                    replies[name] = body(reply)
            time.sleep(PAUSE)
        pool.shutdown(wait=False, cancel_futures=True)
        return replies


def pull(pool: ThreadPoolExecutor, grid: Grid, ids: list[str]) -> list[Message]:
    """The replies that have arrived.

    A node that dies while it sends a reply blocks Flower for minutes. Then each reply is pulled in
    a thread of its own.
    """
    try:
        return list(pool.submit(grid.pull_messages, ids).result(STALLED))
    except Exception:  # replies come from untrusted nodes and can fail in any way
        pulls = [pool.submit(grid.pull_messages, [one]) for one in ids]
        done, _ = wait(pulls, STALLED)
        return [reply for each in done if each.exception() is None for reply in each.result()]


@contextmanager
def exclusive(folder: Path, seconds: float = 60) -> Iterator[None]:
    """Lock the folder, so that one server commits rounds.

    A server whose SuperLink was killed may take a while to notice, so wait for its lock.
    """
    until = time.monotonic() + seconds
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(run_folder.locked(folder))
                break
            except RunError:
                if time.monotonic() > until:
                    raise
                time.sleep(PAUSE)
        yield


@app.main()
def main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["folder"]))
    service = ServerConfig.of(json.loads((folder / "service.json").read_text()))
    terms = FederationTerms.from_json((folder / "terms.json").read_text())
    content = ItemContent.from_json((folder / "told.json").read_text())
    try:
        with exclusive(folder / "flower"):
            nodes = FlowerNodes(grid, service.round_seconds, bool(context.run_config["keyed"]))
            serve(folder, terms, nodes, service, content)
    except Exception as error:  # `coterie serve` waits for this file, whatever the fault is
        failure: dict[str, object] = {"exit_code": 1, "error": repr(error)}
        if isinstance(error, CoterieError):
            failure = {"exit_code": error.exit_code, "error": str(error)}
        run_folder.write_text(folder, "failed.json", json.dumps(failure))
        raise
