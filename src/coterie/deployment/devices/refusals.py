"""Requests of devices that go no further."""

from __future__ import annotations


class DeviceRefused(Exception):
    """A refused request: its HTTP status, a short reason that is counted, and the whole text.

    The text names the thing, its value, the rule and the remedy: the page shows it.
    """

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
