"""Commands about a node: its key, and its store: list, export, erase and transfer users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.say import say

app = typer.Typer(
    help="Make a node's key; manage its store and the users in it.",
    no_args_is_help=True,
)
StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", help="The node's store.", show_default=False)
]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="User id.", show_default=False)]


@app.command()
def key(
    name: Annotated[str, typer.Argument(help="Name of the node.", show_default=False)],
    folder: Annotated[Path, typer.Option("--folder", help="Where the two files go.")] = Path(),
    replaces: Annotated[
        Path | None,
        typer.Option(
            "--replaces",
            metavar="OLD_KEY",
            help="The node's key so far, OLD.key, which signs the new one.",
            show_default="none, for a new node",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files of the same name for good.")
    ] = False,
) -> None:
    """Make this node's key: NAME.key stays here, NAME.pub goes to the server's owner.

    Only its owner can read NAME.key. The server's owner adds NAME.pub: `coterie federation add`.

    coterie node key ann

    coterie node key ann-2 --replaces ann.key
    """
    from coterie.deployment.key_making import make_key

    made = make_key(folder, name, replaces=replaces, overwrite=overwrite)
    say(f"Made {folder / name}.key, which never leaves this machine, and {folder / name}.pub.")
    say(f"Fingerprint: {made.fingerprint}")
    command = f"add KEYS {name} {name}.pub" if replaces is None else f"rotate KEYS NAME {name}.pub"
    say(
        f"Send {name}.pub to the server's owner, who runs: coterie federation {command}. "
        "Compare the fingerprint over another channel."
    )


@app.command("list")
def show(store: StoreArgument) -> None:
    """List the users of a node, one per line."""
    from coterie.deployment.node_private_store import NodeStore

    for user in NodeStore.open(store).users():
        say(user)


@app.command()
def export(store: StoreArgument, user: UserArgument) -> None:
    """Export everything a node stores about a user, as JSON."""
    import json

    from coterie.deployment.node_private_store import NodeStore

    say(json.dumps(NodeStore.open(store).export(user), indent=2, ensure_ascii=False))


@app.command()
def forget(store: StoreArgument, user: UserArgument) -> None:
    """Erase a user's interactions and private state from a node, and the user from the server.

    The server of a running federation erases the user's id and row before its next round, or when
    this node connects again. What the model learned from the user stays in the model. Also remove
    the user from the data file, or the next `coterie join` adds them again.
    """
    from coterie.deployment.node_private_store import FORGOTTEN, NodeStore

    opened = NodeStore.open(store)
    opened.forget(user)
    say(
        f"Erased {user} from {store}. "
        "Remove the user from the data file too, or the next coterie join adds them again."
    )
    if opened.held_list(FORGOTTEN):
        say(
            "The server erases the user, too: before its next round if this node is connected, "
            "or else when it connects again."
        )


@app.command()
def transfer(
    store: StoreArgument,
    users: Annotated[
        list[str], typer.Argument(metavar="USER...", help="User ids.", show_default=False)
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="NODE", help="Name of the node that they move to.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The package to write: a new file.")],
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            help="This node's private key, NAME.key: it signs the transfer.",
            show_default="none, for a federation without keys",
        ),
    ] = None,
) -> None:
    """Move users to another node of the federation, with everything this node stores about them.

    Writes a package with their histories and a permit for the other node, and erases them here.
    Bring the package to the other node over a channel that you trust:
    `coterie node receive STORE PACKAGE`. The permit is valid for 30 days.

    coterie node transfer ann.db 42 --to bob --key ann.key --out 42.package
    """
    from coterie.deployment import user_package
    from coterie.deployment.node_data import PREFERENCE_FILES
    from coterie.deployment.node_private_store import NodeStore
    from coterie.deployment.transfer import SignedPermit

    opened = NodeStore.open(store)
    user_package.refuse_unsigned(opened, store, key)
    text = user_package.permit_for(opened, users, to).to_json()
    signed = SignedPermit(text, "")
    if key is not None:
        from coterie.deployment.fleet.keys import NodeKey

        own = NodeKey.read(key)
        user_package.refuse_other_key(opened, key, own.public)
        signed = SignedPermit(text, own.sign(signed.signed_text))
    user_package.write(user_package.pack(opened, users, signed), out)
    opened.release(users)
    say(
        f"Moved from {store} to {out}: {', '.join(users)}. The file holds their histories. "
        f"On the node {to}, run: coterie node receive STORE {out.name}. "
        f"To undo it: coterie node receive {store} {out}"
    )
    if any(opened.meta(key) for key in PREFERENCE_FILES):
        say(
            "Their disclosure rates and private items are not in it: "
            f"they belong in the files of {to}."
        )


@app.command()
def receive(
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE",
            help="The node's store; created if it does not exist.",
            show_default=False,
        ),
    ],
    package: Annotated[
        Path, typer.Argument(help="The package of `coterie node transfer`.", show_default=False)
    ],
) -> None:
    """Put users who come from another node into this node's store, and delete the package.

    A running node tells the server at once; the users take part from the next round on.
    """
    from coterie.deployment import user_package
    from coterie.deployment.node_private_store import NodeStore

    found = user_package.read(package)
    opened = NodeStore.open(store) if store.exists() else NodeStore.create(store)
    user_package.refuse_other_node(found, package, opened)
    users = user_package.unpack(found, opened)
    package.unlink()
    say(f"Moved to {store}: {', '.join(users)}. Deleted {package}.")
