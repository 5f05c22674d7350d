"""The outcome of an attack as a table, a page and JSON."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from coterie.attacks.poisoning.measures import K
from coterie.attacks.poisoning.replay import Outcome
from coterie.core.counted import counted
from coterie.experiments.run_folder import write_text
from coterie.report.dots import DotPanel, DotRow, dot_plot
from coterie.report.parts import captioned, document, html_table, list_of

HEADER = ["", "clean", "attacked", "change"]
NO_DEFENCE = "The run has no defence; federations have robust=bounded by default."
NOT_SELECTED = (
    "No attacker was selected in any round, so that there was no attack, and the figures say "
    "nothing about it. Raise --share, or the rounds with --set rounds=N."
)


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
    for group, before in clean.hr_by_group.items():
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
    changes = ", ".join(f"{key}={value}" for key, value in about.get("changes", {}).items())
    lines = [
        *([] if outcome.selected[1] else [NOT_SELECTED]),
        f"Steps of training: {about['steps']:,}. Share of attackers: {about['share']:g}, seed "
        f"{about['seed']}. Settings that differ from the run's: {changes or 'none'}.",
        NO_DEFENCE if about["robust"] == "none" else f"Defence: robust={about['robust']}.",
        f"All figures are of honest users. The target is item {about['target']}, with "
        f"{counted(about['target_interactions'], 'training interaction')}. ER@{K} is the share of "
        f"users without the target in training who have it among their {K} best items.",
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
    for group, before in outcome.clean.hr_by_group.items():
        dots.append(DotRow(label=f"{group}, clean", ours=before))
        dots.append(DotRow(label=f"{group}, attacked", ours=outcome.attacked.hr_by_group[group]))
    panel = DotPanel(title="honest users by activity", rows=tuple(dots))
    drawn = dot_plot([panel], f"HR@{K}", f"HR@{K} by activity", "mean over users")
    return captioned(drawn, f"HR@{K} of honest users, without and with the attack.", "activity")


def save(outcome: Outcome, folder: Path) -> None:
    """Write attack.json and attack.html into a folder."""
    text = json.dumps(outcome.as_json(), indent=2, allow_nan=False)
    write_text(folder, "attack.json", text + "\n")
    write_text(folder, "attack.html", page(outcome))
