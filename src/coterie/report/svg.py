"""Parts of hand-made SVG pictures: text, lines, marks, and axes with round ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

INK = "#1d2733"
MUTED = "#5c677d"
FAINT = "#e3e8ee"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
LETTER = 0.6
"""Mean width of a letter in DejaVu Sans, the widest usual font, as a share of the font size."""


def picture(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """The parts as one picture on white; it scales to the width that it is given."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{escape(title)}" '
        f'font-family="{FONT}"><title>{escape(title)}</title>'
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>{"".join(parts)}</svg>'
    )


def text(
    x: float, y: float, words: str, *, size: float = 11, fill: str = INK, anchor: str = "start"
) -> str:
    """Text with a white edge, so that it can be read on top of lines."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{fill}" '
        f'text-anchor="{anchor}" stroke="#fff" stroke-width="3" paint-order="stroke">'
        f"{escape(words)}</text>"
    )


def line(
    start: tuple[float, float],
    end: tuple[float, float],
    *,
    stroke: str,
    width: float = 1,
    dash: str = "",
) -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'stroke="{stroke}" stroke-width="{width:g}"{dashes}/>'
    )


def polyline(
    points: Sequence[tuple[float, float]], *, stroke: str, width: float, dash: str = ""
) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<polyline points="{places}" fill="none" stroke="{stroke}" stroke-width="{width:g}"'
        f"{dashes}/>"
    )


def polygon(points: Sequence[tuple[float, float]], fill: str) -> str:
    """A transparent area, such as the band around a line."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{places}" fill="{fill}" fill-opacity="0.15"/>'


def circle(x: float, y: float, radius: float, fill: str, words: str = "") -> str:
    """A disc; `words` are shown where a pointer rests on it."""
    start = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"'
    return f"{start}><title>{escape(words)}</title></circle>" if words else f"{start}/>"


def square(x: float, y: float, half: float, fill: str) -> str:
    return (
        f'<rect x="{x - half:.1f}" y="{y - half:.1f}" width="{2 * half:g}" '
        f'height="{2 * half:g}" fill="{fill}"/>'
    )


def bar(x: float, y: float, width: float, height: float, fill: str) -> str:
    """A bar from its left upper corner; one of no width is still seen."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height:g}" rx="2" '
        f'fill="{fill}"/>'
    )


def diamond(x: float, y: float, half: float, stroke: str) -> str:
    points = f"{x - half:.1f},{y:.1f} {x:.1f},{y - half:.1f} {x + half:.1f},{y:.1f} "
    points += f"{x:.1f},{y + half:.1f}"
    return f'<polygon points="{points}" fill="#fff" stroke="{stroke}" stroke-width="1.4"/>'


def text_width(words: str, size: float) -> float:
    """About how wide a text is drawn."""
    return LETTER * size * len(words)


def shortened(words: str, width: float, size: float) -> str:
    """The text, cut to a width."""
    letters = max(round(width / (LETTER * size)), 1)
    return words if len(words) <= letters else words[: letters - 1].rstrip(" ,−") + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A horizontal axis: values from low to high, drawn from left to right."""

    low: float
    high: float
    left: float
    right: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value is drawn; values outside are drawn at the edge."""
        if self.log:
            share = log10(value / self.low) / log10(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.left + min(max(share, 0), 1) * (self.right - self.left)

    def ticks(self, most: int) -> list[float]:
        """Round values on the axis, at most so many."""
        if self.log:
            first = ceil(log10(self.low) - 1e-9)
            last = floor(log10(self.high) + 1e-9)
            every = max(ceil((last - first + 1) / most), 1)
            return [10.0**power for power in range(first, last + 1, every)]
        step = round_step((self.high - self.low) / most)
        first = ceil(self.low / step - 1e-9)
        last = floor(self.high / step + 1e-9)
        return [n * step for n in range(first, last + 1)]


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, ... times a power of ten that is not below `least`."""
    power = 10.0 ** floor(log10(least))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= least * (1 - 1e-9))


def axis_around(values: Sequence[float], left: float, right: float, log: bool = False) -> Axis:
    """An axis with room around the values."""
    low = min(values)
    high = max(values)
    if log:
        return Axis(low=low / 1.5, high=high * 1.5, left=left, right=right, log=True)
    room = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
    return Axis(low=low - room, high=high + room, left=left, right=right)
