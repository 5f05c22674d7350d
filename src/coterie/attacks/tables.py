"""The disclosure report as a value, as a table, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from coterie.attacks.scores import Figures
from coterie.errors import ConfigError
from coterie.report.table import markdown_list, markdown_table, shown

WARNING = "pi is a disclosure rate, not a privacy guarantee."
EVERYTHING = (
    "Rows of all items are sent, whatever a user did: nothing is kept back, and nothing is private."
)
HEADER = (
    "rounds",
    "attacker",
    "pi",
    "users",
    "claims a user",
    "precision",
    "popular's",
    "recall",
    "popular's",
    "told how many",
    "popular's",
)
LEGEND = (
    "A claim says that a user liked an item; claims are counted per user. Precision is the share of claims that are true, recall the share of the history that is claimed. Both are means over users who sent something by then; precision over those about whom anything was claimed.",
    "popular's: the same number of claims about the same users, made of the most popular items. Its popularity is that of the training data.",
    "Told how many: as many claims as the user's history is long, the best scores first. No server knows that number. Precision and recall are then the same.",
)


ALL = "all"
"""In place of a rate: everybody."""


@dataclass(frozen=True, slots=True)
class Line:
    rounds: int
    attacker: str
    pi: str
    """The users' disclosure rate, or everybody."""
    figures: Figures


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What attackers know about the users of a run after some of its rounds."""

    about: dict[str, Any]
    attackers: Mapping[str, str]
    """What each uses."""
    lines: tuple[Line, ...]

    def of(self, attacker: str, rounds: int, pi: str = ALL) -> Figures:
        """The figures of one line."""
        known = {(line.attacker, line.rounds, line.pi): line.figures for line in self.lines}
        if (attacker, rounds, pi) not in known:
            there = "; ".join(
                ", ".join(dict.fromkeys(str(key[n]) for key in known)) for n in range(3)
            )
            raise ConfigError(
                f"there are no figures of attacker {attacker!r} after {rounds} rounds for pi {pi!r}; expected one of {there}. Ask for those."
            )
        return known[attacker, rounds, pi]

    def as_json(self) -> dict[str, Any]:
        rows = [
            {"rounds": n.rounds, "attacker": n.attacker, "pi": n.pi} | asdict(n.figures)
            for n in self.lines
        ]
        return self.about | {"warning": WARNING, "attackers": dict(self.attackers), "figures": rows}


def table(found: Disclosure) -> tuple[list[str], list[list[str]]]:
    """(header, rows)"""
    return list(HEADER), [_cells(line) for line in found.lines]


def _cells(line: Line) -> list[str]:
    f = line.figures
    shares = (
        f.precision,
        f.popular_precision,
        f.recall,
        f.popular_recall,
        f.told_precision,
        f.popular_told_precision,
    )
    return [
        str(line.rounds),
        line.attacker,
        line.pi,
        f"{f.users:,}",
        f"{f.claims:,.1f}",
        *("-" if share is None else shown("", share) for share in shares),
    ]


def brief(found: Disclosure) -> tuple[list[str], list[list[str]]]:
    """(header, rows) for a screen: each figure with popular's behind it. Where rates differ they stand in the last one's place."""
    mixed = any(line.pi != ALL for line in found.lines)
    names = ["precision", "recall"] if mixed else ["precision", "recall", "told how many"]
    header = [
        "rounds",
        "attacker",
        *(["pi"] if mixed else []),
        "claims",
        *(f"{name}/ popular's" for name in names),
    ]
    return header, [_few_cells(line, mixed) for line in found.lines]


def _few_cells(line: Line, mixed: bool) -> list[str]:
    f = line.figures
    shares = [(f.precision, f.popular_precision), (f.recall, f.popular_recall)]
    shares += [] if mixed else [(f.told_precision, f.popular_told_precision)]
    told = ["/".join("-" if share is None else f"{share:.3f}" for share in pair) for pair in shares]
    return [
        str(line.rounds),
        line.attacker,
        *([line.pi] if mixed else []),
        f"{f.claims:,.1f}",
        *told,
    ]


def notes(found: Disclosure) -> list[str]:
    """What a reader must know to judge the figures; the warning comes first."""
    about = found.about
    lines = (
        [WARNING + " " + _setting(about["settings"])]
        if "disclosure" in about["settings"]
        else [EVERYTHING]
    )
    heard = {
        line.rounds: f"{line.figures.users:,} after {line.rounds:,}"
        for line in found.lines
        if line.pi == ALL
    }
    lines += [*LEGEND, f"Users heard, by rounds: {', '.join(heard.values())}."]
    if any(line.rounds > about["rounds_of_the_run"] for line in found.lines):
        lines.append(
            f"The run itself ends after round {about['rounds_of_the_run']:,}; later ones are as if it had gone on."
        )
    return lines


def _setting(settings: dict[str, Any]) -> str:
    said = [
        f"{key}={settings[key]}"
        for key in ("disclosure", "disclosure_file", "private_items")
        if settings.get(key) is not None
    ]
    return f"Here {', '.join(said)}."


def title(found: Disclosure) -> str:
    about = found.about
    return f"What a curious server learns: {about['algorithm']} on {about['dataset']}, seed {about['seed']}"


def markdown(found: Disclosure) -> str:
    uses = [[name, text] for name, text in found.attackers.items()]
    about = f"{found.about['users']:,} users, {found.about['items']:,} items."
    return (
        f"# {title(found)}\n\n{about}\n\n"
        + markdown_list(notes(found))
        + "\n"
        + markdown_table(*table(found))
        + "\n"
        + markdown_table(["attacker", "uses"], uses)
    )
