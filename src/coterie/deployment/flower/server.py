"""What the SuperLink runs: the server of `runtime/serving.py`, with Flower's grid to reach nodes."""

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

from coterie.deployment.enrolment import Terms, Told
from coterie.deployment.flower.client import BODY, BYTES, CALL, body
from coterie.deployment.server import serve
from coterie.deployment.server_config import ServerConfig
from coterie.errors import CoterieError, RunError
from coterie.experiments import folder as disk

PAUSE = 0.05
STALLED = 10.0
app = ServerApp()


@dataclass(frozen=True, slots=True)
class Reached:
    """Nodes by Flower's ids, which are random: no randomness may hang on them."""

    grid: Grid
    deadline: float
    keyed: bool

    def joined(self) -> list[str]:
        return sorted(map(str, self.grid.get_node_ids()))

    def send(self, kind: str, out: Mapping[str, bytes]) -> dict[str, bytes]:
        """One message a node, one object a message; who has not answered at the deadline was not there."""
        sent = [
            Message(
                RecordDict({BODY: ConfigRecord({BYTES: data})}),
                dst_node_id=int(name),
                message_type=f"{CALL}.{kind}",
                ttl=self.deadline,
            )
            for name, data in out.items()
        ]
        waiting = dict(zip(self.grid.push_messages(sent), out, strict=True))
        back: dict[str, bytes] = {}
        until = time.monotonic() + self.deadline
        pool = ThreadPoolExecutor(1 + len(out))
        while waiting and time.monotonic() < until:
            for reply in pulled(pool, self.grid, list(waiting)):
                name = waiting.pop(reply.metadata.reply_to_message_id, None)
                if name is not None and not reply.has_error():
                    back[name] = body(reply)
            time.sleep(PAUSE)
        pool.shutdown(wait=False, cancel_futures=True)
        return back


def pulled(pool: ThreadPoolExecutor, grid: Grid, ids: list[str]) -> list[Message]:
    """Replies that are there. A node that dies while it sends one blocks Flower for minutes: then each is asked for alone."""
    try:
        return list(pool.submit(grid.pull_messages, ids).result(STALLED))
    except Exception:  # of whatever a reply is made
        asked = [pool.submit(grid.pull_messages, [one]) for one in ids]
        done, _ = wait(asked, STALLED)
        return [reply for each in done if each.exception() is None for reply in each.result()]


@contextmanager
def only_node(folder: Path, seconds: float = 60) -> Iterator[None]:
    """Nobody else writes down rounds: a server whose SuperLink was killed may take a while to notice."""
    until = time.monotonic() + seconds
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(disk.held(folder))
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
    terms = Terms.from_json((folder / "terms.json").read_text())
    told = Told.from_json((folder / "told.json").read_text())
    try:
        with only_node(folder / "flower"):
            nodes = Reached(grid, service.round_seconds, bool(context.run_config["keyed"]))
            serve(folder, terms, nodes, service, told)
    except Exception as error:  # whatever it is, whoever waits for this server has to hear of it
        code, text = (
            (error.exit_code, str(error)) if isinstance(error, CoterieError) else (1, repr(error))
        )
        disk.write_text(folder, "failed.json", json.dumps({"exit_code": code, "error": text}))
        raise
