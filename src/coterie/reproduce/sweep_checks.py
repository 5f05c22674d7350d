"""Checks of claims about the effect of one setting."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from coterie.reproduce.items import Verdict
from coterie.reproduce.lookup import DatasetFindings, not_run, passed, sweep_points


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
        listed = ", ".join(f"{x:g}: {y:.4g}" for x, y in points)
        return Verdict.of(passed(good), f"{self.metric} of {self.series}: {listed}")


@dataclass(frozen=True, slots=True)
class Flat:
    """A metric hardly changes with the item's setting.

    The largest mean less the smallest is at most `within`, or that share of the largest.
    """

    metric: str
    within: float
    series: str = ""
    relative: bool = False

    def __call__(self, findings: DatasetFindings) -> Verdict:
        means = [y for _, y in sweep_points(findings, self.series, self.metric)]
        if len(means) < 2:
            return not_run(self.series or self.metric)
        width = (max(means) - min(means)) / (max(means) if self.relative else 1)
        text = f"{self.metric} from {min(means):.5g} to {max(means):.5g}; threshold {self.within:g}"
        return Verdict.of(passed(width <= self.within), text)


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
class Pareto:
    """No other series, at its best setting, is at least as good for at most the same cost."""

    series: str
    others: tuple[str, ...]
    gain: str
    cost: str

    def __call__(self, findings: DatasetFindings) -> Verdict:
        best = {}
        for name in self.others:
            gains = sweep_points(findings, name, self.gain)
            costs = dict(sweep_points(findings, name, self.cost))
            if not gains:
                return not_run(name)
            x, gain = max(gains, key=lambda point: point[1])
            best[name] = (gain, costs[x])
        gain, cost = best[self.series]
        dominating = [
            n for n, (g, c) in best.items() if n != self.series and g >= gain and c <= cost
        ]
        text = "; ".join(
            f"{n} {self.gain} {g:.4g} for {c:.3g} {self.cost}" for n, (g, c) in best.items()
        )
        return Verdict.of(passed(not dominating), text)
