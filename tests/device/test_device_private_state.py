"""Which row of the user counts: the one whose update the server accepted."""

from __future__ import annotations

import numpy as np
from javascript import answers, needs_node, packed, unpacked

from coterie.deployment.branch_rounds import tag

pytestmark = needs_node
NEVER = -1
STEPS = {
    "accepted rows count": (
        [(NEVER, 3), (tag(0, 3, 0), 4), (tag(0, 4, 0), 9)],
        [0.5, 3, 4],
    ),
    "a refused or repeated round has no effect": (
        [(NEVER, 3), (NEVER, 3), (tag(0, 3, 0), 4), (tag(0, 3, 0), 5)],
        [0.5, 0.5, 3, 3],
    ),
    "a server goes back to after round 3, in a new branch": (
        [(NEVER, 3), (tag(0, 3, 0), 4), (tag(0, 4, 0), 5), (tag(0, 3, 0), 4), (tag(1, 4, 0), 5)],
        [0.5, 3, 4, 3, 4],
    ),
    "a server that accepted nothing begins again": (
        [(NEVER, 3), (tag(0, 3, 0), 4), (NEVER, 0)],
        [0.5, 3, 0.5],
    ),
    "the same after more updates than rows are kept": (
        [(NEVER, 0), *((tag(0, t, 0), t + 1) for t in range(70)), (NEVER, 0)],
        [0.5, *range(70), 0.5],
    ),
    "the device has no row of round 2": ([(NEVER, 3), (tag(0, 2, 0), 4)], [0.5, None]),
    "the device has no row at all": ([(tag(0, 70, 0), 71)], [None]),
}
"""What happens: messages (tag of the last accepted update, round), and the row at each of them."""


def case(messages: list[tuple[int, int]]) -> dict[str, object]:
    """The initial row is 0.5, and the round t leaves the row t."""
    return {
        "kind": "commits",
        "start": packed(np.array([0.5], np.float32)),
        "steps": [
            {"accepted": str(accepted), "round": t, "row": packed(np.array([t], np.float32))}
            for accepted, t in messages
        ],
    }


def test_the_row_that_counts_is_that_of_the_last_accepted_update():
    found = answers(case(messages) for messages, _ in STEPS.values())
    for (name, (_, expected)), rows in zip(STEPS.items(), found, strict=True):
        read = [None if row is None else float(unpacked(row, np.float32)[0]) for row in rows]
        assert read == expected, name
