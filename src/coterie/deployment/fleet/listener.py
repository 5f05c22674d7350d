"""The HTTP server in a thread: TLS, and bounds on connections and headers."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from coterie.deployment.address import Address
from coterie.errors import RunError

HEADER_SECONDS = 10.0
"""Time in which the headers of a request must arrive."""
MOST_HEADER_BYTES = 1 << 16
"""Largest headers. Those of a node take less than 1 kB; the parser itself has no limit."""
IDLE_SECONDS = 75
"""How long a connection may stay open between two requests."""
MOST_CONNECTIONS = 8192
MOST_PER_ADDRESS = 2048


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is closed if its address has too many, or its headers are slow or long."""

    per_address: ClassVar[Counter[str]] = Counter()
    peer = ""
    unfinished = 0
    """Bytes received of headers that are not complete."""
    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        self.per_address[self.peer] += 1
        if self.per_address[self.peer] > MOST_PER_ADDRESS:
            transport.abort()
            return
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        # uvicorn stops this timer of IDLE_SECONDS only where `exc` is None. After a reset it would
        # hold the connection's buffers, which are 256 kB and more with TLS.
        self._unset_keepalive_if_required()
        self.per_address[self.peer] -= 1
        if not self.per_address[self.peer]:
            del self.per_address[self.peer]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.unfinished = 0 if self.timer is None else self.unfinished + len(data)
        if self.unfinished > MOST_HEADER_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._stop_timer()
        self._start_timer()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def _start_timer(self) -> None:
        self.timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def allow_connections() -> None:
    """Raise the limit of open files, which counts connections, as far as this account may."""
    if sys.platform == "win32":
        return
    import resource

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_CONNECTIONS
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


@contextmanager
def listening(
    app: Callable[..., Any], address: Address, keys: Path | None
) -> Iterator[uvicorn.Server]:
    """Serve an app at an address while the body runs, with the certificates in `keys`."""
    allow_connections()
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=address.host,
            port=address.port,
            ssl_certfile=keys and keys / "server.pem",
            ssl_keyfile=keys and keys / "server.key",
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=2,
        )
    )
    failures: list[BaseException] = []

    def run() -> None:
        try:
            server.run()
        except BaseException as error:  # uvicorn exits if it cannot listen
            failures.append(error)

    thread = threading.Thread(target=run, name="http", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RunError(
                    f"the server cannot listen at {address}; expected a free port of this "
                    "machine. Choose another with --server HOST:PORT."
                )
            time.sleep(0.01)
        yield server
    finally:
        server.should_exit = True
        thread.join(10)
