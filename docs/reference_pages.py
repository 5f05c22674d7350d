"""Write the reference pages of the commands and of all settings from the code.

    python docs/reference_pages.py

`tests/test_docs.py` fails if the pages are not what this script writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import typer

from coterie.algorithms.registry import algorithm, names
from coterie.cli.main import app
from coterie.core.settings import Settings
from coterie.data.filters import Filters
from coterie.data.synthetic import Synthetic
from coterie.evaluation.protocols import Protocol
from coterie.experiments.config import Choice, Course
from coterie.federated.settings import FederationSettings
from coterie.report.table import markdown_table

DOCS = Path(__file__).parent
WIDEST = 86
"""Characters of a command on one line."""
CODE = re.compile(
    r"\bcoterie [a-z][a-z-]*(?: (?:list|fetch|describe|filter|NAME|RUN)\b| --[a-z-]+)?"
    r"|--set [\w.]+=[\w-]+|(?<![\w-])--[a-z][a-z-]*|\b[a-z_]+=[\w,=-]+"
)
"""What is code in a text without markup."""
COMMANDS = """# Commands

Every command and option, as `coterie COMMAND --help` shows them. Exit codes: 0 is success, 1 a bug,
2 a mistake in the input, 3 too few nodes, 4 a privacy budget that ended training early, 130 Ctrl-C.
"""
SETTINGS = """# Settings

Every setting of a run. Give them as `--set KEY=VALUE`, in an experiment file, or as keyword
arguments of `coterie.run`. A run's `config.yaml` has the values it used.
"""
SHARED: dict[str, tuple[type[Settings], str]] = {
    "What is run": (Choice, "Names of algorithm, dataset and protocol, and the seed."),
    "Course of training": (Course, "For every algorithm."),
    "Data": (Filters, "Which interactions are used."),
    "Protocol": (Protocol, "How a model is evaluated. A protocol's name sets most of them."),
    "Synthetic data": (Synthetic, "For `--dataset synthetic`."),
    "Federation": (FederationSettings, "For every federated algorithm."),
}


def commands() -> str:
    """The page of the commands."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    parts = [COMMANDS]
    for path, command in leaves(group, ()):
        parts.append(command_section(path, command))
    return "\n".join(parts)


def leaves(
    group: click.Group, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its path, in the order of the help text."""
    for name, command in group.commands.items():
        path = (*above, name)
        if isinstance(command, click.Group):
            yield from leaves(command, path)
        else:
            yield path, command


def command_section(path: tuple[str, ...], command: click.Command) -> str:
    """Heading, text, usage and options of one command."""
    context = click.Context(command, info_name=" ".join(("coterie", *path)))
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    text = [part for part in paragraphs if not part.startswith("coterie ")]
    examples = [part for part in paragraphs if part.startswith("coterie ")]
    usage = " ".join(["coterie", *path, *command.collect_usage_pieces(context)])
    rows = [row for parameter in command.params if (row := option_row(parameter, context))]
    table = markdown_table(["option", "what it does"], rows) if rows else ""
    shown = "\n".join([usage, *(broken(example) for example in examples)])
    return f"## {' '.join(path)}\n\n{' '.join(text)}\n\n```\n{shown}\n```\n\n{table}"


def broken(example: str) -> str:
    """The command over several lines where it is too long for the page."""
    lines = [""]
    for part in re.split(r" (?=--)", example):
        if lines[-1] and len(lines[-1]) + len(part) > WIDEST:
            lines.append(f"    {part}")
        else:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return " \\\n".join(lines)


def option_row(parameter: click.Parameter, context: click.Context) -> list[str]:
    """[name, text] of an argument or option; [] for `--help`, which every command has."""
    if parameter.name == "help":
        return []
    record = parameter.get_help_record(context)
    if record is None:
        return [f"`{parameter.make_metavar(context)}`", ""]
    name, text = record
    name = " ".join(name.replace(" RANGE", "").split())
    return [f"`{name}`", in_code(in_words(" ".join(text.split())))]


def in_words(text: str) -> str:
    """The help text with what typer adds in brackets as sentences."""
    text = text.replace("\\[", "[").replace("[required]", "Required.")
    return re.sub(r"\[default: \(?(.*?)\)?(?:; x>=\d+)?\]", r"Default: \1.", text)


def in_code(text: str) -> str:
    """The text with commands, options and `key=value` as code."""
    parts = text.split("`")
    parts[::2] = [CODE.sub(r"`\g<0>`", part) for part in parts[::2]]
    return "`".join(parts)


def settings() -> str:
    """The page of the settings."""
    parts = [SETTINGS]
    for title, (group, about) in SHARED.items():
        parts.append(f"## {title}\n\n{about}\n\n{settings_table(group)}")
    parts.append("## Algorithms\n")
    for algorithms in same_settings():
        chosen = algorithm(algorithms[0])
        title = ", ".join(algorithms)
        what = chosen.summary if len(algorithms) == 1 else "All of these have the same settings."
        parts.append(f"### {title}\n\n{what}\n\n{settings_table(chosen.settings)}")
    return "\n".join(parts)


def same_settings() -> list[list[str]]:
    """The algorithms, those with the same settings and defaults together."""
    groups: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for name in names():
        groups.setdefault(tuple(algorithm(name).settings.rows()), []).append(name)
    return list(groups.values())


def settings_table(group: type[Settings]) -> str:
    """Name, default and text of every setting of a group, without those of all federations."""
    elsewhere = () if group is FederationSettings else FederationSettings.model_fields
    rows = [
        [f"`{key}`", f"`{default}`" if default else "", in_code(text)]
        for key, default, text in group.rows()
        if key not in elsewhere
    ]
    return markdown_table(["setting", "default", "what it does"], rows) if rows else "None.\n"


PAGES = {"commands.md": commands, "settings.md": settings}


def main() -> None:
    for name, write in PAGES.items():
        (DOCS / name).write_text(write())


if __name__ == "__main__":
    main()
