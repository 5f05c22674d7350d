"""`coterie api`: the HTTP server of one model, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from coterie.deployment.address import Address
from coterie.errors import ConfigError
from coterie.serving.access import Access
from coterie.serving.sources import source_of
from coterie.serving.watcher import ModelWatcher

if TYPE_CHECKING:
    import uvicorn

MOST_CONNECTIONS = 1024
WAITING_CONNECTIONS = 1024
IDLE_SECONDS = 75
SWITCH_SECONDS = 0.0005
"""How long a thread keeps the interpreter while another one waits for it."""
STOP_SECONDS = 10
"""Time for requests under way to finish when the server stops."""


def serve(path: Path, access: Access, check_seconds: float, log: Callable[[str], None]) -> None:
    """Serve the model at `path` until interrupted."""
    from coterie.serving.app import make_app
    from coterie.serving.connection import ApiConnection
    from coterie.serving.gate import ApiGate

    tls = access.tls()
    watcher = ModelWatcher(source_of(path), log)
    app = ApiGate(make_app(watcher), access, log)
    model = watcher.current
    with bound_socket(access.address) as listening:
        if not (access.is_encrypted or access.is_local):
            log(
                "Traffic is not encrypted: tokens and recommendations can be read on the way. "
                "Add --certificate and --key, or put a proxy with TLS in front."
            )
        log(
            f"{access.url} recommends by {model.algorithm} from {path}, version {model.version}. "
            "Stop with Ctrl-C."
        )
        # A model that is loaded in the background must not hold up requests for 5 ms at a time.
        sys.setswitchinterval(SWITCH_SECONDS)
        watcher.start(check_seconds)
        # One request is one small product: more threads would wait for each other.
        with threadpool_limits(1, "blas"):
            run_until_stopped(server_of(app, ApiConnection, tls), listening)
        watcher.stop()
    log("Stopped.")


def server_of(app: Any, protocol: type, tls: Any) -> uvicorn.Server:
    import uvicorn

    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        backlog=WAITING_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    config.load()
    config.ssl = tls
    return uvicorn.Server(config)


def run_until_stopped(server: uvicorn.Server, listening: socket.socket) -> None:
    """Run until SIGINT or SIGTERM; requests under way are finished.

    uvicorn repeats the signal at its end, for the process to die of. The server has stopped in
    good order by then, so that nothing is left to do.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server.run(sockets=[listening])


def bound_socket(address: Address, option: str = "--address HOST:PORT") -> socket.socket:
    """A socket that listens at the address, or an error that names it and the option."""
    try:
        family = socket.getaddrinfo(address.host, address.port)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address.host, address.port))
        # From here on connections wait; none is refused once the address is printed.
        bound.listen(WAITING_CONNECTIONS)
    except OSError as error:
        raise ConfigError(
            f"the server cannot listen at {address} ({error.strerror}); expected a free port of "
            f"this machine. Choose another with {option}."
        ) from None
    return bound
