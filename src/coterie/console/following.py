"""Follows a run while it trains: one reader of its files for all viewers.

Events have the id of the byte in rounds.jsonl after their line. A viewer that reconnects sends the
last id, and gets what came after it: also from another process, since ids are those of the file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from coterie.console.folders import FoundFolder
from coterie.console.round_lines import RoundLine, read_lines
from coterie.console.summaries import RunSummary
from coterie.deployment.traffic import STATUS, read_status
from coterie.errors import CoterieError
from coterie.experiments.round_log import NAME as ROUNDS
from coterie.types import JsonObject

LOOK_SECONDS = 0.5
"""How often the files are looked at."""
IDLE_SECONDS = 15.0
"""A comment is sent after this long without an event, so that a dead connection is noticed."""
MOST_VIEWERS = 200
RETRY_MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class LiveState:
    """What a page shows besides rounds: it has no id, since only the latest one counts."""

    summary: RunSummary
    federation: JsonObject = field(default_factory=dict)
    """The status that a federation's server wrote."""
    error: str = ""
    """Why a run that was started here has failed."""

    def text(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)


LookUp = Callable[[], tuple[FoundFolder | None, RunSummary, str]]
"""() -> the folder, once there is one, its summary, and why the run failed."""


def look(look_up: LookUp) -> tuple[Path | None, LiveState]:
    """(the log of rounds, if there is one, the state) of a run now."""
    folder, summary, error = look_up()
    if folder is None:
        return None, LiveState(summary, error=error)
    status: JsonObject = {}
    if folder.has(STATUS):
        try:
            status = read_status(folder.path)
            json.dumps(status, allow_nan=False)
        except (CoterieError, ValueError):
            status = {}
    log = folder.path / ROUNDS if folder.has(ROUNDS) else None
    return log, LiveState(summary, status, error)


@dataclass(slots=True)
class RunFollower:
    """The lines of one run so far, and its state; viewers wait for changes."""

    look_up: LookUp
    kept: list[RoundLine] = field(default_factory=list)
    """Lines that a viewer needs who comes later: beginnings and measured rounds."""
    latest: RoundLine | None = None
    state: str = ""
    offset: int = 0
    version: int = 0
    """Counts changes."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    viewers: int = 0
    task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Look at the files until nobody watches."""
        while self.viewers:
            if await asyncio.to_thread(self.update):
                async with self.changed:
                    self.version += 1
                    self.changed.notify_all()
            await asyncio.sleep(LOOK_SECONDS)

    def update(self) -> bool:
        """Read what is new; returns whether something is."""
        log, state = look(self.look_up)
        found = self._read(log) if log is not None else []
        text = state.text()
        is_new = bool(found) or text != self.state
        self.state = text
        return is_new

    def _read(self, log: Path) -> list[RoundLine]:
        try:
            found, self.offset = read_lines(log, self.offset)
        except OSError:
            return []
        self.kept += [line for line in found if line.is_begin or line.is_measured]
        self.latest = found[-1] if found else self.latest
        return found

    def since(self, offset: int) -> list[RoundLine]:
        """The lines after a byte that a viewer needs: kept ones, then the latest."""
        lines = [line for line in self.kept if line.end > offset]
        latest = self.latest
        if latest is not None and latest.end > (lines[-1].end if lines else offset):
            lines.append(latest)
        return lines


@dataclass(slots=True)
class RunFollowers:
    """The followers of all runs that are watched."""

    is_stopping: Callable[[], bool]
    active: dict[str, RunFollower] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return sum(follower.viewers for follower in self.active.values()) >= MOST_VIEWERS

    async def events(self, run: str, look_up: LookUp, after: int) -> AsyncIterator[bytes]:
        """The stream of one viewer, from a byte of the log on."""
        follower = self._follower(run, look_up)
        follower.viewers += 1
        if follower.task is None or follower.task.done():
            follower.task = asyncio.create_task(follower.run())
        try:
            async for event in self._stream(follower, after):
                yield event
        finally:
            follower.viewers -= 1
            if not follower.viewers:
                self.active.pop(run, None)

    def _follower(self, run: str, look_up: LookUp) -> RunFollower:
        if run not in self.active:
            self.active[run] = RunFollower(look_up)
        return self.active[run]

    async def _stream(self, follower: RunFollower, offset: int) -> AsyncIterator[bytes]:
        yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        seen = 0
        state = ""
        waited = 0.0
        while not self.is_stopping():
            if seen != follower.version:
                seen = follower.version
                lines = follower.since(offset)
                events = [event_of_line(line) for line in lines]
                if lines:
                    offset = lines[-1].end
                if state != follower.state:
                    state = follower.state
                    events.append(f"event: state\ndata: {state}\n\n".encode())
                if events:
                    # One block: sending costs more than what is sent.
                    yield b"".join(events)
                waited = 0.0
            if waited >= IDLE_SECONDS:
                waited = 0.0
                yield b": still here\n\n"
            if not await _change(follower, seen):
                waited += 1.0


async def _change(follower: RunFollower, seen: int) -> bool:
    """Wait for a change, for a second at most."""
    try:
        async with asyncio.timeout(1.0), follower.changed:
            await follower.changed.wait_for(lambda: follower.version != seen)
    except TimeoutError:
        return False
    return True


def event_of_line(line: RoundLine) -> bytes:
    name = "begin" if line.is_begin else "round"
    # JSON of Python has neither line breaks nor other characters than ASCII.
    return f"id: {line.end}\nevent: {name}\ndata: {json.dumps(line.line)}\n\n".encode()
