"""Commands for a federation's operator: certificates, invitations, nodes' public keys; roll-backs;
doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import InvitationOption, JsonOption
from coterie.cli.say import say

app = typer.Typer(
    help="Manage certificates and keys; roll back; check connections.", no_args_is_help=True
)
KeyFolderArgument = Annotated[
    Path, typer.Argument(help="Folder of certificates and keys.", show_default=False)
]
DATE = len("2027-01-31")
NodeNameArgument = Annotated[str, typer.Argument(help="Name of the node.", show_default=False)]
PublicKeyArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PUBLIC_KEY",
        help="The file NAME.pub that the node's owner sent.",
        show_default=False,
    ),
]


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
) -> None:
    """Create a certificate authority and the server's certificate.

    Nodes make their own keys: `coterie node key`.
    """
    from coterie.deployment import certificates

    certificates.init(folder, host or ["127.0.0.1"])
    say(
        f"Created {folder}. The server needs ca.pem, server.pem, server.key and nodes/*.pub. "
        "Keep ca.key elsewhere: it is needed for new certificates only. "
        f"Next: coterie federation invite {folder} --config FILE --server HOST:PORT"
    )


@app.command()
def invite(
    folder: KeyFolderArgument,
    config: Annotated[
        Path,
        typer.Option("--config", "-c", help="Experiment file, as for `coterie serve`."),
    ],
    server: Annotated[
        str, typer.Option("--server", help="Address by which nodes reach the server, HOST:PORT.")
    ],
) -> None:
    """Write FOLDER/invitation.txt, which nodes need to join. Nothing in it is secret.

    It has the server's address, its authority's certificate, the algorithm and the protection of
    users. Send it to all nodes; they send their public keys: `coterie node key`.

    coterie federation invite keys --config federation.yaml --server 10.0.0.5:8000
    """
    from coterie.deployment.invitation import write_invitation
    from coterie.deployment.private_terms import protection_of
    from coterie.deployment.server_config import read_server_config
    from coterie.deployment.validity import certificate_fingerprint

    _, experiment = read_server_config(config)
    trains = protection_of(experiment)
    path = write_invitation(folder, server, trains)
    say(f"Wrote {path}: {server}, {trains}. Send it to the nodes.")
    say(f"Fingerprint of its certificate: SHA-256 {certificate_fingerprint(path)}")


@app.command()
def add(
    folder: KeyFolderArgument,
    name: NodeNameArgument,
    public_key: PublicKeyArgument,
    days: Annotated[
        int | None,
        typer.Option(
            "--days", min=1, help="Days after which the key expires.", show_default="never"
        ),
    ] = None,
) -> None:
    """Accept one more node, with the public key that it made; a running server does so at once.

    Compare the fingerprint with the node's owner over another channel.

    coterie federation add keys ann ann.pub
    """
    from coterie.deployment import certificates

    key = certificates.add(folder, name, public_key, days)
    say(f"Added {name}: {key.fingerprint}. Compare it with what the node shows.")


@app.command()
def rotate(
    folder: KeyFolderArgument,
    name: NodeNameArgument,
    public_key: PublicKeyArgument,
    days: Annotated[
        int | None,
        typer.Option(
            "--days",
            min=1,
            help="Days after which the new key expires.",
            show_default="as many as the old key had",
        ),
    ] = None,
    unsigned: Annotated[
        bool,
        typer.Option(
            "--unsigned", help="Accept a key that the old one did not sign, as if that is lost."
        ),
    ] = False,
) -> None:
    """Replace a node's key by one that the node made; a running server rejects the old one at once.

    The node keeps its name and its users. On the node: `coterie node key NEW --replaces OLD.key`,
    and, after this command, `coterie join` with the new key.

    coterie federation rotate keys ann ann-2.pub
    """
    from coterie.deployment import certificates

    key = certificates.rotate(folder, name, public_key, days, unsigned=unsigned)
    say(f"Replaced the key of {name}: {key.fingerprint}.")


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
def rollback(
    folder: Annotated[Path, typer.Argument(help="Run folder of the server.", show_default=False)],
    to: Annotated[
        int,
        typer.Option("--round", min=1, metavar="N", help="Committed round to return to."),
    ],
    without: Annotated[
        list[str],
        typer.Option("--without", metavar="NODE", help="Node that is left out. Repeat for more."),
    ],
) -> None:
    """Return to an earlier round, and go on as if some nodes had not answered since.

    The server must be stopped. Its nodes restore the private state of that round by themselves.
    What users spent of their privacy is not refunded.

    coterie federation rollback runs/fcf-federation-1 --round 40 --without mallory
    """
    from coterie.deployment.rollback import nodes_left, roll_back
    from coterie.deployment.rollback_log import RollbackLog
    from coterie.deployment.server_folder import read_json

    done = roll_back(folder, to, without)
    names = ", ".join(done.without)
    say(
        f"Rolled back to round {done.round:,}; rounds undone: {done.undone:,}. Quarantined in this "
        f"run: {names}. Start the server again with the same coterie serve as before, "
        f"--out {folder}"
    )
    n = len(RollbackLog.read(folder).rounds)
    say(f"Roll-backs of this run: {n}. Nodes follow as many as `rollbacks` of their policies says.")
    left = nodes_left(folder)
    least = read_json(folder, "service.json").get("least_nodes", 1)
    if left < least:
        say(f"least_nodes is {least}, and nodes left are {left}: lower it in the server's file.")
    say(f"To reject the key everywhere, run: coterie federation revoke KEYS {done.without[0]}")


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
    invitation: InvitationOption = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="This node's private key, NAME.key.", show_default=False),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            help="Address by which this machine reaches the server.",
            show_default="that of the invitation",
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", help="ca.pem of the federation.", show_default="that of the invitation"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the connection of a node to a server: one line for each check, with a remedy.

    Checks the name, the port, TLS, the certificate, the Fleet API, the clock and the key. Nothing
    changes on the server. The exit code is 2 if a check failed.

    coterie federation doctor --invitation invitation.txt --key ann.key
    """
    import json

    from coterie.deployment.address import Address
    from coterie.deployment.fleet.doctor import FAILED_CHECK, examine
    from coterie.deployment.invitation import read_invitation
    from coterie.errors import ConfigError

    if invitation is not None:
        server = server or read_invitation(invitation).server
        ca = ca or invitation
    if server is None:
        raise ConfigError(
            "no server is named; expected --invitation FILE, or --server HOST:PORT. Add one."
        )
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
