"""The docs' pages of papers, from full runs: docs/papers/NAME.json in, docs/papers/NAME.md, its figures and README's table out.

    coterie reproduce fedfast --out fedfast && cp fedfast/found.json docs/papers/fedfast.json
    python benchmarks/paper_pages.py fedfast

Prose (what was decided where a paper is silent, and what we make of it) is src/coterie/papers/NAME.md.
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
                (folder / f"{figure.key}.svg").write_bytes(static.draw([figure], "svg"))
        print(f"{name}: {len(list(folder.glob('*.svg')))} figures")
    text = README.read_text()
    before = text.split(BEGIN)[0]
    after = text.split(END)[1]
    runs = {
        name: json.loads((PAPERS / f"{name}.json").read_text())
        for name in NAMES
        if (PAPERS / f"{name}.json").exists()
    }
    README.write_text(
        before
        + BEGIN
        + summary({name: found for name, found in runs.items() if "items" in found})
        + END
        + after
    )


if __name__ == "__main__":
    main(sys.argv[1:] or list(NAMES))
