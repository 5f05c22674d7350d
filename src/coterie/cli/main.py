"""The `coterie` command: its sub-commands, and the exit code of a failure."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

import typer
from typer.core import TyperGroup

from coterie.cli import (
    algorithms,
    api,
    data,
    device,
    federation,
    federation_keys,
    node,
    recommend,
    runs,
)
from coterie.cli.attack import attack
from coterie.cli.audit import audit
from coterie.cli.choose import choose
from coterie.cli.compare import compare
from coterie.cli.console import console
from coterie.cli.disclosure import disclosure
from coterie.cli.leaderboard import leaderboard
from coterie.cli.record import record
from coterie.cli.reproduce import reproduce
from coterie.cli.tune import tune
from coterie.core.printable import one_line

if TYPE_CHECKING:
    import click


class PlainHelpGroup(TyperGroup):
    """Print the list of commands with click, not rich: importing rich takes most of the time."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super(TyperGroup, self).format_help(ctx, formatter)


app = typer.Typer(
    name="coterie",
    cls=PlainHelpGroup,
    help=(
        "Federated recommendation: train recommenders across devices. "
        "What leaves a device depends on the algorithm: docs/privacy.md.\n\n"
        "Start with: coterie run fedfast"
    ),
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("run")(runs.run)
app.command("resume")(runs.resume)
app.command("choose")(choose)
app.command("compare")(compare)
app.command("tune")(tune)
app.command("leaderboard")(leaderboard)
app.command("reproduce")(reproduce)
app.command("evaluate")(runs.evaluate)
app.command("recommend")(recommend.recommend)
app.command("similar-items")(recommend.similar_items)
app.command("api")(api.api)
app.command("export")(api.export)
app.command("report")(runs.report)
app.command("console")(console)
app.command("record")(record)
app.command("disclosure")(disclosure)
app.command("audit")(audit)
app.command("attack")(attack)
app.command("serve")(federation.serve)
app.command("join")(federation.join)
app.command("status")(federation.status)
app.add_typer(federation_keys.app, name="federation")
app.add_typer(node.app, name="node")
app.add_typer(device.app, name="device")
app.add_typer(data.app, name="data")
app.command("algorithms")(algorithms.show)
app.command("doctor")(algorithms.doctor)


@app.callback(invoke_without_command=True)
def _options(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if version:
        from coterie.version import __version__

        typer.echo(__version__)
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


def main() -> None:
    """Run a command.

    A user's mistake prints one line and exits with code 2. A bug prints a traceback and exits
    with code 1.
    """
    from coterie.cli.interrupts import never_lose_interrupts
    from coterie.cli.log_lines import LoggedExit
    from coterie.errors import BudgetSpent, CoterieError, Interrupted

    never_lose_interrupts()
    try:
        app(prog_name="coterie")
    except Interrupted as stop:
        _exit(130, f"interrupted: {stop}")
    except BudgetSpent as stop:
        _exit(stop.exit_code, f"stopped: {stop}")
    except CoterieError as error:
        _exit(error.exit_code, f"error: {error}")
    except KeyboardInterrupt:
        _exit(130, "interrupted")
    except LoggedExit:
        raise
    except SystemExit as end:
        # typer always ends with SystemExit; it turns Ctrl-C into code 130 without a message.
        _exit(end.code, "interrupted" if end.code == 130 else "")
    except BrokenPipeError:
        # The reader closed the pipe, as in `coterie data list | head`. Closing stderr keeps
        # Python from reporting the broken pipe again at exit.
        sys.stderr.close()
        _exit(0)


def _exit(code: int | str | None, message: str = "") -> NoReturn:
    if message:
        print(one_line(message), file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
