"""`coterie reproduce`: every table and figure of a paper, its values next to ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import CellsOption, JsonOption, QuietOption, WorkersOption
from coterie.cli.say import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.reproduce.items import Paper
    from coterie.types import JsonObject


def reproduce(
    papers: Annotated[
        list[str],
        typer.Argument(
            metavar="PAPER...",
            help="fedfast, fpl, fedbso, sttfedrec, leaks (our own study), or all.",
            show_default=False,
        ),
    ],
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Use one seed, the smallest dataset and few rounds: minutes, not hours.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Reproduce one item, such as table2. Repeat for more.",
            show_default="all",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of the reports.", show_default="runs/reproduce-PAPER"
        ),
    ] = None,
    cells: CellsOption = None,
    workers: WorkersOption = 1,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Repeat a paper's experiments and check its claims. Finished runs are not repeated.

    coterie reproduce fedfast --quick

    coterie reproduce all --out reports
    """
    from coterie.cli.screen import progress_for
    from coterie.report.interactive import script
    from coterie.reproduce.papers import NAMES, paper
    from coterie.reproduce.running import reproduce as run_plan

    # Raises MissingExtra now rather than after hours of training.
    script()
    names = list(NAMES) if "all" in papers else list(dict.fromkeys(papers))
    chosen = [paper(name) for name in names]
    _refuse_unknown(only or [], chosen)
    progress = progress_for(silent=quiet or as_json)
    findings = {}
    for each in chosen:
        keys = [key for key in only or [] if key in {item.key for item in each.items}]
        if only and not keys:
            say(f"left out: {each.name} has no item {', '.join(only)}", err=True)
            continue
        found = run_plan(each, quick, keys, cells, progress, workers)
        parts = [*keys, "quick"] if quick else keys
        folder = _folder(out, each.name, parts, several=len(chosen) > 1)
        _write(found, folder)
        findings[each.name] = found
        if not as_json:
            _print(found, folder, quiet)
    if as_json:
        say(json.dumps(findings, allow_nan=False))


def _refuse_unknown(only: Sequence[str], papers: Sequence[Paper]) -> None:
    from coterie.errors import UnknownName

    known = dict.fromkeys(item.key for paper in papers for item in paper.items)
    for key in only:
        if key not in known:
            raise UnknownName("item", key, known, " in --only")


def _folder(out: Path | None, name: str, parts: Sequence[str], several: bool) -> Path:
    """The report's folder; the same command overwrites its earlier report."""
    if out is None:
        return Path("runs") / "-".join(["reproduce", name, *parts])
    return out / name if several else out


def _write(found: JsonObject, folder: Path) -> None:
    """Write the report, unless the folder already holds the same one."""
    import shlex
    import sys

    from coterie.experiments.run_folder import write_text
    from coterie.report.static import write
    from coterie.reproduce.figures import all_figures
    from coterie.reproduce.markdown import markdown
    from coterie.reproduce.page import page
    from coterie.reproduce.papers import prose
    from coterie.reproduce.pictures import all_pictures

    command = shlex.join(["coterie", *sys.argv[1:]])
    # The prose discusses the values of full runs.
    text = "" if found["quick"] else prose(found["paper"])
    content = json.dumps(found | {"command": command}, allow_nan=False) + "\n"
    if (folder / "found.json").exists() and (folder / "found.json").read_text() == content:
        return
    write_text(folder, "report.html", page(found, text, command))
    write_text(folder, "report.md", markdown(found, text, command))
    write([figure for figure in all_figures(found["items"]) if figure.series], folder / "figures")
    for name, svg in all_pictures(found).items():
        write_text(folder / "figures", f"{name}.svg", svg)
    # Written last: its presence shows that the rest is complete.
    write_text(folder, "found.json", content)


def _print(found: JsonObject, folder: Path, quiet: bool) -> None:
    from coterie.cli.screen import show_table
    from coterie.reproduce.page import QUICK
    from coterie.reproduce.scoreboard import scores_text

    if not quiet:
        tested = [item for item in found["items"] if not _is_stand_in(item)]
        rows = [
            [f"{claim['said']}{' (ours)' if claim['ours'] else ''}", claim["verdict"]]
            for item in tested
            for claim in item["claims"]
        ]
        if rows:
            title = f"{found['paper']}: {found['title']}"
            show_table(["claim", "verdict"], rows, left=2, title=title)
        # One line instead of a table that says the same of every claim.
        untested = sum(len(item["claims"]) for item in found["items"]) - len(rows)
        if untested:
            say(f"{untested} claims were not tested: synthetic data stood in for theirs.")
    say(f"{found['paper']}: {scores_text(found['items'])}")
    if found["quick"]:
        # The line about missing data was printed at the start.
        say(QUICK)
    say(f"report: {folder / 'report.html'}")


def _is_stand_in(item: JsonObject) -> bool:
    """Whether all tables of an item are on synthetic data that replaces the paper's."""
    return bool(item["tables"]) and all(table["stand_in"] for table in item["tables"])
