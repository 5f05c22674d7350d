"""The figures of an item: convergence, accuracy by setting, by traffic, and spread over users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, stdev

from coterie.report import users
from coterie.report.figures import Coordinates, Figure, Series
from coterie.reproduce import references
from coterie.types import JsonObject

MOST_LINES = 10
"""More lines than this cannot be distinguished."""


def all_figures(items: Sequence[JsonObject]) -> list[Figure]:
    """The figures of all items of a report."""
    return [figure for item in items for figure in item_figures(item, items)]


def item_figures(item: JsonObject, items: Sequence[JsonObject] = ()) -> list[Figure]:
    """The figures of one item, dataset by dataset.

    Centralised methods come from all `items` with the same data and protocol.
    """
    figures: list[Figure] = []
    for table in item["tables"]:
        name = f"{item['key']}-{table['dataset']}"
        metrics = table["metrics"]
        if item["by"]:
            drawn = [over_setting(name, item["by"], table, m) for m in metrics]
        else:
            drawn = [convergence(name, table, m) for m in metrics[:2] if has_curves(table, m)]
        figures += [with_references(figure, table, items) for figure in drawn if figure.series]
        optional = (by_traffic(name, table), over_users(name, table))
        figures += [figure for figure in optional if figure is not None]
    return figures


def with_references(figure: Figure, table: JsonObject, items: Sequence[JsonObject]) -> Figure:
    """The figure with the paper's figures, centralised methods and the chance level as levels."""
    metric = figure.y_label
    there = [series.name for series in figure.series]
    # The plot of ours next to the paper's has the levels that a crowded figure leaves out.
    crowded = len(there) > MOST_LINES
    levels = [] if crowded else printed_levels(table, metric, there)
    if references.is_accuracy(metric):
        levels += [
            Series(f"{level.name} (centralised)", [level.value], {}, level=True)
            for level in references.levels_elsewhere(items, table, metric)[: 1 if crowded else None]
            if level.name not in there
        ]
    chance = references.chance(table, metric)
    if chance is not None and "random" not in there:
        levels.append(Series("chance level", [chance], {}, level=True, reference=True))
    return replace(figure, series=[*figure.series, *levels])


def printed_levels(table: JsonObject, metric: str, drawn: Sequence[str]) -> list[Series]:
    """The paper's figures of methods that are drawn, each in the colour of its method."""
    number = table["metrics"].index(metric)
    return [
        Series(f"{label}, paper", [figures[number]], {}, level=True, like=label)
        for label, figures in table["paper"].items()
        if label in drawn and len(figures) > number
    ]


def has_curves(table: JsonObject, metric: str) -> bool:
    """Whether at least two methods have a curve: a single one has nothing to compare with."""
    return sum(_has_curve(label, row, metric) for label, row in table["rows"].items()) > 1


def _has_curve(label: str, row: JsonObject, metric: str) -> bool:
    """A centralised method counts as a level: its epochs are not the others' rounds."""
    measured = metric in row.get("curve", {}).get("values", {})
    return measured and not references.is_centralised(label)


def convergence(name: str, table: JsonObject, metric: str) -> Figure:
    """A metric by round, by traffic and by time, with one standard deviation to either side.

    Centralised methods, and methods without a curve, are drawn as a level.
    """
    rows = table["rows"]
    moving = {label: row["curve"] for label, row in rows.items() if _has_curve(label, row, metric)}
    still = [
        label for label, row in rows.items() if label not in moving and metric in row["metrics"]
    ]
    series = [_line(label, curve, metric) for label, curve in moving.items()]
    series += [
        Series(label, [mean(rows[label]["metrics"][metric])], {}, level=True)
        for label in still[: max(MOST_LINES - len(series), 0)]
    ]
    part = next((row["curve"]["part"] for row in rows.values() if "curve" in row), "test")
    caption = ""
    if part == "test":
        caption = "Measured on the test part, for display only: nothing is chosen by it."
    title = f"{metric} on {table['dataset']}"
    return Figure(f"{name}-{metric_key(metric)}", title, metric, series, caption=caption)


def _line(label: str, curve: JsonObject, metric: str) -> Series:
    runs = curve["values"][metric]
    at = [k for k in range(len(curve["rounds"])) if all(run[k] is not None for run in runs)]
    values = [[run[k] for run in runs] for k in at]
    means = [mean(v) for v in values]
    spread = [stdev(v) if len(v) > 1 else 0.0 for v in values]
    several = len(runs) > 1
    xs: dict[str, Coordinates] = {"rounds": [curve["rounds"][k] for k in at]}
    if any(curve["MB"]):
        xs["megabytes"] = [curve["MB"][k] for k in at]
    xs["seconds"] = [curve["seconds"][k] for k in at]
    low = [round(m - s, 5) for m, s in zip(means, spread, strict=True)] if several else ()
    high = [round(m + s, 5) for m, s in zip(means, spread, strict=True)] if several else ()
    return Series(label, [round(m, 5) for m in means], xs, low, high)


def over_setting(name: str, by: str, table: JsonObject, metric: str) -> Figure:
    """A metric over the item's setting, one line per series.

    A method without the setting is drawn as a level.
    """
    by_series: dict[str, list[tuple[float, list[float]]]] = {}
    levels = []
    for label, row in table["rows"].items():
        if metric in row["metrics"] and row["x"] is None:
            levels.append(Series(label, [mean(row["metrics"][metric])], {}, level=True))
        elif metric in row["metrics"]:
            by_series.setdefault(row["series"], []).append((row["x"], row["metrics"][metric]))
    series = []
    for label, points in by_series.items():
        points.sort()
        means = [mean(values) for _, values in points]
        spread = [stdev(values) if len(values) > 1 else 0.0 for _, values in points]
        several = any(spread)
        low = [m - s for m, s in zip(means, spread, strict=True)] if several else ()
        high = [m + s for m, s in zip(means, spread, strict=True)] if several else ()
        series.append(Series(label, means, {by: [x for x, _ in points]}, low, high))
    series += levels if series else []
    return Figure(f"{name}-{metric_key(metric)}", f"{metric} on {table['dataset']}", metric, series)


def by_traffic(name: str, table: JsonObject) -> Figure | None:
    """The first metric by all bytes sent and received, with the Pareto front."""
    metric = table["metrics"][0]
    points = {
        label: (
            (row["costs"]["bytes_up"] + row["costs"]["bytes_down"]) / 1e6,
            mean(row["metrics"][metric]),
        )
        for label, row in table["rows"].items()
        if metric in row["metrics"] and row.get("costs", {}).get("bytes_down")
    }
    if len(points) < 3:
        return None
    front = sorted(
        point
        for point in points.values()
        if not any(dominates(other, point) for other in points.values())
    )
    if len(points) > MOST_LINES:
        xs, ys = zip(*points.values(), strict=True)
        series = [Series("methods", ys, {"megabytes": xs}, line=False)]
    else:
        series = [
            Series(label, [y], {"megabytes": [x]}, line=False) for label, (x, y) in points.items()
        ]
    front_x = [x for x, _ in front]
    front_y = [y for _, y in front]
    series.append(Series("Pareto front", front_y, {"megabytes": front_x}, beneath=True))
    costs = [x for x, _ in points.values()]
    # A logarithmic axis needs at least one decade to have ticks.
    wide = max(costs) > 10 * min(costs)
    title = f"{metric} by traffic, {table['dataset']}"
    return Figure(f"{name}-cost", title, metric, series, log_x=wide)


def dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether one (cost, gain) is at least as good for at most the same cost, and not equal."""
    return one != other and one[0] <= other[0] and one[1] >= other[1]


def over_users(name: str, table: JsonObject) -> Figure | None:
    """Quantiles of a metric over users: they show users that the mean hides."""
    rows = {label: row["users"] for label, row in table["rows"].items() if row.get("users")}
    if len(rows) < 2:
        return None
    shown = dict(list(rows.items())[:MOST_LINES])
    metric = table["spread of"]
    title = f"{metric} over users, {table['dataset']}"
    caption = "Each user's mean over seeds, sorted: the share of users with at most this value."
    return users.over_users(f"{name}-users", title, metric, shown, caption)


def metric_key(metric: str) -> str:
    """A metric as part of a file name."""
    return metric.lower().replace("@", "").replace(" ", "-").replace("&", "and")
