"""Checks of claims about the effect of one setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import correlation, fmean
from typing import NamedTuple

from coterie.reproduce.items import Effect, Verdict
from coterie.reproduce.lookup import (
    DatasetFindings,
    not_run,
    passed,
    seed_values,
    sweep_points,
)


@dataclass(frozen=True, slots=True)
class Rises:
    """A series' metric rises with the item's setting. A step down of at most `slack` is allowed."""

    series: str
    metric: str
    slack: float = 0.0
    above: float = float("-inf")
    """Settings up to this value do not count."""

    def __call__(self, findings: DatasetFindings) -> Verdict:
        points = sweep_points(findings, self.series, self.metric)
        points = [(x, y) for x, y in points if x > self.above]
        if len(points) < 2:
            return not_run(self.series)
        no_step_down = all(b[1] >= a[1] - self.slack for a, b in pairwise(points))
        good = points[-1][1] > points[0][1] and no_step_down
        return Verdict.of(passed(good), f"{self.metric} of {self.series}: {points_text(points)}")


@dataclass(frozen=True, slots=True)
class Flat:
    """A metric hardly changes with the item's setting.

    The largest mean less the smallest is at most `within`, or that share of the largest.
    """

    metric: str
    within: float
    series: str = ""
    relative: bool = False
    above: float = float("-inf")
    """Settings up to this value do not count."""

    def __call__(self, findings: DatasetFindings) -> Verdict:
        means = values_above(findings, self.series, self.metric, self.above)
        if len(means) < 2:
            return not_run(self.series or self.metric)
        width = (max(means) - min(means)) / (max(means) if self.relative else 1)
        of_series = f" of {self.series}" if self.series else ""
        text = (
            f"{self.metric}{of_series} from {min(means):.5g} to {max(means):.5g}; "
            f"threshold {self.within:g}"
        )
        return Verdict.of(passed(width <= self.within), text)


@dataclass(frozen=True, slots=True)
class Varies:
    """A metric changes with the item's setting by at least a share of its largest value."""

    series: str
    metric: str
    share: float
    above: float = float("-inf")
    """Settings up to this value do not count."""

    def __call__(self, findings: DatasetFindings) -> Verdict:
        means = values_above(findings, self.series, self.metric, self.above)
        if len(means) < 2:
            return not_run(self.series)
        width = (max(means) - min(means)) / max(means)
        text = (
            f"{self.metric} of {self.series} from {min(means):.4g} to {max(means):.4g}, "
            f"{width:.1%} of the largest; threshold {self.share:.0%}"
        )
        return Verdict.of(passed(width >= self.share), text)


@dataclass(frozen=True, slots=True)
class VariesMore:
    """The range of a metric over the item's setting is wider for one series than for another."""

    series: str
    other: str
    metric: str
    above: float = float("-inf")
    """Settings up to this value do not count."""

    def __call__(self, findings: DatasetFindings) -> Verdict:
        widths = []
        for name in (self.series, self.other):
            means = values_above(findings, name, self.metric, self.above)
            if len(means) < 2:
                return not_run(name)
            widths.append(max(means) - min(means))
        text = (
            f"range of {self.metric}: {widths[0]:.4g} for {self.series}, "
            f"{widths[1]:.4g} for {self.other}"
        )
        return Verdict.of(passed(widths[0] > widths[1]), text)


def values_above(findings: DatasetFindings, series: str, metric: str, above: float) -> list[float]:
    """The means of a series at the settings above a value."""
    return [y for x, y in sweep_points(findings, series, metric) if x > above]


@dataclass(frozen=True, slots=True)
class BestBelow:
    """The best value of a series is at a smaller setting than this."""

    series: str
    metric: str
    setting: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        points = sweep_points(findings, self.series, self.metric)
        if len(points) < 2:
            return not_run(self.series)
        x, y = max(points, key=lambda point: point[1])
        last_x, last_y = points[-1]
        text = f"{self.series}: best {self.metric} {y:.4g} at {x:g}, {last_y:.4g} at {last_x:g}"
        return Verdict.of(passed(x < self.setting), text)


@dataclass(frozen=True, slots=True)
class FallsAfterPeak:
    """A series' metric is best below its largest setting, and there lower by a share of the best.

    The text of BestBelow is met by any difference; this one asks for a fall that is visible.
    """

    series: str
    metric: str
    share: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        points = sweep_points(findings, self.series, self.metric)
        if len(points) < 2:
            return not_run(self.series)
        x, best = max(points, key=lambda point: point[1])
        last_x, last = points[-1]
        fall = (best - last) / best
        text = (
            f"{self.series}: best {self.metric} {best:.4g} at {x:g}, {fall:.1%} lower at "
            f"{last_x:g}; threshold {self.share:.0%}"
        )
        return Verdict.of(passed(x < last_x and fall >= self.share), text)


@dataclass(frozen=True, slots=True)
class ShareOfBest:
    """At one setting, a series reaches a share of its best value over all settings."""

    series: str
    metric: str
    setting: float
    share: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        points = sweep_points(findings, self.series, self.metric)
        there = dict(points).get(self.setting)
        if there is None or len(points) < 2:
            return not_run(f"{self.series} at {self.setting:g}")
        x, best = max(points, key=lambda point: point[1])
        ratio = there / best
        text = (
            f"{self.series}: {self.metric} {there:.4g} at {self.setting:g}, {ratio:.3f} of the "
            f"best, {best:.4g} at {x:g}; threshold {self.share:g}"
        )
        effect = Effect(
            label=f"{self.metric}: {self.series} at {self.setting:g} / best",
            scale="ratio",
            value=ratio,
            low=ratio,
            high=ratio,
            threshold=self.share,
        )
        return Verdict.of(passed(ratio >= self.share), text, effect)


@dataclass(frozen=True, slots=True)
class Correlates:
    """A series' correlation with the item's setting (Pearson) lies between `low` and `high`."""

    series: str
    metric: str
    low: float
    high: float = 1.0
    below: float = float("inf")
    """Settings from this value on do not count."""

    def __call__(self, findings: DatasetFindings) -> Verdict:
        points = sweep_points(findings, self.series, self.metric)
        points = [(x, y) for x, y in points if x < self.below]
        xs = [x for x, _ in points]
        ys = [y for _, y in points]
        if len(points) < 3:
            return not_run(self.series)
        # A constant has no correlation; it follows no pattern.
        r = correlation(xs, ys) if len(set(ys)) > 1 else 0.0
        text = (
            f"{self.metric} of {self.series}: {points_text(points)}; correlation {r:+.2f}; "
            f"threshold {self.low:g} to {self.high:g}"
        )
        return Verdict.of(passed(self.low <= r <= self.high), text)


@dataclass(frozen=True, slots=True)
class ExtremesAbove:
    """At its smallest and its largest setting a series is above its mean over the others."""

    series: str
    metric: str

    def __call__(self, findings: DatasetFindings) -> Verdict:
        points = sweep_points(findings, self.series, self.metric)
        if len(points) < 3:
            return not_run(self.series)
        between = fmean(y for _, y in points[1:-1])
        good = points[0][1] > between and points[-1][1] > between
        text = (
            f"{self.metric} of {self.series}: {points_text(points)}; "
            f"mean between the extremes {between:.4g}"
        )
        return Verdict.of(passed(good), text)


@dataclass(frozen=True, slots=True)
class AllBelow:
    """A series is below another method at every setting."""

    series: str
    other: str
    metric: str

    def __call__(self, findings: DatasetFindings) -> Verdict:
        points = sweep_points(findings, self.series, self.metric)
        other = seed_values(findings, self.other, self.metric)
        if not points or not other:
            return not_run(self.series, self.other)
        text = (
            f"{self.metric} of {self.series}: {points_text(points)}; {self.other} "
            f"{fmean(other):.4g}"
        )
        return Verdict.of(passed(all(y < fmean(other) for _, y in points)), text)


@dataclass(frozen=True, slots=True)
class SmallestWithin:
    """The smallest value of a series is at a setting between `low` and `high`."""

    series: str
    metric: str
    low: float
    high: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        points = sweep_points(findings, self.series, self.metric)
        if len(points) < 2:
            return not_run(self.series)
        x, y = min(points, key=lambda point: point[1])
        text = (
            f"{self.metric} of {self.series}: smallest {y:.4g} at {x:g}; "
            f"threshold {self.low:g} to {self.high:g}"
        )
        return Verdict.of(passed(self.low <= x <= self.high), text)


def points_text(points: Sequence[tuple[float, float]]) -> str:
    """The points of a sweep in words."""
    return ", ".join(f"{x:g}: {y:.4g}" for x, y in points)


class BestPoint(NamedTuple):
    """A series at the setting with its best gain."""

    gain: float
    cost: float


def best_point(findings: DatasetFindings, series: str, gain: str, cost: str) -> BestPoint | None:
    """The best gain of a series and its cost there; None if the series was not run."""
    gains = sweep_points(findings, series, gain)
    costs = dict(sweep_points(findings, series, cost))
    if not gains or not costs:
        return None
    x, best = max(gains, key=lambda point: point[1])
    return BestPoint(best, costs[x])


def describe_points(points: dict[str, BestPoint], gain: str, cost: str) -> str:
    """The best points of several series in words."""
    return "; ".join(
        f"{name} {gain} {point.gain:.4g} for {point.cost:.3g} {cost}"
        for name, point in points.items()
    )


@dataclass(frozen=True, slots=True)
class Pareto:
    """No other series, at its best setting, is at least as good for at most the same cost."""

    series: str
    others: tuple[str, ...]
    gain: str
    cost: str

    def __call__(self, findings: DatasetFindings) -> Verdict:
        points = {}
        for name in self.others:
            point = best_point(findings, name, self.gain, self.cost)
            if point is None:
                return not_run(name)
            points[name] = point
        own = points[self.series]
        dominating = [
            name
            for name, point in points.items()
            if name != self.series and point.gain >= own.gain and point.cost <= own.cost
        ]
        text = describe_points(points, self.gain, self.cost)
        return Verdict.of(passed(not dominating), text)


@dataclass(frozen=True, slots=True)
class CheapestIsGood:
    """Of several series at their best settings, the cheapest reaches a share of the best gain."""

    others: tuple[str, ...]
    gain: str
    cost: str
    share: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        points = {}
        for name in self.others:
            point = best_point(findings, name, self.gain, self.cost)
            if point is None:
                return not_run(name)
            points[name] = point
        cheapest = min(points, key=lambda name: points[name].cost)
        ratio = points[cheapest].gain / max(point.gain for point in points.values())
        text = (
            f"cheapest is {cheapest}, with {ratio:.3f} of the best {self.gain}; threshold "
            f"{self.share:g}. {describe_points(points, self.gain, self.cost)}"
        )
        return Verdict.of(passed(ratio >= self.share), text)


@dataclass(frozen=True, slots=True)
class SameBest:
    """Two series have the same gain and the same cost at their best settings, within a share."""

    series: str
    other: str
    gain: str
    cost: str
    within: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        one = best_point(findings, self.series, self.gain, self.cost)
        two = best_point(findings, self.other, self.gain, self.cost)
        if one is None or two is None:
            return not_run(self.series, self.other)
        apart = max(
            abs(first - second) / max(first, second) for first, second in zip(one, two, strict=True)
        )
        points = {self.series: one, self.other: two}
        text = (
            f"{describe_points(points, self.gain, self.cost)}; at most {apart:.1%} apart, "
            f"threshold {self.within:.0%}"
        )
        return Verdict.of(passed(apart <= self.within), text)


@dataclass(frozen=True, slots=True)
class CostsMore:
    """A series costs more than another, each at its best setting, by a share at least."""

    series: str
    other: str
    gain: str
    cost: str
    share: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        one = best_point(findings, self.series, self.gain, self.cost)
        two = best_point(findings, self.other, self.gain, self.cost)
        if one is None or two is None:
            return not_run(self.series, self.other)
        points = {self.series: one, self.other: two}
        more = one.cost / two.cost - 1
        text = (
            f"{describe_points(points, self.gain, self.cost)}; {more:+.1%}, "
            f"threshold {self.share:+.0%}"
        )
        return Verdict.of(passed(more >= self.share), text)


# Columns of one row, such as the categories of a table of bias


@dataclass(frozen=True, slots=True)
class Sign:
    """A method's columns are all above, or all below, a value."""

    method: str
    columns: tuple[str, ...]
    above: bool
    than: float = 0.0

    def __call__(self, findings: DatasetFindings) -> Verdict:
        means = column_means(findings, self.method, self.columns)
        if len(means) < len(self.columns):
            return not_run(self.method)
        good = all((mean > self.than) == self.above for mean in means.values())
        side = "above" if self.above else "below"
        return Verdict.of(
            passed(good), f"{listed(self.method, means)}; claimed {side} {self.than:g}"
        )


@dataclass(frozen=True, slots=True)
class SameSigns:
    """Two methods have the same sign in at least `at_least` of the columns."""

    method: str
    other: str
    columns: tuple[str, ...]
    at_least: int

    def __call__(self, findings: DatasetFindings) -> Verdict:
        own = column_means(findings, self.method, self.columns)
        others = column_means(findings, self.other, self.columns)
        if len(own) < len(self.columns) or len(others) < len(self.columns):
            return not_run(self.method, self.other)
        different = [name for name in self.columns if (own[name] > 0) != (others[name] > 0)]
        same = len(self.columns) - len(different)
        text = (
            f"{self.method} and {self.other}: the same sign in {same} of {len(self.columns)}, "
            f"threshold {self.at_least}"
        )
        if different:
            text += f"; not in {', '.join(different)}"
        return Verdict.of(passed(same >= self.at_least), text)


@dataclass(frozen=True, slots=True)
class Largest:
    """One column of a method is the largest of several."""

    method: str
    column: str
    columns: tuple[str, ...]

    def __call__(self, findings: DatasetFindings) -> Verdict:
        means = column_means(findings, self.method, self.columns)
        if self.column not in means:
            return not_run(self.method)
        largest = max(means, key=lambda name: means[name])
        text = (
            f"{self.method}: largest {largest} {means[largest]:.3g}, "
            f"{self.column} {means[self.column]:.3g}"
        )
        return Verdict.of(passed(largest == self.column), text)


def column_means(
    findings: DatasetFindings, method: str, columns: tuple[str, ...]
) -> dict[str, float]:
    """The mean over seeds of each column that the method has."""
    found = {name: seed_values(findings, method, name) for name in columns}
    return {name: fmean(values) for name, values in found.items() if values}


def listed(method: str, means: dict[str, float]) -> str:
    """A method's columns in words."""
    return f"{method}: " + ", ".join(f"{name} {mean:+.3f}" for name, mean in means.items())
