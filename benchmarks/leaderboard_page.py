"""Write the figures and tables of docs/leaderboard.md from the committed data of leaderboards.

    coterie leaderboard ml-100k --workers 2 --out docs/assets/leaderboard
    python benchmarks/leaderboard_page.py

The data are docs/assets/leaderboard/leaderboard-DATASET.json, the figures
docs/assets/leaderboard-DATASET.svg. Tables are replaced between the marks of the page.
"""

from __future__ import annotations

from pathlib import Path

from privacy_page import replaced, write_figure

from coterie.experiments import leaderboard_folder
from coterie.experiments.leaderboard import Leaderboard
from coterie.experiments.leaderboard_tables import (
    LEAST,
    accuracy_table,
    behind,
    best_by_exposure,
    bytes_figure,
    conditions,
    cost_table,
    findings,
)
from coterie.report.table import markdown_list, markdown_table

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "assets" / "leaderboard"
PAGE = DOCS / "leaderboard.md"


def main() -> None:
    leaderboard_folder.write_report(FOLDER)
    (FOLDER / "report.md").unlink()  # the page has the same
    boards, commands = leaderboard_folder.read(FOLDER)
    text = PAGE.read_text()
    for board in boards:
        write_figure(f"leaderboard-{board.dataset}", bytes_figure(board))
        for name, part in parts(board).items():
            text = replaced(text, f"{name} on {board.dataset}", part)
    block = "```\n" + "\n".join(commands) + "\n```\n"
    PAGE.write_text(replaced(text, "commands", block))


def parts(board: Leaderboard) -> dict[str, str]:
    accuracy = accuracy_table(board)
    costs = cost_table(board)
    return {
        "findings": f"{conditions(board)}\n\n{markdown_list(findings(board))}",
        "best": best(board),
        "accuracy": markdown_table(accuracy.header, accuracy.rows),
        "costs": markdown_table(costs.header, costs.rows),
    }


def best(board: Leaderboard) -> str:
    """The best algorithm by what a server receives."""
    rows = []
    for level, entry in best_by_exposure(board).items():
        test = behind(entry, board.metric)
        interval = f"{test.low:.4f} to {test.high:.4f}" if test else ""
        value = f"{entry.metrics[board.metric].mean:.4f}"
        rows.append([LEAST[level], f"`{entry.algorithm}`", value, interval])
    header = ["the server receives at least", "best", board.metric, "behind the best of all, 95%"]
    return markdown_table(header, rows)


if __name__ == "__main__":
    main()
