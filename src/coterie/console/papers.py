"""Reproductions of papers: their claims with verdicts, and counts of them."""

from __future__ import annotations

from coterie.console.folders import FoundFolder
from coterie.console.plain_json import finite
from coterie.core.plain_files import read_json_object
from coterie.core.printable import one_line
from coterie.errors import CoterieError
from coterie.reproduce.scoreboard import scores
from coterie.types import JsonObject

FOUND = "found.json"


def read_papers(folders: list[FoundFolder]) -> list[JsonObject]:
    """Every paper; one whose file cannot be read has the reason instead."""
    return [_paper(folder) for folder in folders]


def _paper(folder: FoundFolder) -> JsonObject:
    about: JsonObject = {"id": folder.id, "name": folder.name}
    try:
        found = read_json_object(folder.path / FOUND)
        return finite(about | _read(found))
    except (CoterieError, OSError, LookupError, TypeError, AttributeError) as error:
        return about | {"error": one_line(error)}


def _read(found: JsonObject) -> JsonObject:
    items = found["items"]
    return {
        "paper": str(found["paper"]),
        "title": str(found["title"]),
        "reference": str(found["reference"]),
        "quick": bool(found["quick"]),
        "missing": str(found.get("missing") or ""),
        "command": str(found.get("command", "")),
        "scores": [{"title": score.title, "counts": score.counts} for score in scores(items)],
        "items": [_item(item) for item in items],
    }


def _item(item: JsonObject) -> JsonObject:
    return {
        "title": str(item["title"]),
        "about": str(item["about"]),
        "claims": [_claim(claim) for claim in item["claims"]],
    }


def _claim(claim: JsonObject) -> JsonObject:
    evidence = [
        {"on": str(on), "verdict": str(found["verdict"]), "text": str(part["evidence"])}
        for on, found in claim["by"].items()
        for part in found["parts"]
    ]
    return {
        "said": str(claim["said"]),
        "where": str(claim["where"]),
        "verdict": str(claim["verdict"]),
        "ours": bool(claim["ours"]),
        "evidence": evidence,
    }
