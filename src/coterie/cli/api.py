"""Commands that hand a model to applications: api and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import (
    CertificateKeyOption,
    CertificateOption,
    JsonOption,
    RunFolderArgument,
)
from coterie.cli.say import say

DEFAULT_ADDRESS = "127.0.0.1:8080"


def api(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|STORE", help="Run folder, or a node's store.", show_default=False
        ),
    ],
    address: Annotated[
        str, typer.Option("--address", help="Where to listen, HOST:PORT.")
    ] = DEFAULT_ADDRESS,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the token that callers must send. Only its owner may read it.",
            show_default=False,
        ),
    ] = None,
    certificate: CertificateOption = None,
    key: CertificateKeyOption = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(
            "--client-ca",
            metavar="FILE",
            help="Authority of client certificates, which callers must have.",
            show_default=False,
        ),
    ] = None,
    check_every: Annotated[
        float,
        typer.Option(
            "--check-every", metavar="SECONDS", min=0.1, help="How often to look for a new model."
        ),
    ] = 1.0,
) -> None:
    """Serve recommendations over HTTP.

    A new model in the run folder or store is loaded in the background and replaces the old one
    without an interruption. A node's store serves its own users only. Beyond loopback callers need
    a token or a client certificate.

    coterie api runs/fedals-ml-1m-1

    coterie api mine.db --address 10.0.0.5:8080 --token-file token
    """
    from coterie.deployment.address import Address
    from coterie.serving.access import Access
    from coterie.serving.server import serve

    access = Access.of(Address.of(address), token_file, certificate, key, client_ca)
    serve(source, access, check_every, say)


def export(
    folder: RunFolderArgument,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="New folder.", show_default=False),
    ],
    users: Annotated[
        bool,
        typer.Option(
            "--users",
            help="Also write the users: ids, vectors and seen items. Only you can read the files.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Export a model as plain files that need no Coterie.

    A scorer in Python, with NumPy only, and one in JavaScript are written next to them. Factor and
    item-item models can be exported.

    coterie export runs/fedals-ml-1m-1 --out model
    """
    import json

    from coterie.serving.export import export as write

    manifest = write(folder, out, users)
    files = sorted(file.name for file in out.iterdir())
    size = sum(file.stat().st_size for file in out.iterdir())
    if as_json:
        about = {"folder": str(out), "version": manifest["version"], "bytes": size, "files": files}
        say(json.dumps(about))
        return
    say(
        f"{len(manifest['items']):,} items and {len(manifest['users']):,} users, "
        f"{size / 1e6:.1f} MB: {out} ({', '.join(files)})"
    )
