"""Numbers of things in messages: "1 node", "2,000 nodes"."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """A number with its noun, whose plural ends in s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
