"""What an error says about a file that does not exist."""

from __future__ import annotations

from pathlib import Path

from coterie.errors import did_you_mean


def remedy_for(missing: Path, otherwise: str = "Check the path.") -> str:
    """A question about the name in the same folder that is closest, if one is close."""
    try:
        names = sorted(each.name for each in missing.parent.iterdir())
    except OSError:
        return otherwise
    suggestion = did_you_mean(missing.name, names)
    return suggestion if suggestion.startswith("Did") else otherwise
