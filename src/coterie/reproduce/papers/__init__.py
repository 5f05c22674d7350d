"""The papers that this library repeats, and a comparison of our own: each a list of tables and figures, with its numbers and its claims, as data."""

from __future__ import annotations

from importlib import import_module, resources

from coterie.errors import UnknownName
from coterie.reproduce.items import Paper

NAMES = ("fedfast", "fpl", "fedbso", "sttfedrec", "leaks")


def paper(name: str) -> Paper:
    if name not in NAMES:
        raise UnknownName("paper", name, NAMES)
    found: Paper = import_module(f"coterie.reproduce.papers.{name}").PAPER
    return found


def prose(name: str) -> str:
    """What is decided where the paper is silent, and what we make of it; written by hand."""
    text = resources.files("coterie.reproduce.papers").joinpath(f"{name}.md")
    return text.read_text() if text.is_file() else ""
