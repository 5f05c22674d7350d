"""What a key may claim and send: limits of a server on each of its nodes.

A node with a valid key may be malicious. Every limit follows from what an honest node of the
federation sends, and a refusal names the node, its key, the value, the rule and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coterie.deployment.enrolment import Roster
from coterie.federated.federation import AnyFederation, AnyWorld, exchanges_with_clients
from coterie.federated.wire import Malformed
from coterie.types import Sizes

TOO_MANY_USERS = "too many users"
TOO_MANY_POSITIVES = "too many interactions"
OTHER_PREFIX = "user id without the node's prefix"
MESSAGE_BYTES = 1 << 16
"""Bytes of a reply that do not depend on the number of users: names, shapes, JSON."""
ROSTER_BYTES = 512
"""Bytes of a user in a roster: an id of up to 256 letters, a signing key of 64, and separators."""
ROW_BYTES = 32
"""Bytes of a user in a reply beside rows: index, samples, offset, user row's padding."""
WORD_BYTES = 4
SECRET_WORDS = 8
"""A masked entry takes up to eight bytes, and up to three encrypted shares of it travel with it:
32 bytes, eight times an entry in the open."""
HOLDER_BYTES = 1 << 10
"""Bytes for each holder of a client's secrets: keys, encrypted shares, signatures."""


class OverLimit(Malformed):
    """A reply that exceeds what its node may claim, with a short reason for the counts."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimits:
    """What a roster may claim."""

    users: int
    """Users of a node."""
    users_of: Mapping[str, int] = field(default_factory=dict)
    """Node -> its users, where another number was agreed."""
    positives_a_user: int
    prefixed: bool = False
    """Whether a node's users have ids that begin with its name and a hyphen."""

    def most_users(self, name: str) -> int:
        return self.users_of.get(name, self.users)

    def roster_bytes(self, name: str) -> int:
        """The largest roster of a node."""
        return MESSAGE_BYTES + ROSTER_BYTES * self.most_users(name)

    def check(self, name: str, roster: Roster, n_items: int) -> Roster:
        """The roster; OverLimit if it claims too much."""
        most = self.most_users(name)
        n_users = len(roster.users)
        if n_users > most:
            raise OverLimit(
                TOO_MANY_USERS,
                f"it lists {n_users:,} users; expected at most {most:,} (most_users_a_node). If it "
                f"has so many, set most_users_of: {{{name}: {n_users}}} in the server's file; "
                "otherwise revoke its key",
            )
        a_user = min(self.positives_a_user, n_items)
        most_positives = sum(roster.learning) * a_user
        if roster.positives > most_positives:
            raise OverLimit(
                TOO_MANY_POSITIVES,
                f"it claims {roster.positives:,} interactions of {sum(roster.learning):,} users; "
                f"expected at most {a_user:,} of each (most_positives_a_user, and "
                f"{n_items:,} items). Raise most_positives_a_user in the server's file if it is "
                "honest; otherwise revoke its key",
            )
        foreign = [user for user in roster.users if not user.startswith(f"{name}-")]
        if self.prefixed and foreign:
            raise OverLimit(
                OTHER_PREFIX,
                f"it lists user {foreign[0]}; expected ids that begin with {name}- "
                "(prefixed_ids). Change the ids in its data",
            )
        return roster


def reply_bytes_a_user(federation: AnyFederation, world: AnyWorld, state: object) -> int:
    """The largest part of a user in a reply to any exchange, from the sizes of valid updates."""
    largest = 0
    for exchange in exchanges_with_clients(federation, world):
        in_the_open = _update_bytes(exchange.sizes(world, state))
        largest = max(largest, in_the_open)
        if exchange.secure_sum is not None and world.settings.secure_aggregation != "none":
            secrets = HOLDER_BYTES * world.settings.holders
            largest = max(largest, SECRET_WORDS * in_the_open + secrets)
    return largest


def _update_bytes(sizes: Sizes) -> int:
    """An update that has a row for every item."""
    rows = sizes.items * (1 + sizes.item_width)
    return ROW_BYTES + WORD_BYTES * (rows + sizes.user_width + sizes.dense)


def reply_limits(bytes_a_user: int, hosted: Mapping[str, int]) -> dict[str, int]:
    """Node -> its largest reply to an exchange, for the users that it hosts."""
    return {name: MESSAGE_BYTES + bytes_a_user * max(n, 1) for name, n in hosted.items()}
