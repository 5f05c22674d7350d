"""The docs' pages of papers, from full runs: docs/papers/NAME.json in, docs/papers/NAME.md and its figures out.

    coterie reproduce fedfast --out fedfast && cp fedfast/found.json docs/papers/fedfast.json
    python benchmarks/paper_pages.py fedfast

Prose (what was decided where a paper is silent, and what we make of it) is src/coterie/papers/NAME.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from coterie.papers import NAMES, prose
from coterie.report import static
from coterie.reproduce.figures import shared
from coterie.reproduce.markdown import markdown

PAPERS = Path(__file__).parents[1] / "docs" / "papers"


def main(names: list[str]) -> None:
    for name in names:
        found = json.loads((PAPERS / f"{name}.json").read_text())
        (PAPERS / f"{name}.md").write_text(markdown(found, prose(name), f"coterie reproduce {name}", f"figures/{name}"))
        folder = PAPERS / "figures" / name
        folder.mkdir(parents=True, exist_ok=True)
        for figure in shared(found["items"]):
            if figure.series:
                (folder / f"{figure.key}.svg").write_bytes(static.drawn([figure], "svg"))
        print(f"{name}: {len(list(folder.glob('*.svg')))} figures")


if __name__ == "__main__":
    main(sys.argv[1:] or list(NAMES))
