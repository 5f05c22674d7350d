"""The first figure of a page of several methods: one dot each, with what they are compared with."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.report.dots import DotPanel, DotRow, dot_plot
from coterie.report.parts import captioned
from coterie.report.references import Compared, best_centralised, popular_level


def overview(
    methods: Sequence[Compared],
    metric: str,
    protocol: str,
    dots_name: str,
    popular: float | None = None,
) -> str:
    """Every method's value of the headline metric; "" if none has it.

    `popular` is the value of the most popular items, if it is known and not one of the methods.
    """
    if not methods:
        return ""
    central = best_centralised(methods, metric)
    panel = DotPanel(
        title=protocol,
        rows=tuple(
            DotRow(label=one.label, ours=one.value, low=_low(one), high=_high(one))
            for one in methods
        ),
        central=central.value if central else None,
        central_name=central.label if central else "",
        popular=popular_level(methods) if popular is None else popular,
    )
    drawn = dot_plot([panel], metric, f"{metric} of every method", dots_name)
    caption = f"{metric} by {protocol}."
    if any(one.deviation for one in methods):
        caption += " Lines: one standard deviation over seeds to either side."
    return captioned(drawn, caption, "overview")


def _low(method: Compared) -> float | None:
    return method.value - method.deviation if method.deviation else None


def _high(method: Compared) -> float | None:
    return method.value + method.deviation if method.deviation else None
