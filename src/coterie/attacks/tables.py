"""The disclosure report as a value, as a table, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from coterie.attacks.scores import Figures
from coterie.errors import ConfigError
from coterie.report.table import markdown_list, markdown_table, shown
from coterie.types import JsonObject

WARNING = "pi is a disclosure rate, not a privacy guarantee."
EVERYTHING = "Every user sends the rows of all items, so nothing is hidden and nothing is private."
SUMS_ONLY = (
    "Under secure aggregation the server saw sums over groups of users only: these attackers had "
    "no single update. docs/privacy.md says what a server that does not follow the protocol can "
    "learn."
)
IDS_SENT = (
    "Every client sends the ids of its items: its history. Nothing is private. Other attackers "
    "have the vectors alone, of a sample of users: what is known where no ids are sent."
)
RINGS_REVEAL = (
    "Under secure aggregation the server sees sums over groups of users, and these attackers use "
    "nothing else, in some of the groups. Their claims are histories of members. Whose a history "
    "is, the server sees only where clients send in several rounds and groups change: its user is "
    "in every group that it was found in. Here it is credited to its user."
)
HEADER = (
    "rounds",
    "attacker",
    "pi",
    "users",
    "claims per user",
    "precision",
    "popular",
    "recall",
    "popular",
    "R-precision",
    "popular",
)
LEGEND = (
    "A claim says that a user liked an item. Precision is the share of claims that are true, "
    "recall the share of the history that is claimed. Both are means over the users who sent "
    "updates by then; precision over those with any claims.",
    "popular: a baseline that makes the same number of claims about the same users, of the most "
    "popular items. It knows popularity from the training data.",
    "R-precision: precision of the R best scores, R the length of the user's history. No server "
    "knows R. Recall is then the same.",
)


SUMMED = ("fedals", "fedease", "fedslim")
"""Algorithms whose clients send item ids, or sums over their items."""
ALL = "all"
"""In place of a disclosure rate: all users."""


@dataclass(frozen=True, slots=True)
class DisclosureLine:
    rounds: int
    attacker: str
    pi: str
    """The users' disclosure rate, or ALL."""
    figures: Figures


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What attackers know about the users of a run after some of its rounds."""

    about: JsonObject
    attackers: Mapping[str, str]
    """What each attacker uses."""
    lines: tuple[DisclosureLine, ...]

    def of(self, attacker: str, rounds: int, pi: str = ALL) -> Figures:
        """The figures of one line."""
        known = {(line.attacker, line.rounds, line.pi): line.figures for line in self.lines}
        if (attacker, rounds, pi) not in known:
            options = "; ".join(
                ", ".join(dict.fromkeys(str(key[n]) for key in known)) for n in range(3)
            )
            raise ConfigError(
                f"the report has no figures of attacker {attacker!r} after {rounds} rounds for pi "
                f"{pi!r}; expected one of {options}. Choose among those."
            )
        return known[attacker, rounds, pi]

    def as_json(self) -> JsonObject:
        rows = [
            {"rounds": n.rounds, "attacker": n.attacker, "pi": n.pi} | asdict(n.figures)
            for n in self.lines
        ]
        return self.about | {"warning": WARNING, "attackers": dict(self.attackers), "figures": rows}


def table(report: Disclosure) -> tuple[list[str], list[list[str]]]:
    """(header, rows) with all figures."""
    return list(HEADER), [_cells(line) for line in report.lines]


def _cells(line: DisclosureLine) -> list[str]:
    f = line.figures
    shares = (
        f.precision,
        f.popular_precision,
        f.recall,
        f.popular_recall,
        f.r_precision,
        f.popular_r_precision,
    )
    return [
        str(line.rounds),
        line.attacker,
        line.pi,
        f"{f.users:,}",
        f"{f.claims:,.1f}",
        *("-" if share is None else shown("", share) for share in shares),
    ]


def brief(report: Disclosure) -> tuple[list[str], list[list[str]]]:
    """(header, rows) for a screen: each figure with the popularity baseline behind it.

    Where disclosure rates differ, pi takes the place of R-precision.
    """
    mixed = any(line.pi != ALL for line in report.lines)
    names = ["precision", "recall"] if mixed else ["precision", "recall", "R-precision"]
    header = [
        "rounds",
        "attacker",
        *(["pi"] if mixed else []),
        "claims",
        *(f"{name}/ popular" for name in names),
    ]
    return header, [_few_cells(line, mixed) for line in report.lines]


def _few_cells(line: DisclosureLine, mixed: bool) -> list[str]:
    f = line.figures
    pairs = [(f.precision, f.popular_precision), (f.recall, f.popular_recall)]
    pairs += [] if mixed else [(f.r_precision, f.popular_r_precision)]
    cells = ["/".join("-" if share is None else f"{share:.3f}" for share in pair) for pair in pairs]
    return [
        str(line.rounds),
        line.attacker,
        *([line.pi] if mixed else []),
        f"{f.claims:,.1f}",
        *cells,
    ]


def notes(report: Disclosure) -> list[str]:
    """Notes on how to read the figures; the warning comes first."""
    about = report.about
    lines = [_warning(report)]
    observed: dict[int, str] = {}
    for line in report.lines:
        if line.pi == ALL:
            # A later attacker may see a sample of the users only.
            observed.setdefault(line.rounds, f"{line.figures.users:,} after {line.rounds:,}")
    lines += [*LEGEND, f"Users observed, by rounds: {', '.join(observed.values())}."]
    last = about["rounds_of_the_run"]
    if any(line.rounds > last for line in report.lines):
        lines.append(f"The run ends after round {last:,}; later rounds continue it.")
    return lines


def _warning(report: Disclosure) -> str:
    settings = report.about["settings"]
    if "disclosure" in settings:
        return f"{WARNING} {_settings_note(settings)}"
    secure = settings.get("secure_aggregation", "none") != "none"
    if report.about["algorithm"] in SUMMED:
        return RINGS_REVEAL if secure else IDS_SENT
    return SUMS_ONLY if secure else EVERYTHING


def _settings_note(settings: JsonObject) -> str:
    shown_settings = [
        f"{key}={settings[key]}"
        for key in ("disclosure", "disclosure_file", "private_items")
        if settings.get(key) is not None
    ]
    return f"Here {', '.join(shown_settings)}."


def title(report: Disclosure) -> str:
    about = report.about
    return (
        f"What a curious server learns: {about['algorithm']} on {about['dataset']}, "
        f"seed {about['seed']}"
    )


def markdown(report: Disclosure) -> str:
    uses = [[name, text] for name, text in report.attackers.items()]
    about = f"{report.about['users']:,} users, {report.about['items']:,} items."
    return (
        f"# {title(report)}\n\n{about}\n\n"
        + markdown_list(notes(report))
        + "\n"
        + markdown_table(*table(report))
        + "\n"
        + markdown_table(["attacker", "uses"], uses)
    )
