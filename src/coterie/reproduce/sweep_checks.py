"""How claims about a setting are checked: what an item draws over it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from coterie.reproduce.items import Verdict
from coterie.reproduce.lookup import Found, along, not_run


@dataclass(frozen=True, slots=True)
class Rises:
    """A metric rises along the item's setting, for the methods of one series; falling back by `slack` is forgiven."""

    series: str
    metric: str
    slack: float = 0.0
    above: float = float("-inf")
    """Settings that do not count, up to this one."""

    def __call__(self, found: Found) -> Verdict:
        rows = [(x, y) for x, y in along(found, self.series, self.metric) if x > self.above]
        if len(rows) < 2:
            return not_run(self.series)
        good = rows[-1][1] > rows[0][1] and all(
            b[1] >= a[1] - self.slack for a, b in pairwise(rows)
        )
        text = f"{self.metric} of {self.series}: " + ", ".join(f"{x:g}: {y:.4g}" for x, y in rows)
        return Verdict("holds" if good else "does not hold", text)


@dataclass(frozen=True, slots=True)
class Flat:
    """A metric hardly changes along the item's setting: largest less smallest mean is at most this, or this share of it."""

    metric: str
    within: float
    series: str = ""
    relative: bool = False

    def __call__(self, found: Found) -> Verdict:
        means = [y for _, y in along(found, self.series, self.metric)]
        if len(means) < 2:
            return not_run(self.series or self.metric)
        width = (max(means) - min(means)) / (max(means) if self.relative else 1)
        text = f"{self.metric} from {min(means):.5g} to {max(means):.5g}; bar {self.within:g}"
        return Verdict("holds" if width <= self.within else "does not hold", text)


@dataclass(frozen=True, slots=True)
class BestBelow:
    """The best of a series is at a smaller setting than this."""

    series: str
    metric: str
    setting: float

    def __call__(self, found: Found) -> Verdict:
        rows = along(found, self.series, self.metric)
        if len(rows) < 2:
            return not_run(self.series)
        x, y = max(rows, key=lambda row: row[1])
        last = rows[-1]
        text = f"{self.series}: best {self.metric} {y:.4g} at {x:g}, {last[1]:.4g} at {last[0]:g}"
        return Verdict("holds" if x < self.setting else "does not hold", text)


@dataclass(frozen=True, slots=True)
class Pareto:
    """Of the best setting of every series, nobody is at least as good for less than this one."""

    series: str
    others: tuple[str, ...]
    gain: str
    cost: str

    def __call__(self, found: Found) -> Verdict:
        best = {}
        for name in self.others:
            gains = along(found, name, self.gain)
            spent = dict(along(found, name, self.cost))
            if not gains:
                return not_run(name)
            x, gain = max(gains, key=lambda row: row[1])
            best[name] = (gain, spent[x])
        gain, cost = best[self.series]
        beaten = [n for n, (g, c) in best.items() if n != self.series and g >= gain and c <= cost]
        text = "; ".join(
            f"{n} {self.gain} {g:.4g} for {c:.3g} {self.cost}" for n, (g, c) in best.items()
        )
        return Verdict("does not hold" if beaten else "holds", text)
