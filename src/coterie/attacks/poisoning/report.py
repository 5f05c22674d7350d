"""The outcome of an attack as a table, a page and JSON."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from coterie.attacks.poisoning.measures import GROUPS, K
from coterie.attacks.poisoning.replay import Outcome
from coterie.experiments.run_folder import write_text
from coterie.report.dots import DotPanel, DotRow, dot_plot
from coterie.report.parts import captioned, document, html_table, list_of

HEADER = ["", "clean", "attacked", "change"]
NO_DEFENCE = "The run has no defence; federations have robust=bounded by default."


def rows(outcome: Outcome) -> list[list[str]]:
    """Every figure without and with the attack."""
    clean = outcome.clean
    attacked = outcome.attacked
    lines = [
        _line(f"HR@{K}", clean.hr, attacked.hr),
        _line(f"NDCG@{K}", clean.ndcg, attacked.ndcg),
        _line(f"ER@{K} of the target", clean.exposure, attacked.exposure),
        _line("median rank of the target", clean.target_rank, attacked.target_rank, digits=0),
    ]
    for group in GROUPS:
        before = clean.hr_by_group[group]
        lines.append(_line(f"HR@{K}, {group}", before, attacked.hr_by_group[group]))
    return [*lines, _line("times an attacker was selected", *outcome.selected, digits=0)]


def _line(name: str, before: float, after: float, digits: int = 4) -> list[str]:
    return [
        name,
        f"{before:,.{digits}f}",
        f"{after:,.{digits}f}",
        f"{after - before:+,.{digits}f}",
    ]


def title(outcome: Outcome) -> str:
    about = outcome.about
    return (
        f"Attack {about['attack']} on {about['algorithm']}, {about['dataset']}: "
        f"{about['attackers']:,} of {about['users']:,} users attack"
    )


def notes(outcome: Outcome) -> list[str]:
    """How to read the figures."""
    about = outcome.about
    lines = [
        NO_DEFENCE if about["robust"] == "none" else f"Defence: robust={about['robust']}.",
        f"All figures are of honest users. The target is item {about['target']}, with "
        f"{about['target_interactions']:,} training interactions. ER@{K} is the share of users "
        f"without the target in training who have it among their {K} best items.",
        "Activity: thirds of the honest users, by the length of their history.",
    ]
    if outcome.refused:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in sorted(outcome.refused.items()))
        lines.append(
            f"Updates refused in the attacked run: {reasons}. They are of honest clients, whose "
            "training diverges from a poisoned model, or of attackers."
        )
    return lines


def page(outcome: Outcome) -> str:
    """One self-contained HTML page."""
    head = f"<header><h1>{escape(title(outcome))}</h1></header>"
    settings = [f"{name}: {value}" for name, value in outcome.about["settings"].items()]
    return document(
        title(outcome),
        [
            head,
            html_table(HEADER, rows(outcome)),
            figure(outcome),
            list_of(notes(outcome)),
            "<h2>Settings of the attack</h2>",
            list_of(settings),
        ],
    )


def figure(outcome: Outcome) -> str:
    """HR@10 by activity, without and with the attack."""
    dots = []
    for group in GROUPS:
        dots.append(DotRow(label=f"{group}, clean", ours=outcome.clean.hr_by_group[group]))
        dots.append(DotRow(label=f"{group}, attacked", ours=outcome.attacked.hr_by_group[group]))
    panel = DotPanel(title="honest users by activity", rows=tuple(dots))
    drawn = dot_plot([panel], f"HR@{K}", f"HR@{K} by activity", "mean over users")
    return captioned(drawn, f"HR@{K} of honest users, without and with the attack.", "activity")


def save(outcome: Outcome, folder: Path) -> None:
    """Write attack.json and attack.html into the run folder."""
    text = json.dumps(outcome.as_json(), indent=2, allow_nan=False)
    write_text(folder, "attack.json", text + "\n")
    write_text(folder, "attack.html", page(outcome))
