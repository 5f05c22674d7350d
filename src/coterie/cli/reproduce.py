"""`coterie reproduce`: every table and figure of a paper, theirs beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.compare import Cells
from coterie.cli.options import Json, Quiet

if TYPE_CHECKING:
    from collections.abc import Sequence


def reproduce(
    papers: Annotated[
        list[str],
        typer.Argument(
            metavar="PAPER...",
            help="fedfast, fpl, fedbso, sttfedrec, leaks (our own), or all.",
            show_default=False,
        ),
    ],
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="One seed, the smallest data, few rounds: minutes, not hours."
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", help="One item, such as table2. Repeat for more.", show_default="all"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The folder of the reports.", show_default="runs/reproduce-PAPER"
        ),
    ] = None,
    cells: Cells = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Repeat a paper's experiments and check what it claims. Runs that are finished are not run again.

    coterie reproduce fedfast --quick

    coterie reproduce all --out reports
    """
    from coterie.cli.screen import ScreenProgress
    from coterie.core.progress import SILENT
    from coterie.report.interactive import script
    from coterie.reproduce.papers import NAMES, paper
    from coterie.reproduce.running import reproduce as carry_out

    script()  # what is not installed is better missed now than after hours
    names = list(NAMES) if "all" in papers else list(dict.fromkeys(papers))
    chosen = [paper(name) for name in names]
    _refuse_unknown(only or [], chosen)
    progress = SILENT if quiet or as_json else ScreenProgress()
    told = {}
    for one in chosen:
        keys = [key for key in only or [] if key in {item.key for item in one.items}]
        if only and not keys:
            typer.echo(f"left out: {one.name} has no item {', '.join(only)}", err=True)
            continue
        found = carry_out(one, quick, keys, cells, progress)
        place = _place(out, one.name, [*keys, *(["quick"] if quick else [])], len(chosen) > 1)
        _write(found, place)
        told[one.name] = found
        if not as_json:
            _print(found, place, quiet)
    if as_json:
        typer.echo(json.dumps(told, allow_nan=False))


def _refuse_unknown(only: Sequence[str], papers: Sequence[Any]) -> None:
    from coterie.errors import UnknownName

    known = dict.fromkeys(item.key for one in papers for item in one.items)
    for key in only:
        if key not in known:
            raise UnknownName("item", key, known, " in --only")


def _place(out: Path | None, name: str, less: Sequence[str], several: bool) -> Path:
    """The same for the same command: a report is written over an earlier one."""
    if out is None:
        return Path("runs") / "-".join(["reproduce", name, *less])
    return out / name if several else out


def _write(found: dict[str, Any], place: Path) -> None:
    """The report; not again where the same one is there."""
    import shlex
    import sys

    from coterie.experiments.folder import write_text
    from coterie.report.static import write
    from coterie.reproduce.figures import all_figures
    from coterie.reproduce.markdown import markdown
    from coterie.reproduce.page import page
    from coterie.reproduce.papers import prose

    command = shlex.join(["coterie", *sys.argv[1:]])
    text = "" if found["quick"] else prose(found["paper"])  # it is about full runs
    whole = json.dumps(found | {"command": command}, allow_nan=False) + "\n"
    if (place / "found.json").exists() and (place / "found.json").read_text() == whole:
        return
    write_text(place, "report.html", page(found, text, command))
    write_text(place, "report.md", markdown(found, text, command))
    write([figure for figure in all_figures(found["items"]) if figure.series], place / "figures")
    write_text(place, "found.json", whole)  # last: it says that the rest is there


def _print(found: dict[str, Any], place: Path, quiet: bool) -> None:
    from coterie.cli.screen import show_table
    from coterie.reproduce.tables import verdicts

    if not quiet:
        rows = [
            [claim["said"], claim["verdict"]] for item in found["items"] for claim in item["claims"]
        ]
        show_table(["claim", "verdict"], rows, left=2, title=f"{found['paper']}: {found['title']}")
    counts = ", ".join(f"{verdict} {n}" for verdict, n in verdicts(found["items"]).items() if n)
    typer.echo(f"{found['paper']}: {counts}{' (a quick look)' if found['quick'] else ''}")
    typer.echo(f"report: {place / 'report.html'}")
