"""Text from data or from a server, made safe for a terminal.

A title may hold escape sequences, which a terminal obeys: they clear the screen, change its title
or hide lines. Direction marks show a text in another order than it has.
"""

from __future__ import annotations

import re

_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE = re.compile(f"[{_CONTROLS}]")
_UNSAFE_IN_LINE = re.compile(f"[\t\n{_CONTROLS}]")


def printable(text: str) -> str:
    r"""The text with control characters as \u001b; lines and tabs stay.

    JSON stays the same JSON: this is how it escapes characters, too.
    """
    return _UNSAFE.sub(_escaped, text)


def one_line(text: object) -> str:
    """`printable` in one line, for cells of tables and for errors."""
    return _UNSAFE_IN_LINE.sub(_escaped, str(text))


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in "\t\n":
        return " "
    return f"\\u{ord(character):04x}"
