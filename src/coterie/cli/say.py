"""Lines of a command. They may hold text from data or from a server."""

from __future__ import annotations

import typer

from coterie.core.printable import printable


def say(text: str, err: bool = False) -> None:
    """Print text with its control characters escaped."""
    typer.echo(printable(text), err=err)
