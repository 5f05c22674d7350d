"""What the SuperLink runs: the server of `runtime/serving.py`, with Flower's grid to reach nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from coterie.errors import CoterieError, NoQuorum, RunError
from coterie.runtime import folder as disk
from coterie.runtime.enrolment import Terms
from coterie.runtime.flower.client import BODY, BYTES, body
from coterie.runtime.service import Service
from coterie.runtime.serving import serve

KINDS = {"enrol": "query.enrol", "begin": "train.begin", "ask": "train.ask"}
PAUSE = 0.05
app = ServerApp()


@dataclass(frozen=True, slots=True)
class Reached:
    """Nodes by the order in which Flower lists them at the beginning: its own ids are random, and no randomness may hang on them."""

    grid: Grid
    ids: tuple[int, ...]
    deadline: float

    def joined(self) -> list[int]:
        there = set(self.grid.get_node_ids())
        return [number for number, node in enumerate(self.ids) if node in there]

    def send(self, kind: str, out: Mapping[int, bytes]) -> dict[int, bytes]:
        """One message a node, one object a message; who has not answered at the deadline was not there."""
        sent = [
            Message(
                RecordDict({BODY: ConfigRecord({BYTES: data})}), dst_node_id=self.ids[number], message_type=KINDS[kind],
                ttl=self.deadline,
            )
            for number, data in out.items()
        ]  # fmt: skip
        waiting = dict(zip(self.grid.push_messages(sent), out, strict=True))
        back: dict[int, bytes] = {}
        until = time.monotonic() + self.deadline
        while waiting and time.monotonic() < until:
            for reply in self.grid.pull_messages(list(waiting)):
                number = waiting.pop(reply.metadata.reply_to_message_id, None)
                if number is not None and not reply.has_error():
                    back[number] = body(reply)
            time.sleep(PAUSE)
        return back


def waited_for(grid: Grid, service: Service) -> tuple[int, ...]:
    """As many nodes as are needed to begin."""
    until = time.monotonic() + service.wait_seconds
    while len(found := sorted(grid.get_node_ids())) < service.least_nodes:
        if time.monotonic() > until:
            raise NoQuorum(
                f"{len(found)} of {service.least_nodes} nodes joined within {service.wait_seconds:g} seconds; expected all of them. "
                "Start the others (coterie join), or lower least_nodes, and serve again."
            )
        time.sleep(PAUSE)
    return tuple(found)


@contextmanager
def alone(folder: Path, seconds: float = 60) -> Iterator[None]:
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
    service = Service.of(json.loads((folder / "service.json").read_text()))
    terms = Terms.from_json((folder / "terms.json").read_text())
    try:
        with alone(folder / "flower"):
            nodes = Reached(grid, waited_for(grid, service), service.round_seconds)
            serve(folder, terms, nodes, service.quorum)
    except Exception as error:  # whatever it is, whoever waits for this server has to hear of it
        code, text = (error.exit_code, str(error)) if isinstance(error, CoterieError) else (1, repr(error))
        disk.write_text(folder, "failed.json", json.dumps({"exit_code": code, "error": text}))
        raise
