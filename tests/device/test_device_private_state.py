"""Which row of the user counts: the one whose update the server accepted."""

from __future__ import annotations

import numpy as np
from javascript import answers, needs_node, packed, unpacked

from coterie.deployment.branch_rounds import tag

pytestmark = needs_node
NEVER = -1


def rows_at(*steps: tuple[int, int]) -> list[float | None]:
    """The row that each message (tag of the last accepted update, its round) begins with.

    The initial row is 0.5, and the round t leaves the row t.
    """
    case = {
        "kind": "commits",
        "start": packed(np.array([0.5], np.float32)),
        "steps": [
            {"accepted": str(accepted), "round": t, "row": packed(np.array([t], np.float32))}
            for accepted, t in steps
        ],
    }
    (answer,) = answers([case])
    return [None if row is None else float(unpacked(row, np.float32)[0]) for row in answer]


def test_accepted_rows_count():
    assert rows_at((NEVER, 3), (tag(0, 3, 0), 4), (tag(0, 4, 0), 9)) == [0.5, 3, 4]


def test_a_refused_or_repeated_round_has_no_effect():
    assert rows_at((NEVER, 3), (NEVER, 3), (tag(0, 3, 0), 4), (tag(0, 3, 0), 5)) == [0.5, 0.5, 3, 3]


def test_a_server_may_go_back():
    """Rolled back to after round 3: the row of that round counts again, in a new branch."""
    steps = (NEVER, 3), (tag(0, 3, 0), 4), (tag(0, 4, 0), 5), (tag(0, 3, 0), 4), (tag(1, 4, 0), 5)
    assert rows_at(*steps) == [0.5, 3, 4, 3, 4]


def test_a_server_that_accepted_nothing_begins_again():
    assert rows_at((NEVER, 3), (tag(0, 3, 0), 4), (NEVER, 0)) == [0.5, 3, 0.5]


def test_a_tag_that_the_device_has_no_row_of():
    assert rows_at((NEVER, 3), (tag(0, 2, 0), 4)) == [0.5, None]
    assert rows_at((tag(0, 70, 0), 71)) == [None]
