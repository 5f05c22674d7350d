"""Write docs/leaderboard.md from the leaderboards in docs/assets/leaderboard.

    coterie leaderboard ml-100k --out docs/assets/leaderboard --workers 2
    python benchmarks/leaderboard_page.py

Draws docs/assets/leaderboard-DATASET.svg, accuracy by a client's bytes, and replaces the findings,
tables and commands between the marks of the page.
"""

from __future__ import annotations

from pathlib import Path

from privacy_page import replaced, write_figure

from coterie.experiments.leaderboard_folder import read
from coterie.experiments.leaderboard_page import markdown
from coterie.experiments.leaderboard_tables import bytes_figure

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "leaderboard.md"
STORED = DOCS / "assets" / "leaderboard"


def main() -> None:
    boards, commands = read(STORED)
    for board in boards:
        write_figure(f"leaderboard-{board.dataset}", bytes_figure(board))
    text = markdown(boards, "\n".join(commands))
    PAGE.write_text(replaced(PAGE.read_text(), "leaderboards", text))


if __name__ == "__main__":
    main()
