"""The declared papers, and a comparison of our own: tables, figures, numbers and claims as data."""

from __future__ import annotations

from importlib import import_module, resources

from coterie.errors import UnknownName
from coterie.reproduce.items import Paper

NAMES = ("fedfast", "fpl", "fedbso", "sttfedrec", "leaks")


def paper(name: str) -> Paper:
    """The declaration of a paper."""
    if name not in NAMES:
        raise UnknownName("paper", name, NAMES)
    declared: Paper = import_module(f"coterie.reproduce.papers.{name}").PAPER
    return declared


def prose(name: str) -> str:
    """The hand-written part of a paper's report.

    Conclusions come first; after the first heading, decisions where the paper is silent.
    """
    text = resources.files("coterie.reproduce.papers").joinpath(f"{name}.md")
    return text.read_text() if text.is_file() else ""
