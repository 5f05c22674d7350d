"""The figures of an item: convergence, accuracy over a setting, accuracy by cost, and how it is spread over people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from coterie.report.figures import Figure, Series
from coterie.reproduce.findings import QUANTILES

MOST = 10
"""More lines than this cannot be told apart."""


def of_item(item: Mapping[str, Any]) -> list[Figure]:
    found: list[Figure] = []
    for table in item["tables"]:
        name = f"{item['key']}-{table['dataset']}"
        if item["by"]:
            found += [over_setting(name, item["by"], table, m) for m in table["metrics"]]
        else:
            found += [
                convergence(name, table, m) for m in table["metrics"][:2] if has_curves(table, m)
            ]
        found += [
            figure
            for figure in (by_cost(name, table), over_people(name, table))
            if figure is not None
        ]
    return found


def has_curves(table: Mapping[str, Any], metric: str) -> bool:
    """Of at least two methods: one line has nothing to be compared with."""
    return (
        sum(metric in row.get("curve", {}).get("values", {}) for row in table["rows"].values()) > 1
    )


def convergence(name: str, table: Mapping[str, Any], metric: str) -> Figure:
    """A metric by round, by what had travelled, and by time; a band is one deviation over seeds to either side."""
    rows = table["rows"]
    moving = {
        label: row["curve"]
        for label, row in rows.items()
        if metric in row.get("curve", {}).get("values", {})
    }
    still = [
        label for label, row in rows.items() if label not in moving and metric in row["metrics"]
    ]
    series = [_line(label, curve, metric) for label, curve in moving.items()]
    series += [
        Series(label, [mean(rows[label]["metrics"][metric])], {}, level=True)
        for label in still[: max(MOST - len(series), 0)]
    ]
    part = next((row["curve"]["part"] for row in table["rows"].values() if "curve" in row), "test")
    seen = "" if part != "test" else "Measured on test, for the eye only: nothing is chosen by it."
    return Figure(
        f"{name}-{_file(metric)}", f"{metric} on {table['dataset']}", metric, series, caption=seen
    )


def _line(label: str, curve: Mapping[str, Any], metric: str) -> Series:
    runs = curve["values"][metric]
    at = [k for k in range(len(curve["rounds"])) if all(run[k] is not None for run in runs)]
    values = [[run[k] for run in runs] for k in at]
    means = [mean(v) for v in values]
    spread = [stdev(v) if len(v) > 1 else 0.0 for v in values]
    several = len(runs) > 1
    xs: dict[str, Any] = {"rounds": [curve["rounds"][k] for k in at]}
    if any(curve["MB"]):
        xs["megabytes"] = [curve["MB"][k] for k in at]
    xs["seconds"] = [curve["seconds"][k] for k in at]
    low = [round(m - s, 5) for m, s in zip(means, spread, strict=True)] if several else ()
    high = [round(m + s, 5) for m, s in zip(means, spread, strict=True)] if several else ()
    return Series(label, [round(m, 5) for m in means], xs, low, high)


def over_setting(name: str, by: str, table: Mapping[str, Any], metric: str) -> Figure:
    by_series: dict[str, list[tuple[float, list[float]]]] = {}
    for row in table["rows"].values():
        if metric in row["metrics"]:
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
    return Figure(f"{name}-{_file(metric)}", f"{metric} on {table['dataset']}", metric, series)


def by_cost(name: str, table: Mapping[str, Any]) -> Figure | None:
    """The first metric by what travelled in all, and which methods nobody beats in both."""
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
        p for p in points.values() if not any(beats(other, p) for other in points.values())
    )
    series = [
        Series(label, [y], {"megabytes": [x]}, line=False) for label, (x, y) in points.items()
    ]
    if len(points) > MOST:
        xs, ys = zip(*points.values(), strict=True)
        series = [Series("methods", ys, {"megabytes": xs}, line=False)]
    series.append(
        Series(
            "nobody beats in both",
            [y for _, y in front],
            {"megabytes": [x for x, _ in front]},
            beneath=True,
        )
    )
    costs = [x for x, _ in points.values()]
    wide = max(costs) > 10 * min(costs)  # a decade has ticks of its own
    return Figure(
        f"{name}-cost",
        f"{metric} by what travelled, {table['dataset']}",
        metric,
        series,
        log_x=wide,
    )


def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """As good for no more, and not the same."""
    return one != other and one[0] <= other[0] and one[1] >= other[1]


def over_people(name: str, table: Mapping[str, Any]) -> Figure | None:
    """Quantiles of a metric over people: who is served worse than the mean says."""
    rows = {label: row["users"] for label, row in table["rows"].items() if row.get("users")}
    if not len(rows) >= 2:
        return None
    metric = table["spread of"]
    series = [
        Series(label, values, {"people, in percent": list(QUANTILES)})
        for label, values in list(rows.items())[:MOST]
    ]
    return Figure(
        f"{name}-people",
        f"{metric} over people, {table['dataset']}",
        metric,
        series,
        caption="Every user's mean over seeds, sorted: how many people have at most so much.",
    )


def _file(metric: str) -> str:
    return metric.lower().replace("@", "").replace(" ", "-").replace("&", "and")


def shared(items: Sequence[Mapping[str, Any]]) -> list[Figure]:
    return [figure for item in items for figure in of_item(item)]
