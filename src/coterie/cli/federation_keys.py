"""Commands for a federation's operator: its certificates, the keys of its nodes, and doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import JsonOption
from coterie.cli.say import say

app = typer.Typer(help="Manage certificates and keys; check connections.", no_args_is_help=True)
KeyFolderArgument = Annotated[
    Path, typer.Argument(help="Folder of certificates and keys.", show_default=False)
]
DATE = len("2027-01-31")
NodeNameArgument = Annotated[str, typer.Argument(help="Name of the node.", show_default=False)]


@app.command()
def init(
    folder: KeyFolderArgument,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="Host name or address by which nodes reach the server. Repeat for more.",
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
    say(
        f"Created {folder}. The server needs ca.pem, server.pem, server.key and nodes/*.pub. "
        f"A node needs only ca.pem and its own key, nodes/NAME.key: move it there. "
        "Keep ca.key elsewhere: it is needed for new certificates only."
    )


@app.command()
def add(
    folder: KeyFolderArgument,
    name: NodeNameArgument,
    days: Annotated[
        int | None,
        typer.Option(
            "--days", min=1, help="Days after which the key expires.", show_default="never"
        ),
    ] = None,
) -> None:
    """Create a key for one more node; a running server accepts it at once."""
    from coterie.deployment import certificates

    say(str(certificates.add(folder, name, days)))


@app.command()
def rotate(
    folder: KeyFolderArgument,
    name: NodeNameArgument,
    days: Annotated[
        int | None,
        typer.Option(
            "--days",
            min=1,
            help="Days after which the new key expires.",
            show_default="as many as the old key had",
        ),
    ] = None,
) -> None:
    """Create a new key for a node; a running server rejects the old one at once.

    The node keeps its name and its users. Give it the new key, and start it again.
    """
    from coterie.deployment import certificates

    say(str(certificates.rotate(folder, name, days)))


@app.command()
def revoke(folder: KeyFolderArgument, name: NodeNameArgument) -> None:
    """Revoke a node's key; a running server rejects the node at once."""
    from coterie.deployment import certificates

    certificates.revoke(folder, name)
    say(f"Revoked {name}.")


@app.command()
def transfer(
    folder: Annotated[Path, typer.Argument(help="Run folder of the server.", show_default=False)],
    origin: Annotated[str, typer.Option("--from", metavar="NODE", help="The node they leave.")],
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="The node they move to.")],
    user: Annotated[
        list[str] | None,
        typer.Option("--user", help="User id. Repeat for more.", show_default="all of the node"),
    ] = None,
) -> None:
    """Approve that another node hosts a node's users, such as those of a node that is lost.

    The other node must have their interactions in its data. What only the lost node stored about
    them is lost, too. If the old node still works, use `coterie node transfer` there.

    coterie federation transfer runs/fedfast-federation-1 --from ann --to bob
    """
    from coterie.deployment.hosting import read_hosts
    from coterie.deployment.transfer import approve

    homes = read_hosts(folder)
    count = approve(folder, origin, to, user or [], homes)
    say(f"Approved: users of {origin} who move to {to} before the next round: {count:,}.")
    if to not in homes.values():
        say(f"{to} has no users yet: check that this is the name of a node's key.")


@app.command()
def renew(
    folder: KeyFolderArgument,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="One more name or address by which nodes reach the server. Repeat for more.",
        ),
    ] = None,
) -> None:
    """Create a new certificate for the server, under the same authority.

    It is for the same hosts and those of --host. Nodes keep ca.pem and their keys. A running server
    uses it after a restart.
    """
    from coterie.deployment import certificates
    from coterie.deployment.validity import Validity, read_certificate

    hosts = certificates.renew(folder, host or [])
    path = folder / "server.pem"
    days = Validity.of(read_certificate(path)).days_left
    say(f"Renewed {path} for {', '.join(hosts)}: {days} days left. Restart coterie serve.")


@app.command("list")
def list_keys(folder: KeyFolderArgument, as_json: JsonOption = False) -> None:
    """List certificates and keys with the days that are left to them."""
    import json

    from coterie.cli.screen import show_table
    from coterie.deployment.key_listing import list_folder

    listing = list_folder(folder)
    if as_json:
        say(json.dumps(listing.to_json()))
        return
    show_table(
        ["certificate", "hosts", "created", "expires", "left", "state"],
        [
            [
                one.file,
                ", ".join(one.hosts),
                one.created[:DATE],
                one.expires[:DATE],
                f"{one.days_left} days",
                one.state,
            ]
            for one in listing.certificates
        ],
        left=4,
        texts=(5,),
    )
    for one in listing.certificates:
        say(f"{one.file}: SHA-256 {one.fingerprint}")
    show_table(
        ["key", "fingerprint", "created", "expires", "left", "state"],
        [
            [
                key.name,
                key.fingerprint,
                (key.created or "unknown")[:DATE],
                (key.expires or "never")[:DATE],
                "" if key.days_left is None else f"{key.days_left} days",
                key.state,
            ]
            for key in listing.keys
        ],
        left=4,
        texts=(5,),
    )


@app.command()
def doctor(
    server: Annotated[
        str,
        typer.Option("--server", help="Address by which this machine reaches the server."),
    ],
    key: Annotated[
        Path | None,
        typer.Option("--key", help="This node's private key, NAME.key.", show_default=False),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option("--ca", help="ca.pem of the federation.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the connection of a node to a server: one line for each check, with a remedy.

    Checks the name, the port, TLS, the certificate, the Fleet API, the clock and the key. Nothing
    changes on the server. The exit code is 2 if a check failed.

    coterie federation doctor --server fed.example:8000 --key ann.key --ca ca.pem
    """
    import json

    from coterie.deployment.address import Address
    from coterie.deployment.fleet.doctor import FAILED_CHECK, examine

    address = Address.of(server)
    checks = examine(address, key, ca)
    failed = any(check.state == FAILED_CHECK for check in checks)
    if as_json:
        found = [check.to_json() for check in checks]
        say(json.dumps({"server": str(address), "ok": not failed, "checks": found}))
    else:
        for check in checks:
            say(check.line)
    if failed:
        raise typer.Exit(2)
