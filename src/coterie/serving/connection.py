"""A connection of the API: headers are bounded, and a reply leaves in one piece."""

from __future__ import annotations

import asyncio
from typing import Any

from coterie.errors import MissingExtra

try:
    from coterie.deployment.fleet.listener import BoundedProtocol
except ImportError:
    raise MissingExtra("coterie api", "web") from None

MOST_HEADER_BYTES = 1 << 16


class WholeReplies:
    """A transport that sends what is written in one turn of the event loop at once.

    uvicorn writes the headers and the body of a reply apart, and each would cost a system call.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport = transport
        self.loop = loop
        self.unsent: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def write(self, data: bytes) -> None:
        if not self.unsent:
            self.loop.call_soon(self.flush)
        self.unsent.append(data)

    def flush(self) -> None:
        if self.unsent:
            self.transport.write(b"".join(self.unsent))
            self.unsent.clear()

    def close(self) -> None:
        self.flush()
        self.transport.close()


class ApiConnection(BoundedProtocol):
    """A connection that is closed if the headers of a request are too large or too slow."""

    header_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(WholeReplies(transport, self.loop))

    def data_received(self, data: bytes) -> None:
        self.header_bytes += len(data)
        super().data_received(data)
        # The timer runs while headers are incomplete.
        if self.timer is not None and self.header_bytes > MOST_HEADER_BYTES:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self.header_bytes = 0
        super().on_headers_complete()
