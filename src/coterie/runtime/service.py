"""What a federation's server needs to know beside its experiment."""

from __future__ import annotations

from pydantic import Field

from coterie.settings import Settings


class Service(Settings):
    items: str
    """A file with a column item_id: what there is to recommend."""
    least_nodes: int = Field(1, ge=1)
    """Nodes that must have joined before training begins."""
    quorum: float = Field(0.5, gt=0, le=1)
    """Share of the nodes asked that must answer; with fewer the server stops (exit code 3) and can be started again."""
    round_seconds: float = Field(60.0, gt=0)
    """A round closes after so many seconds with who is there."""
    wait_seconds: float = Field(600.0, gt=0)
    """How long the server waits for nodes to join."""
