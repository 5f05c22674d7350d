"""For which users a node reports metrics, so that no two sums differ by a few users.

The users whose metrics entered a sum together are a group. A later sum has all users of a group or
none, or it divides the group into two that are large enough. New users are reported once there are
enough of them. So every difference of sums is over `least` users or more, in whatever order a
server enrols and evaluates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from coterie.deployment.node_private_store import NodeStore

NEW = 0
"""In place of the group of users who were in no sum yet."""


def reportable_users(store: NodeStore, part: str, users: Collection[str], least: int) -> set[str]:
    """Those of `users` whose metrics may enter a sum now, and remember it."""
    with store.transaction():
        groups = dict(
            store.connection.execute("select person, number from evaluated where part = ?", (part,))
        )
        sizes = Counter(groups.values())
        asked = Counter(groups.get(user, NEW) for user in users)
        allowed = {
            number for number, n in asked.items() if _is_allowed(n, sizes.get(number, n), least)
        }
        chosen = {user for user in users if groups.get(user, NEW) in allowed}
        divided = {number for number in allowed if asked[number] != sizes.get(number)}
        first = max(groups.values(), default=NEW) + 1
        number_of = {old: first + k for k, old in enumerate(sorted(divided))}
        store.connection.executemany(
            "insert or replace into evaluated values (?, ?, ?)",
            [
                (user, part, number_of[old])
                for user in sorted(chosen)
                if (old := groups.get(user, NEW)) in divided
            ],
        )
    return chosen


def _is_allowed(n: int, size: int, least: int) -> bool:
    """Whether n users of a group may be in a sum, and its others not."""
    left_out = size - n
    return n >= least and (left_out == 0 or left_out >= least)
