"""`coterie console`: runs and federations in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import CertificateKeyOption, CertificateOption
from coterie.cli.say import say


def console(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FOLDER...]",
            help="Folders with runs, federations, papers or data files.",
            show_default="runs",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Where to listen. Other than loopback needs TLS.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")
    ] = 8090,
    certificate: CertificateOption = None,
    key: CertificateKeyOption = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the token that changes need. Only its owner may read it.",
            show_default="a new token",
        ),
    ] = None,
) -> None:
    """Show runs and federations in a browser.

    Pages follow runs while they train. Only the folders named are read, and nothing comes from the
    network. To start, stop and resume runs, a browser needs the token that is printed.

    coterie console

    coterie console runs data
    """
    from coterie.console.access import ConsoleAccess
    from coterie.console.folders import Folders
    from coterie.console.server import serve_console
    from coterie.console.session import Session
    from coterie.deployment.address import Address

    access = ConsoleAccess.of(Address(host.strip("[]"), port), certificate, key)
    session = Session.of(access.address, token_file, access.files.is_encrypted, access.is_local)
    serve_console(Folders.of(folders or [Path("runs")]), access, session, say)
