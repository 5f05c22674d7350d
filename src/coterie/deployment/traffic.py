"""Messages between a server and its nodes, with counts of bytes, lost replies and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from coterie.deployment.node_limits import OverLimit
from coterie.deployment.node_service import TRAIN
from coterie.deployment.round_phases import Phase, RoundPhases
from coterie.deployment.server_folder import read_json
from coterie.federated.wire import Malformed
from coterie.types import JsonObject

STATUS = "status.json"
COUNTERS = "bytes_up", "bytes_down", "bytes_control", "unanswered"
NO_PREAMBLES: Mapping[str, bytes] = {}
T = TypeVar("T")


class Nodes(Protocol):
    """The connected nodes, by name, and a way to send them messages."""

    @property
    def keyed(self) -> bool:
        """Whether nodes authenticate with keys, so that a name always means the same node."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Requests that were refused before they reached the federation, by reason."""

    @property
    def last_refused(self) -> Mapping[str, str]:
        """Reason -> whose request was refused last, and when."""

    def fingerprint(self, name: str) -> str:
        """The fingerprint of a node's key; empty where nodes have none."""

    def limit_replies(self, kind: str, most_bytes: Mapping[str, int]) -> None:
        """Set the largest reply of nodes, by name, to a kind of message; more is not read."""

    def signed(self, name: str, text: str, signature: str) -> bool:
        """Whether a node signed a text with its key; the signature is base64."""

    def joined(self) -> Mapping[str, int]:
        """The nodes that are connected now. The number changes when a node connects anew."""

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> Mapping[str, bytes]:
        """The replies that came in time; a node that failed is left out.

        The time is that of a round, or `seconds`.
        """


@dataclass(frozen=True, slots=True)
class NodeTraffic:
    """Sends to nodes and counts what travels."""

    nodes: Nodes
    counts: Counter[str] = field(default_factory=Counter)
    """Bytes of training, up and down; bytes of all other messages; replies that never came."""
    refused: Counter[str] = field(default_factory=Counter)
    """Refused replies by reason."""
    last_refused: dict[str, str] = field(default_factory=dict)
    """Reason -> whose reply was refused last, and when."""
    phases: RoundPhases = field(default_factory=RoundPhases)
    last_contact: dict[str, str] = field(default_factory=dict)
    """Node -> when its last reply came."""
    answered: set[str] = field(default_factory=set)
    """Nodes that replied to an exchange since the round began."""

    @classmethod
    def resume(cls, nodes: Nodes, folder: Path) -> NodeTraffic:
        """Go on with the counts that a folder's status holds."""
        before = read_status(folder)
        counts = Counter({key: before.get(key, 0) for key in COUNTERS})
        return cls(nodes, counts, phases=RoundPhases.resume(before.get("seconds_by_phase", {})))

    def send(
        self,
        kind: str,
        out: Mapping[str, bytes],
        preambles: Mapping[str, bytes] = NO_PREAMBLES,
        seconds: float | None = None,
    ) -> Mapping[str, bytes]:
        """Send to the connected nodes. Preambles are counted apart from the messages."""
        joined = self.nodes.joined()
        sent = {name: preambles.get(name, b"") + out[name] for name in out if name in joined}
        replies: Mapping[str, bytes] = {}
        if sent:
            with self._phase(kind):
                replies = self.nodes.send(kind, sent, seconds)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.last_contact.update(dict.fromkeys(replies, now))
        if kind == TRAIN:
            self.answered.update(replies)
        up = "bytes_up" if kind == TRAIN else "bytes_control"
        down = "bytes_down" if kind == TRAIN else "bytes_control"
        self.counts[down] += sum(len(out[name]) for name in sent)
        self.counts["bytes_control"] += sum(len(preambles.get(name, b"")) for name in sent)
        self.counts[up] += sum(map(len, replies.values()))
        self.counts["unanswered"] += len(out) - len(replies)
        return replies

    def _phase(self, kind: str) -> AbstractContextManager[None]:
        """Exchanges have a phase of their own; other messages belong to the phase around them."""
        return self.phases.measure(Phase.EXCHANGE) if kind == TRAIN else nullcontext()

    def refuse(self, reason: str, name: str, count: int = 1, detail: str = "") -> None:
        """Count what was refused of a node; `detail` has the value, the rule and the remedy."""
        if not count:
            return
        self.refused[reason] += count
        self.last_refused[reason] = refusal_of(self.name_with_key(name))
        if detail:
            self.last_refused[reason] += f": {detail}"

    def name_with_key(self, name: str) -> str:
        """A node and the fingerprint of its key, by which its owner can be found."""
        fingerprint = self.nodes.fingerprint(name)
        return f"node {name} with key {fingerprint}" if fingerprint else f"node {name}"

    def parse(
        self, kind: str, replies: Mapping[str, bytes], parse: Callable[[str, bytes], T]
    ) -> dict[str, T]:
        """Parse replies; malformed ones are refused and counted."""
        parsed = {}
        for name, data in replies.items():
            try:
                parsed[name] = parse(name, data)
            except OverLimit as error:
                self.refuse(error.reason, name, detail=str(error))
            except Malformed:
                self.refuse(f"malformed {kind}", name)
        return parsed


def refusal_of(source: str) -> str:
    """Who was refused, and when."""
    return f"{source}, {datetime.now(UTC).isoformat(timespec='seconds')}"


def read_status(folder: Path) -> JsonObject:
    """The last status that the server wrote; empty if there is none."""
    return read_json(folder, STATUS)
