"""Commands about the devices of a federation: one-time codes, the list, revoking."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import JsonOption
from coterie.cli.say import say

app = typer.Typer(
    help="Let browsers take part in a federation.",
    no_args_is_help=True,
)
RunArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="Run folder of `coterie serve --devices`.", show_default=False
    ),
]


@app.command()
def code(
    run: RunArgument,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=10_000, help="How many codes to make.")
    ] = 1,
    qr: Annotated[
        bool, typer.Option("--qr", help="Show each address as a QR code, too, for a phone.")
    ] = False,
) -> None:
    """Make one-time codes, each with the address that enrols a device with it.

    A code works once, and for seven days. Whoever has the address can enrol with it: send it over
    a channel that you trust.

    coterie device code runs/pfpl+-federation-1 --qr
    """
    from coterie.deployment.devices.qr_codes import qr_text
    from coterie.deployment.devices.store import DeviceStore
    from coterie.deployment.traffic import read_status
    from coterie.errors import RunError

    store = DeviceStore.open(run)
    if read_status(run).get("state") == "finished":
        raise RunError(
            f"{run} is a finished federation, which no device can join; expected one that trains "
            "or waits for devices. Begin another: coterie serve --config FILE --devices"
        )
    for _ in range(count):
        made = store.add_code()
        address = f"{store.url()}#code={made}"
        say(f"{made}  {address}")
        if qr:
            say(qr_text(address))
    if store.url().startswith("https:"):
        # Not among the codes: scripts read those.
        say("Each device has to trust the federation's ca.pem first: docs/device.md.", err=True)


@app.command("list")
def show(run: RunArgument, as_json: JsonOption = False) -> None:
    """List the devices of a federation: id, user index, state, key, date and name."""
    import json
    from datetime import UTC, datetime

    from coterie.core.printable import one_line
    from coterie.deployment.devices.signatures import fingerprint_of_key
    from coterie.deployment.devices.store import DeviceStore

    devices = DeviceStore.open(run).devices()
    rows = [
        {
            "device": device.id,
            "user": device.number,
            "state": "enrolled" if device.revoked is None else "revoked",
            "key": fingerprint_of_key(device.key),
            "enrolled": datetime.fromtimestamp(device.enrolled, UTC).isoformat(timespec="seconds"),
            "name": device.name,
        }
        for device in devices
    ]
    if as_json:
        say(json.dumps(rows))
        return
    for row in rows:
        say("  ".join("-" if value is None else one_line(value) for value in row.values()))
    if not rows:
        say(f"{run} has no devices. Make a code: coterie device code {run}")


@app.command()
def revoke(
    run: RunArgument,
    device: Annotated[
        str, typer.Argument(metavar="DEVICE", help="Id of the device.", show_default=False)
    ],
) -> None:
    """Revoke a device: it is refused from now on, and its user is erased from the federation.

    A running server erases the user's id before its next round. What the model learned from the
    user stays in the model.
    """
    from coterie.deployment.devices.store import DeviceStore

    found = DeviceStore.open(run).revoke(device)
    say(f"Revoked {found.id} ({found.name}).")
