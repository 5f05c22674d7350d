"""Write the docs' pages of papers from the results of full runs.

    coterie reproduce fedfast --out fedfast
    python benchmarks/paper_pages.py fedfast --found fedfast/found.json
    python benchmarks/paper_pages.py

Takes the items of new reports (`--found`) into docs/papers/NAME.json, in the paper's order: items
may be run on different machines. Evaluates the claims by today's declaration. Writes the file back,
docs/papers/NAME.md, its figures and the table in docs/papers/index.md.
The prose of a page (conclusions, and decisions where a paper is silent) is
src/coterie/reproduce/papers/NAME.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from coterie.report import static
from coterie.reproduce.figures import all_figures
from coterie.reproduce.markdown import BEGIN, END, markdown, summary
from coterie.reproduce.papers import NAMES, paper, prose
from coterie.reproduce.pictures import all_pictures
from coterie.reproduce.running import evaluate_again
from coterie.types import JsonObject

PAPERS = Path(__file__).parents[1] / "docs" / "papers"
INDEX = PAPERS / "index.md"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("papers", nargs="*", help=f"{', '.join(NAMES)}; all of them if empty")
    parser.add_argument("--found", nargs="*", type=Path, default=[], help="reports of one paper")
    options = parser.parse_args()
    if options.found:
        if len(options.papers) != 1:
            parser.error("--found needs one paper, whose reports these are")
        take_reports(options.papers[0], options.found)
    for name in options.papers or NAMES:
        write_page(name)
    write_index()


def take_reports(name: str, files: Sequence[Path]) -> None:
    """Put the items of full runs into the stored report, instead of older runs of these items."""
    place = PAPERS / f"{name}.json"
    stored: JsonObject = json.loads(place.read_text()) if place.exists() else {"items": []}
    items = {item["key"]: item for item in stored["items"]}
    for file in files:
        report: JsonObject = json.loads(file.read_text())
        if report["quick"] or report["paper"] != name:
            raise SystemExit(
                f"{file} is a {'quick look' if report['quick'] else 'report'} of "
                f"{report['paper']}; expected a full run of {name}."
            )
        items |= {item["key"]: item for item in report["items"]}
        stored = report
    order = [item.key for item in paper(name).items]
    stored["items"] = [items[key] for key in order if key in items]
    place.write_text(json.dumps(stored, allow_nan=False) + "\n")


def write_page(name: str) -> None:
    """Write one paper's page and figures."""
    report = read_report(name)
    (PAPERS / f"{name}.json").write_text(json.dumps(report, allow_nan=False) + "\n")
    page = markdown(report, prose(name), f"coterie reproduce {name}", f"figures/{name}")
    (PAPERS / f"{name}.md").write_text(page)
    folder = PAPERS / "figures" / name
    folder.mkdir(parents=True, exist_ok=True)
    # Pictures of claims that are no longer declared would stay for ever.
    for old in folder.glob("*.svg"):
        old.unlink()
    for key, svg in all_pictures(report).items():
        (folder / f"{key}.svg").write_text(svg + "\n")
    for figure in all_figures(report["items"]):
        if figure.series:
            (folder / f"{figure.key}.svg").write_bytes(static.draw([figure], "svg"))
    print(f"{name}: {len(list(folder.glob('*.svg')))} figures")


def write_index() -> None:
    """Replace the table of verdicts in docs/papers/index.md."""
    text = INDEX.read_text()
    before = text.split(BEGIN)[0]
    after = text.split(END)[1]
    reports = {name: read_report(name) for name in NAMES if (PAPERS / f"{name}.json").exists()}
    table = summary({name: report for name, report in reports.items() if "items" in report})
    INDEX.write_text(before + BEGIN + table + END + after)


def read_report(name: str) -> JsonObject:
    """The stored result of a full run, its claims evaluated by today's declaration."""
    report: JsonObject = json.loads((PAPERS / f"{name}.json").read_text())
    return evaluate_again(report, paper(name))


if __name__ == "__main__":
    main()
