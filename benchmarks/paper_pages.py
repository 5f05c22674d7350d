"""Build the documentation pages of the papers, their figures and the README's table.

    coterie reproduce fedfast --out fedfast && cp fedfast/found.json docs/papers/fedfast.json
    python benchmarks/paper_pages.py fedfast

Reads docs/papers/NAME.json, the result of a full run, and writes docs/papers/NAME.md. The prose
(decisions where a paper is silent, and our conclusions) is src/coterie/reproduce/papers/NAME.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from coterie.report import static
from coterie.reproduce.figures import shared
from coterie.reproduce.markdown import BEGIN, END, markdown, summary
from coterie.reproduce.papers import NAMES, prose

PAPERS = Path(__file__).parents[1] / "docs" / "papers"
README = Path(__file__).parents[1] / "README.md"


def main(names: list[str]) -> None:
    for name in names:
        found = json.loads((PAPERS / f"{name}.json").read_text())
        (PAPERS / f"{name}.md").write_text(
            markdown(found, prose(name), f"coterie reproduce {name}", f"figures/{name}")
        )
        folder = PAPERS / "figures" / name
        folder.mkdir(parents=True, exist_ok=True)
        for figure in shared(found["items"]):
            if figure.series:
                (folder / f"{figure.key}.svg").write_bytes(static.drawn([figure], "svg"))
        print(f"{name}: {len(list(folder.glob('*.svg')))} figures")
    text = README.read_text()
    before = text.split(BEGIN)[0]
    after = text.split(END)[1]
    runs = {
        name: json.loads((PAPERS / f"{name}.json").read_text())
        for name in NAMES
        if (PAPERS / f"{name}.json").exists()
    }
    table = summary({name: found for name, found in runs.items() if "items" in found})
    README.write_text(before + BEGIN + table + END + after)


if __name__ == "__main__":
    main(sys.argv[1:] or list(NAMES))
