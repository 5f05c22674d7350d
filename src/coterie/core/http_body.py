"""The body of an HTTP request (ASGI), read up to a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

MOST_DIGITS = 20
"""Digits of a length that are read; a longer one is too large in any case."""


class BodyTooLarge(Exception):
    pass


class ConnectionBroke(Exception):
    pass


def check_length(announced: str | None, limit: int) -> None:
    """BodyTooLarge for an announced length that is above the limit, or is no number."""
    if announced is None:
        return
    is_number = announced.isascii() and announced.isdigit()
    if not is_number or int(announced[:MOST_DIGITS]) > limit:
        raise BodyTooLarge


async def read_body(
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]], limit: int
) -> bytes:
    """A body whose length may not have been announced, or not truly."""
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ConnectionBroke
        parts.append(event.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise BodyTooLarge
        if not event.get("more_body", False):
            return b"".join(parts)
