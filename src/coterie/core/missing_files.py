"""What an error says about a file that does not exist."""

from __future__ import annotations

from pathlib import Path

from coterie.errors import DataError, did_you_mean


def refuse_missing(path: Path, otherwise: str = "Check the path.") -> None:
    """Refuse a file or folder of data that does not exist."""
    if not path.exists():
        raise DataError(f"{path}: does not exist. {remedy_for(path, otherwise)}")


def remedy_for(missing: Path, otherwise: str = "Check the path.") -> str:
    """A question about the name in the same folder that is closest, if one is close."""
    try:
        names = sorted(each.name for each in missing.parent.iterdir())
    except OSError:
        return otherwise
    suggestion = did_you_mean(missing.name, names)
    return suggestion if suggestion.startswith("Did") else otherwise
