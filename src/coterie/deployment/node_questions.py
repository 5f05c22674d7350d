"""A node's count of a server's questions, and of questions that are put again in other words.

Counts are by hour, in the node's store, so that a restart does not clear them. A place is where a
message belongs in a run: an exchange of a round, the evaluation after a round, or the end. A place
that comes again with the same bytes gets the same reply, from which nobody learns more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from coterie.deployment.node_policy import NodePolicy
from coterie.deployment.node_private_store import NodeStore
from coterie.errors import PolicyError

HOUR = 3600
HOURS_OF_DAY = 24
REPORTED = "metrics of "
"""Before the place of an evaluation whose metrics were reported."""
REMEMBERED_HOURS = 24 * 30
"""For how long a node remembers which messages it answered."""


def count_question(store: NodeStore, policy: NodePolicy, now: float) -> None:
    """Count a message; PolicyError if the policy allows no more."""
    hour = int(now // HOUR)
    asked = _count(store, "questions", hour)
    asked_today = _count(store, "questions", hour - HOURS_OF_DAY + 1)
    _refuse_more(asked, policy.questions_an_hour, "an hour", "questions_an_hour")
    _refuse_more(asked_today, policy.questions_a_day, "a day", "questions_a_day")
    _add(store, hour, questions=1)


def refuse_replay(
    store: NodeStore,
    policy: NodePolicy,
    now: float,
    run: str,
    place: str,
    data: bytes,
    warn: Callable[[str], None],
) -> None:
    """Count a message whose place in a run was answered before with other content.

    PolicyError if that happened too often today.
    """
    hour = int(now // HOUR)
    digest = hashlib.sha256(data).digest()
    row = store.connection.execute(
        "select digest from answered where run = ? and place = ?", (run, place)
    ).fetchone()
    if row is not None and row[0] == digest:
        return
    if row is not None:
        replays = _count(store, "replays", hour - HOURS_OF_DAY + 1)
        if replays >= policy.replays_a_day:
            raise PolicyError(
                f"the server of run {run} sends {place} again with other content, as it did "
                f"{replays:,} times within a day; this node's policy has replays_a_day: "
                f"{policy.replays_a_day:,}. Ask the server's owner why."
            )
        warn(
            f"the server of run {run} sends {place} again with other content, as after a restore "
            "from a backup. Ask its owner if you do not expect it"
        )
        _add(store, hour, replays=1)
    store.connection.execute(
        "insert or replace into answered values (?, ?, ?, ?)", (run, place, digest, hour)
    )


def may_report(store: NodeStore, policy: NodePolicy, now: float, run: str, place: str) -> bool:
    """Whether the metrics of an evaluation may be reported today, and remember it.

    One that was reported before is: `refuse_replay` counts it if its content differs.
    """
    hour = int(now // HOUR)
    reported = REPORTED + place
    known = store.connection.execute(
        "select 1 from answered where run = ? and place = ?", (run, reported)
    ).fetchone()
    if known is not None:
        return True
    (today,) = store.connection.execute(
        "select count(*) from answered where place like ? and hour > ?",
        (f"{REPORTED}%", hour - HOURS_OF_DAY),
    ).fetchone()
    if today >= policy.evaluations_a_day:
        return False
    store.connection.execute("insert into answered values (?, ?, ?, ?)", (run, reported, b"", hour))
    return True


def forget_old_questions(store: NodeStore, now: float) -> None:
    """Delete what is too old to matter."""
    hour = int(now // HOUR)
    with store.transaction():
        store.connection.execute("delete from asked where hour <= ?", (hour - HOURS_OF_DAY,))
        store.connection.execute("delete from answered where hour < ?", (hour - REMEMBERED_HOURS,))


def _count(store: NodeStore, column: str, since: int) -> int:
    # Hours after the present one count, too: the clock may have been set back.
    (total,) = store.connection.execute(
        f"select coalesce(sum({column}), 0) from asked where hour >= ?", (since,)
    ).fetchone()
    return int(total)


def _add(store: NodeStore, hour: int, questions: int = 0, replays: int = 0) -> None:
    store.connection.execute(
        "insert into asked values (?, ?, ?) on conflict (hour) do update set "
        "questions = questions + excluded.questions, replays = replays + excluded.replays",
        (hour, questions, replays),
    )


def _refuse_more(asked: int, most: int, time: str, key: str) -> None:
    if asked >= most:
        raise PolicyError(
            f"the server sent {asked:,} messages within {time}; this node's policy has {key}: "
            f"{most:,}. Later ones are answered again. Raise it in the policy if you trust the "
            "server."
        )
