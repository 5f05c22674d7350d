"""A QR code as text: two modules a character, the light ones drawn, for dark terminals."""

from __future__ import annotations

from coterie.errors import MissingExtra

QUIET_ZONE = 2
"""Modules of border. Scanners find it with these, where the terminal is dark around it."""
BLOCKS = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}
"""(dark above, dark below) -> the character."""


def qr_text(content: str) -> str:
    try:
        import segno
    except ImportError:
        raise MissingExtra("coterie device code --qr", "federation") from None
    rows = [tuple(row) for row in segno.make(content, micro=False).matrix_iter(border=QUIET_ZONE)]
    if len(rows) % 2:
        rows.append((0,) * len(rows[0]))
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return "\n".join("".join(map(_block, above, below)) for above, below in pairs)


def _block(above: int, below: int) -> str:
    return BLOCKS[above, below]
