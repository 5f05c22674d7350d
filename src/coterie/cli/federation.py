"""Commands about federations of nodes: federation init, add and revoke; serve, join, status."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import (
    ColumnsOption,
    DelimiterOption,
    EncodingOption,
    JsonOption,
    NoHeaderOption,
    SkipBadRowsOption,
    file_settings,
)

InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Disable TLS; allowed on loopback only.")
]
ServerOption = Annotated[str, typer.Option("--server", help="Address of the server, HOST:PORT.")]
DEFAULT_SERVER = "127.0.0.1:8000"


def serve(
    config: Annotated[
        Path,
        typer.Option("--config", "-c", help="Experiment file; it names the items: `items: FILE`."),
    ],
    server: ServerOption = DEFAULT_SERVER,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Run folder.", show_default="runs/NAME-federation-N"),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys", help="Folder made by `coterie federation init`.", show_default=False
        ),
    ] = None,
    insecure: InsecureOption = False,
) -> None:
    """Run a federation's server, which nodes join.

    coterie serve --config federation.yaml --keys federation --server 10.0.0.5:8000

    coterie serve --config federation.yaml --insecure
    """
    from coterie.cli.screen import ScreenProgress
    from coterie.deployment.flower.serve import serve as start

    start(config, server, out, keys, insecure, ScreenProgress())


def join(
    data: Annotated[
        Path,
        typer.Option("--data", help="Interactions of this node's users: user_id, item_id, ..."),
    ],
    store: Annotated[
        Path,
        typer.Option("--store", help="This node's store; created if it does not exist."),
    ],
    server: ServerOption = DEFAULT_SERVER,
    columns: ColumnsOption = None,
    skip_bad_rows: SkipBadRowsOption = False,
    encoding: EncodingOption = None,
    delimiter: DelimiterOption = None,
    no_header: NoHeaderOption = False,
    simulated: Annotated[
        bool,
        typer.Option(
            "--as-simulated",
            help=(
                "Draw the same random numbers as a simulation, to reproduce it. "
                "The server can then predict them too."
            ),
        ),
    ] = False,
    least_group: Annotated[
        int,
        typer.Option(
            "--least-group",
            min=2,
            help="Smallest group of users for which metrics are reported.",
        ),
    ] = 10,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="This node's private key, NAME.key.", show_default=False),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca",
            help="ca.pem of the federation: the authority that signed the server's certificate.",
            show_default=False,
        ),
    ] = None,
    insecure: InsecureOption = False,
) -> None:
    """Join a federation with this node's users.

    The node stores their interactions. What it sends of them depends on the algorithm and on secure
    aggregation: docs/privacy.md.

    coterie join --data mine.csv --store node.db --server 10.0.0.5:8000 --key ann.key --ca ca.pem

    coterie join --data mine.csv --store node.db --insecure
    """
    from coterie.cli.screen import ScreenProgress
    from coterie.data.options import ReadOptions
    from coterie.deployment.flower.join import NodeUsers
    from coterie.deployment.flower.join import join as start

    of_file = file_settings(columns, skip_bad_rows, encoding, delimiter, no_header)
    users = NodeUsers(data, ReadOptions(**of_file), simulated, least_group)
    start(users, store, server, (key, ca), insecure, ScreenProgress())


def status(
    folder: Annotated[Path, typer.Argument(help="Run folder of a federation.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Show the state of a federation's server.

    Prints the round, nodes, updates, rejected replies and bytes.
    """
    import json

    from coterie.errors import RunError

    try:
        text = (folder / "status.json").read_text()
    except OSError:
        raise RunError(
            f"{folder} holds no status.json; expected the run folder of `coterie serve`. "
            "Check the path."
        ) from None
    if as_json:
        typer.echo(text.strip())
        return
    for key, value in json.loads(text).items():
        lines = {key: value}
        if isinstance(value, dict):
            lines = {f"{key}, {name}": entry for name, entry in value.items()}
        for label, entry in (lines or {key: "none"}).items():
            typer.echo(f"{label.replace('_', ' '):24} {_format(entry)}")


def _format(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


app = typer.Typer(help="Manage a federation's certificates and keys.", no_args_is_help=True)
KeyFolderArgument = Annotated[
    Path, typer.Argument(help="Folder of certificates and keys.", show_default=False)
]
NodeNameArgument = Annotated[str, typer.Argument(help="Name of the node.", show_default=False)]


@app.command()
def init(
    folder: KeyFolderArgument,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="Host name or address of the server. Repeat for more.",
            show_default="127.0.0.1",
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", help="Name of a node that may join. Repeat for more."),
    ] = None,
) -> None:
    """Create a certificate authority, the server's certificate and keys for nodes."""
    from coterie.deployment import certificates

    certificates.init(folder, host or ["127.0.0.1"], node or [])
    typer.echo(
        f"Created {folder}. The server needs the whole folder. "
        f"A node needs only ca.pem and its own key from {folder / 'nodes'}."
    )


@app.command()
def add(folder: KeyFolderArgument, name: NodeNameArgument) -> None:
    """Create a key for one more node; a running server accepts it at once."""
    from coterie.deployment import certificates

    typer.echo(certificates.add(folder, name))


@app.command()
def revoke(folder: KeyFolderArgument, name: NodeNameArgument) -> None:
    """Revoke a node's key; a running server rejects the node at once."""
    from coterie.deployment import certificates

    certificates.revoke(folder, name)
    typer.echo(f"Revoked {name}.")
