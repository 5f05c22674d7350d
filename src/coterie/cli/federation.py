"""Commands about federations of real nodes: federation init, add and revoke, serve, join, status."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import Columns, Json, SkipBadRows, parse_columns

Insecure = Annotated[bool, typer.Option("--insecure", help="Without TLS; on loopback alone.")]
Server = Annotated[str, typer.Option("--server", help="Where the server listens, HOST:PORT.")]
DEFAULT = "127.0.0.1:8000"


def serve(
    config: Annotated[
        Path, typer.Option("--config", "-c", help="An experiment file, with `items: FILE`.")
    ],
    server: Server = DEFAULT,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run folder.", show_default="runs/NAME-federation-N"),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", help="The folder of coterie federation init.", show_default=False),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Serve a federation: nodes join, train and send updates.

    coterie serve --config federation.yaml --keys federation --server 10.0.0.5:8000

    coterie serve --config federation.yaml --insecure
    """
    from coterie.cli.screen import ScreenProgress
    from coterie.deployment.flower.serve import serve as start

    start(config, server, out, keys, insecure, ScreenProgress())


def join(
    data: Annotated[
        Path, typer.Option("--data", help="What this node's people did: user_id, item_id, ...")
    ],
    store: Annotated[
        Path, typer.Option("--store", help="The node's own store; made where there is none.")
    ],
    server: Server = DEFAULT,
    columns: Columns = None,
    skip_bad_rows: SkipBadRows = False,
    simulated: Annotated[
        bool,
        typer.Option(
            "--as-simulated",
            help="Draw what a simulation draws, to repeat one; the server could repeat it, too.",
        ),
    ] = False,
    least_group: Annotated[
        int,
        typer.Option(
            "--least-group",
            min=2,
            help="How well the model serves people is told in sums over so many or more.",
        ),
    ] = 10,
    key: Annotated[
        Path | None, typer.Option("--key", help="This node's key, NAME.key.", show_default=False)
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", help="ca.pem of the federation: who vouches for the server.", show_default=False
        ),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Join a federation with this node's people. What they did stays in the node's store.

    coterie join --data mine.csv --store node.db --server 10.0.0.5:8000 --key ann.key --ca ca.pem

    coterie join --data mine.csv --store node.db --insecure
    """
    from coterie.cli.screen import ScreenProgress
    from coterie.deployment.flower.join import NodeUsers
    from coterie.deployment.flower.join import join as start

    about = NodeUsers(data, parse_columns(columns), simulated, least_group, skip_bad_rows)
    start(about, store, server, (key, ca), insecure, ScreenProgress())


def status(
    folder: Annotated[
        Path, typer.Argument(help="The run folder of a federation.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Show what a federation's server is at.

    Round, nodes, updates, what was refused, bytes.
    """
    import json

    from coterie.errors import RunError

    try:
        text = (folder / "status.json").read_text()
    except OSError:
        raise RunError(
            f"{folder} holds no status.json; expected the run folder of `coterie serve`. Check the path."
        ) from None
    if as_json:
        typer.echo(text.strip())
        return
    for key, value in json.loads(text).items():
        lines = (
            {f"{key}, {name}": each for name, each in value.items()}
            if isinstance(value, dict)
            else {key: value}
        )
        for label, each in (lines or {key: "none"}).items():
            typer.echo(f"{label.replace('_', ' '):24} {_shown(each)}")


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


app = typer.Typer(help="Certificates and keys: who may serve and join.", no_args_is_help=True)
Folder = Annotated[
    Path, typer.Argument(help="The folder of certificates and keys.", show_default=False)
]
Name = Annotated[str, typer.Argument(help="The node's name.", show_default=False)]


@app.command()
def init(
    folder: Folder,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="A name or address of the server; repeat for more.",
            show_default="127.0.0.1",
        ),
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", help="A node that may join; repeat for more.")
    ] = None,
) -> None:
    """Make an authority, the server's certificate and keys for nodes."""
    from coterie.deployment import certificates

    certificates.init(folder, host or ["127.0.0.1"], node or [])
    typer.echo(
        f"{folder}: the server needs all of it; a node needs ca.pem and its own key of {folder / 'nodes'}, and nothing else."
    )


@app.command()
def add(folder: Folder, name: Name) -> None:
    """A key for one more node; a server that runs lets it in at once."""
    from coterie.deployment import certificates

    typer.echo(certificates.add(folder, name))


@app.command()
def revoke(folder: Folder, name: Name) -> None:
    """Let a node in no more; a server that runs does so at once."""
    from coterie.deployment import certificates

    certificates.revoke(folder, name)
    typer.echo(f"{name} is let in no more")
