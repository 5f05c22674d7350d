"""`coterie`: the commands, and what happens when one fails."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

import typer
from typer.core import TyperGroup

from coterie.cli import algorithms, data, federation, node, runs
from coterie.cli.compare import compare
from coterie.cli.disclosure import disclosure
from coterie.cli.reproduce import reproduce
from coterie.cli.tune import tune

if TYPE_CHECKING:
    import click


class Front(TyperGroup):
    """The list of commands, plain: boxes take longer to import than all commands together."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super(TyperGroup, self).format_help(ctx, formatter)


app = typer.Typer(
    name="coterie",
    cls=Front,
    help="Recommenders that learn across people's devices while what people did stays with them.\n\nStart with: coterie run fedfast",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("run")(runs.run)
app.command("resume")(runs.resume)
app.command("compare")(compare)
app.command("tune")(tune)
app.command("reproduce")(reproduce)
app.command("evaluate")(runs.evaluate)
app.command("recommend")(runs.recommend)
app.command("report")(runs.report)
app.command("disclosure")(disclosure)
app.command("serve")(federation.serve)
app.command("join")(federation.join)
app.command("status")(federation.status)
app.add_typer(federation.app, name="federation")
app.add_typer(node.app, name="node")
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
    """Run a command. A user's mistake is one line and exit code 2; a bug of ours is a traceback and exit code 1."""
    from coterie.errors import CoterieError, Interrupted

    try:
        app(prog_name="coterie")
    except Interrupted as stop:
        _leave(130, f"interrupted: {stop}")
    except CoterieError as error:
        _leave(error.exit_code, f"error: {error}")
    except KeyboardInterrupt:
        _leave(130, "interrupted")
    except SystemExit as end:  # typer's way out, and what it makes of Ctrl-C
        _leave(end.code, "interrupted" if end.code == 130 else "")
    except BrokenPipeError:  # `coterie data list | head`
        sys.stderr.close()
        _leave(0)


def _leave(code: int | str | None, message: str = "") -> NoReturn:
    if message:
        print(message, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
