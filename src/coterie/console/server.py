"""`coterie console`: the HTTP server, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coterie.console.access import ConsoleAccess
from coterie.console.folders import Folders
from coterie.console.following import RunFollowers
from coterie.console.form import algorithms
from coterie.console.guard import SecureHeaders
from coterie.console.session import Session
from coterie.console.workspace import Workspace
from coterie.serving.server import bound_socket, run_until_stopped, server_of

if TYPE_CHECKING:
    import uvicorn


QUIET_SECONDS = 5.0


@dataclass(slots=True)
class Ending:
    """Whether the server ends: streams of events would keep it open."""

    server: uvicorn.Server | None = None

    def is_near(self) -> bool:
        return self.server is not None and self.server.should_exit


def warm_up() -> None:
    """Import what the form and comparisons need: it takes seconds, for which nobody should wait."""
    algorithms()
    # Whoever opens the first page now should not wait for the comparisons of a later one.
    time.sleep(QUIET_SECONDS)
    import pandas  # noqa: F401
    import scipy.stats  # noqa: F401


def serve_console(
    folders: Folders, access: ConsoleAccess, session: Session, log: Callable[[str], None]
) -> None:
    """Serve until interrupted. Runs that were started go on without the console."""
    from coterie.console.app import make_console
    from coterie.serving.connection import ApiConnection
    from coterie.serving.gate import ApiGate

    tls = access.files.tls()
    ending = Ending()
    console = make_console(Workspace.of(folders), session, RunFollowers(ending.is_near))
    app = SecureHeaders(ApiGate(console, access, log))
    with bound_socket(access.address, "--port PORT") as listening:
        if not access.is_local:
            log(
                f"warning: other machines can reach {access.url}. Whoever has the token can read "
                "all runs and start programs here."
            )
        log(f"Console: {access.url} shows {', '.join(map(str, folders.roots))}.")
        log(f"To start and stop runs, open {access.url}/#token={session.token}")
        log("Stop with Ctrl-C.")
        threading.Thread(target=warm_up, name="warm-up", daemon=True).start()
        ending.server = server_of(app, ApiConnection, tls)
        run_until_stopped(ending.server, listening)
    log("Stopped.")
