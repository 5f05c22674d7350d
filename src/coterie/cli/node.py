"""Commands about a node's store: list its users, export one user's data, erase a user."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Manage a node's store: list, export and forget its users.", no_args_is_help=True
)
StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", help="The node's store.", show_default=False)
]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="User id.", show_default=False)]


@app.command("list")
def show(store: StoreArgument) -> None:
    """List the users of a node, one per line."""
    from coterie.deployment.node_private_store import NodeStore

    for user in NodeStore.open(store).users():
        typer.echo(user)


@app.command()
def export(store: StoreArgument, user: UserArgument) -> None:
    """Export everything a node stores about a user, as JSON."""
    import json

    from coterie.deployment.node_private_store import NodeStore

    typer.echo(json.dumps(NodeStore.open(store).export(user), indent=2, ensure_ascii=False))


@app.command()
def forget(store: StoreArgument, user: UserArgument) -> None:
    """Erase a user's interactions and private state from a node.

    What the model learned from the user stays in the model. The server keeps the user id it
    received. Also remove the user from the data file, or the next `coterie join` adds them again.
    """
    from coterie.deployment.node_private_store import NodeStore

    NodeStore.open(store).forget(user)
    typer.echo(
        f"Erased {user} from {store}. "
        "Remove the user from the data file too, or the next coterie join adds them again."
    )
