"""Live events: ids are bytes of the log, so that a viewer misses nothing and sees nothing twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from coterie.console import following
from coterie.console.folders import Folders
from coterie.console.following import LookUp, RunFollower, RunFollowers
from coterie.console.round_lines import first_and_last, read_lines
from coterie.console.workspace import Workspace


def write(path: Path, *lines: object) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def begin(after: int = 0) -> dict[str, object]:
    return {"begin": {"algorithm": "fcf", "metric": "HR@10"}, "after": after, "rounds": 9}


def measured(n: int) -> dict[str, object]:
    return {"round": n, "part": "test", "metrics": {"HR@10": n / 10}}


def look_up(folder: Path) -> LookUp:
    workspace = Workspace.of(Folders.of([folder]))
    (run,) = workspace.folders.found()
    return workspace.look_up(run)


def test_lines_are_read_from_where_reading_stopped(tmp_path: Path) -> None:
    log = tmp_path / "rounds.jsonl"
    write(log, begin(), measured(1))
    lines, offset = read_lines(log)
    assert [line.line.get("round") for line in lines] == [None, 1]
    assert offset == log.stat().st_size == lines[-1].end
    with log.open("a") as file:
        file.write('{"round": 2, ')
    assert read_lines(log, offset) == ([], offset)
    with log.open("a") as file:
        file.write('"metrics": {}}\n')
    (line,), end = read_lines(log, offset)
    assert line.line == {"round": 2, "metrics": {}}
    assert end == log.stat().st_size


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n\n",
        b"[]\n",
        b"null\n",
        b'{"round": -1}\n',
        b'{"round": true}\n',
        b'{"round": 1, "metrics": 3}\n',
        b'{"round": 1, "seconds": NaN}\n',
        b'{"begin": 3, "after": 1}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_other_lines_are_passed_over(tmp_path: Path, text: bytes) -> None:
    log = tmp_path / "rounds.jsonl"
    log.write_bytes(text + b'{"round": 5}\n')
    lines, _ = read_lines(log)
    assert [line.line for line in lines] == [{"round": 5}]
    assert first_and_last(log)[1] == {"round": 5}


def test_the_ends_of_a_long_log_are_read_alone(tmp_path: Path) -> None:
    log = tmp_path / "rounds.jsonl"
    write(log, begin(), *(measured(n) for n in range(1, 20_000)))
    first, last = first_and_last(log)
    assert first["rounds"] == 9
    assert last["round"] == 19_999


def test_a_late_viewer_gets_measured_rounds_and_the_latest(tmp_path: Path) -> None:
    log = tmp_path / "rounds.jsonl"
    write(log, begin(), measured(1), {"round": 2}, measured(3), {"round": 4}, {"round": 5})
    follower = RunFollower(look_up(tmp_path))
    assert follower.update()
    assert [line.line.get("round") for line in follower.since(0)] == [None, 1, 3, 5]
    third = follower.since(0)[2].end
    assert [line.line.get("round") for line in follower.since(third)] == [5]
    assert follower.since(follower.offset) == []
    assert not follower.update()


def events(stream: list[bytes]) -> list[tuple[str, str, dict[str, object]]]:
    """(id, name, data) of every event of a stream."""
    found = []
    for text in b"".join(stream).decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line[1:])
        if "data" in fields:
            found.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
    return found


async def until(
    followers: RunFollowers, folder: Path, after: int, last_round: int
) -> list[tuple[str, str, dict[str, object]]]:
    """What a viewer gets up to a round."""
    parts: list[bytes] = []
    stream = followers.events("run", look_up(folder), after)
    try:
        async with asyncio.timeout(20):
            async for part in stream:
                parts.append(part)
                if any(data.get("round") == last_round for _, _, data in events(parts)):
                    return events(parts)
    finally:
        await stream.aclose()  # type: ignore[attr-defined]
    raise AssertionError(parts)


def rounds(found: list[tuple[str, str, dict[str, object]]]) -> list[object]:
    return [data["round"] for _, name, data in found if name == "round"]


def test_a_reconnect_to_another_process_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.01)
    log = tmp_path / "rounds.jsonl"
    write(log, begin(), measured(1), measured(2))

    async def watch() -> None:
        first = await until(RunFollowers(lambda: False), tmp_path, 0, 2)
        last_id = max(int(number) for number, _, _ in first if number)
        write(log, measured(3), begin(after=2), measured(3), measured(4))
        # Other followers stand for a console that was started again: they know nothing.
        second = await until(RunFollowers(lambda: False), tmp_path, last_id, 4)
        assert rounds(first) == [1, 2]
        assert rounds(second) == [3, 3, 4]
        names = [name for _, name, _ in second if name != "state"]
        assert names == ["round", "begin", "round", "round"]

    asyncio.run(watch())


def test_viewers_share_one_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.05)
    write(tmp_path / "rounds.jsonl", begin(), measured(1))
    reads = []
    usual = following.read_lines
    monkeypatch.setattr(
        following, "read_lines", lambda *given: reads.append(given) or usual(*given)
    )

    async def watch() -> None:
        followers = RunFollowers(lambda: False)
        watching = [asyncio.create_task(until(followers, tmp_path, 0, 2)) for _ in range(20)]
        await asyncio.sleep(0.2)
        assert [follower.viewers for follower in followers.active.values()] == [20]
        write(tmp_path / "rounds.jsonl", measured(2))
        found = await asyncio.gather(*watching)
        assert [rounds(one) for one in found] == [[1, 2]] * 20
        assert followers.active == {}

    asyncio.run(watch())
    # Twenty readers would have read as often as this each.
    assert len(reads) < 30


def test_streams_end_with_the_server(tmp_path: Path) -> None:
    write(tmp_path / "rounds.jsonl", begin())
    ends = [False]

    async def watch() -> None:
        followers = RunFollowers(lambda: ends[0])
        parts = []
        async with asyncio.timeout(10):
            async for part in followers.events("run", look_up(tmp_path), 0):
                parts.append(part)
                ends[0] = True
        assert parts

    asyncio.run(watch())
