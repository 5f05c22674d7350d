"""Commands about a node's own store: whom it holds, all that it holds of a person, and how to erase it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="A node's own store: list, export and forget its people.", no_args_is_help=True
)
Place = Annotated[
    Path, typer.Argument(metavar="STORE", help="The node's store.", show_default=False)
]
User = Annotated[str, typer.Argument(metavar="USER", help="A person's id.", show_default=False)]


@app.command("list")
def show(store: Place) -> None:
    """The people of a node, one a line."""
    from coterie.deployment.node_store import NodeStore

    for person in NodeStore.open(store).users():
        typer.echo(person)


@app.command()
def export(store: Place, user: User) -> None:
    """All that a node holds about a person, as JSON."""
    import json

    from coterie.deployment.node_store import NodeStore

    typer.echo(json.dumps(NodeStore.open(store).export(user), indent=2, ensure_ascii=False))


@app.command()
def forget(store: Place, user: User) -> None:
    """Erase a person from a node: what they did, and what their device kept.

    What a model learned from them stays in the model, and the server keeps the id that it was told. Take them out of the file that the
    node joins with, too.
    """
    from coterie.deployment.node_store import NodeStore

    NodeStore.open(store).forget(user)
    typer.echo(
        f"{user} is erased from {store}; a file that still holds them brings them back with the next coterie join"
    )
