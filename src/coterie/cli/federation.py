"""Commands that run a federation of nodes: serve, join, status."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from coterie.cli.options import (
    ColumnsOption,
    DelimiterOption,
    EncodingOption,
    InvitationOption,
    JsonOption,
    NoHeaderOption,
    SkipBadRowsOption,
    file_settings,
)
from coterie.cli.say import say

if TYPE_CHECKING:
    from coterie.cli.log_lines import LogLevel
    from coterie.core.progress import Progress

InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Disable TLS; allowed on loopback only.")
]
ServerOption = Annotated[str, typer.Option("--server", help="Address of the server, HOST:PORT.")]
DEFAULT_SERVER = "127.0.0.1:8000"
LogFormatOption = Annotated[
    Literal["text", "json"],
    typer.Option("--log-format", help="How lines are logged: for people, or as JSON objects."),
]


LogLevelOption = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option(
        "--log-level",
        help="Lowest level to log; debug has a line for each round or message.",
    ),
]


def errors_of(log_format: str) -> AbstractContextManager[None]:
    """How errors that end the body are shown: by `coterie` itself, or as JSON lines."""
    from coterie.cli.log_lines import errors_as_lines

    return errors_as_lines() if log_format == "json" else nullcontext()


def progress_of(log_format: str, log_level: LogLevel) -> Progress:
    """What shows the progress of a server or node."""
    from coterie.cli.log_lines import FromLevel, JsonLines

    if log_format == "json":
        return FromLevel(JsonLines(), log_level)
    from coterie.cli.screen import ScreenProgress

    return FromLevel(ScreenProgress(), log_level)


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
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            min=0,
            metavar="SECONDS",
            help="How long to wait for nodes: at the start, and when too few answer.",
            show_default="wait_seconds of the config file, or 600",
        ),
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(
            "--metrics",
            min=1,
            max=65535,
            metavar="PORT",
            help="Port on 127.0.0.1 for /healthz and Prometheus' /metrics.",
            show_default=False,
        ),
    ] = None,
    devices: Annotated[
        bool,
        typer.Option("--devices", help="Let browsers take part, too: docs/device.md."),
    ] = False,
    devices_port: Annotated[
        int | None,
        typer.Option(
            "--devices-port",
            min=1,
            max=65535,
            metavar="PORT",
            help="Port at which browsers reach the server.",
            show_default="the one after that of --server",
        ),
    ] = None,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
) -> None:
    """Run a federation's server, which nodes join.

    coterie serve --config federation.yaml --keys keys --server 10.0.0.5:8000

    coterie serve --config federation.yaml --insecure
    """
    with errors_of(log_format):
        from coterie.deployment.fleet.serve import serve as start

        progress = progress_of(log_format, log_level)
        port = port_of_devices(devices, devices_port, server)
        start(config, server, out, keys, insecure, progress, wait, metrics, port)


def port_of_devices(devices: bool, port: int | None, server: str) -> int | None:
    """The port for browsers; None if they do not take part."""
    from coterie.deployment.address import Address
    from coterie.errors import ConfigError

    if not devices and port is not None:
        raise ConfigError(
            f"--devices-port is {port} without --devices; expected both. Add --devices."
        )
    if not devices:
        return None
    return port or Address.of(server).port % 65535 + 1


def join(
    data: Annotated[
        Path,
        typer.Option("--data", help="Interactions of this node's users: user_id, item_id, ..."),
    ],
    store: Annotated[
        Path,
        typer.Option("--store", help="This node's store; created if it does not exist."),
    ],
    invitation: InvitationOption = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            help="This node's private key, NAME.key: `coterie node key`.",
            show_default=False,
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            help="Address of the server, HOST:PORT.",
            show_default=f"that of the invitation, or {DEFAULT_SERVER}",
        ),
    ] = None,
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
    disclosure: Annotated[
        Path | None,
        typer.Option(
            "--disclosure",
            help="Disclosure rates that users chose: user_id, disclosure and, optionally, epoch.",
            show_default=False,
        ),
    ] = None,
    private_items: Annotated[
        Path | None,
        typer.Option(
            "--private-items",
            help="Items that users never share: user_id and item_id.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            help=(
                "YAML file of what a server may ask of this node: docs/policy.md. It holds until "
                "another is given."
            ),
            show_default="that of the store, or the defaults",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Join without asking whether the policy is right.")
    ] = False,
    new_key: Annotated[
        bool,
        typer.Option("--new-key", help="Join although the store joined with another key before."),
    ] = False,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca",
            help="ca.pem of the federation: the authority that signed the server's certificate.",
            show_default="that of the invitation",
        ),
    ] = None,
    insecure: InsecureOption = False,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
) -> None:
    """Join a federation with this node's users.

    The node stores their interactions. What it sends of them depends on the algorithm and on secure
    aggregation: docs/privacy.md.

    coterie join --data mine.csv --store mine.db --key ann.key --invitation invitation.txt

    coterie join --data mine.csv --store mine.db --insecure
    """
    with errors_of(log_format):
        from coterie.data.options import ReadOptions
        from coterie.deployment.fleet.join import NodeUsers
        from coterie.deployment.fleet.join import join as start
        from coterie.deployment.invitation import read_invitation
        from coterie.deployment.node_policy import read_policy

        of_file = file_settings(columns, skip_bad_rows, encoding, delimiter, no_header)
        users = NodeUsers(
            data,
            ReadOptions(**of_file),
            simulated,
            disclosure,
            private_items,
            None if policy is None else read_policy(policy),
        )
        progress = progress_of(log_format, log_level)

        def confirm(question: str) -> bool:
            return yes or _confirmed(question, progress)

        invited = ""
        if invitation is not None:
            found = read_invitation(invitation)
            invited = found.trains
            server = server or found.server
            ca = ca or invitation
        address = server or DEFAULT_SERVER
        start(users, store, address, (key, ca), insecure, progress, confirm, invited, new_key)


def _confirmed(question: str, progress: Progress) -> bool:
    """Ask on a terminal; without one, as in a script or a service, the answer is yes."""
    if not sys.stdin.isatty():
        progress.log(f"{question} Yes: there is no terminal to ask at. --yes answers in advance.")
        return True
    try:
        return typer.confirm(question, default=True, err=True)
    except typer.Abort:
        # Ctrl-C ends a command with the same exit code at a question as anywhere else.
        raise KeyboardInterrupt from None


def status(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Run folder of a federation, which `coterie serve` printed.", show_default=False
        ),
    ],
    as_json: JsonOption = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every second until the server stops.")
    ] = False,
) -> None:
    """Show the state of a federation's server.

    Prints the round, nodes, users, updates, refusals, bytes and metrics.

    coterie status runs/fedfast-federation-1 --watch
    """
    import json
    import time

    from coterie.deployment.server_status import ENDED, read_current_status

    while True:
        found = read_current_status(folder)
        if watch and not as_json:
            typer.clear()
        say(json.dumps(found) if as_json else _status_lines(found))
        if not watch or found["state"] in ENDED:
            return
        time.sleep(1)


def _status_lines(found: dict[str, object]) -> str:
    labelled = {}
    for key, value in found.items():
        entries = {key: value}
        if isinstance(value, dict):
            entries = {f"{key}, {name}": entry for name, entry in value.items()}
        for label, entry in (entries or {key: "none"}).items():
            labelled[label.replace("_", " ")] = _format(entry)
    width = max(map(len, labelled), default=0)
    return "\n".join(f"{label:{width}}  {text}" for label, text in labelled.items())


def _format(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4f}"
    if isinstance(value, list):
        return ", ".join(map(_format, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_format(entry)}" for key, entry in value.items()) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
