"""Sizes for readers: numbers of bytes in the unit that keeps them short."""

from __future__ import annotations

UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}


def size_text(n_bytes: float, deviation: float | None = None) -> str:
    """32 B, 3.0 MB, 2.3 TB, 3.0 ±1.4 MB; a deviation has the unit of its mean."""
    if not n_bytes:
        return "0 MB"
    # A number that would be shown as 1,000.0 has the next unit.
    fitting = [unit for unit, size in UNITS.items() if n_bytes < 999.95 * size]
    unit = fitting[0] if fitting else "PB"
    decimals = 0 if unit == "B" else 1
    mean = f"{n_bytes / UNITS[unit]:,.{decimals}f}"
    spread = f"{(deviation or 0.0) / UNITS[unit]:,.{decimals}f}"
    return f"{mean} {unit}" if float(spread.replace(",", "")) == 0 else f"{mean} ±{spread} {unit}"
