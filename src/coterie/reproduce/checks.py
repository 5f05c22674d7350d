"""How claims are checked. Each is a value with its methods and bar, and is called with what was found on one dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, pstdev
from typing import Any

from coterie.reproduce.items import Pair, Verdict

Found = Mapping[str, Any]
SURE = 0.05
"""The p that a difference is taken for real below, corrected by Holm over all tests of the dataset."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The first method is ahead of the other, and that is no chance."""

    first: str
    other: str
    metric: str
    by: float = 0.0
    p: float = SURE

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return (Pair(self.first, self.other),)

    def __call__(self, found: Found) -> Verdict:
        test = tested(found, self.first, self.other, self.metric)
        if test is None:
            return not_run(self.first, self.other)
        good = test["difference"] > self.by and test["p"] < self.p
        return Verdict("holds" if good else "does not hold", said(found, self.first, self.other, self.metric, test))


@dataclass(frozen=True, slots=True)
class Level:
    """Two methods differ by at most so much, with the whole interval."""

    first: str
    other: str
    metric: str
    within: float

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return (Pair(self.first, self.other),)

    def __call__(self, found: Found) -> Verdict:
        test = tested(found, self.first, self.other, self.metric)
        if test is None:
            return not_run(self.first, self.other)
        good = -self.within <= test["low"] and test["high"] <= self.within
        text = said(found, self.first, self.other, self.metric, test)
        return Verdict("holds" if good else "does not hold", f"{text}; bar ±{self.within:g}")


@dataclass(frozen=True, slots=True)
class ShareOf:
    """The first method reaches a share of the other's figure, averaged over seeds."""

    first: str
    other: str
    metric: str
    share: float

    def __call__(self, found: Found) -> Verdict:
        ours, theirs = values(found, self.first, self.metric), values(found, self.other, self.metric)
        if not ours or not theirs:
            return not_run(self.first, self.other)
        shares = [a / b for a, b in zip(ours, theirs, strict=True)]
        text = f"{self.metric}: {mean(shares):.3f} of {self.other} (least seed {min(shares):.3f}); bar {self.share:g}"
        return Verdict("holds" if mean(shares) >= self.share else "does not hold", text)


@dataclass(frozen=True, slots=True)
class Reaches:
    """The first method reaches the best figure that the other ever has within so many rounds, with every seed."""

    first: str
    other: str
    metric: str
    rounds: int

    def __call__(self, found: Found) -> Verdict:
        ours, theirs = curves(found, self.first, self.metric), curves(found, self.other, self.metric)
        if not ours or not theirs:
            return not_run(self.first, self.other)
        bests = [max(value for _, value in curve) for curve in theirs]
        when = [next((n for n, value in curve if value >= best), None) for curve, best in zip(ours, bests, strict=True)]
        good = all(n is not None and n <= self.rounds for n in when)
        told = ", ".join("never" if n is None else f"{n:,}" for n in when)
        text = f"{self.other}'s best {self.metric} of {mean(bests):.3f} is reached at round {told}; bar {self.rounds:,}"
        return Verdict("holds" if good else "does not hold", text)


@dataclass(frozen=True, slots=True)
class NeverBelow:
    """The first method is not below the other at any round measured after some."""

    first: str
    other: str
    metrics: tuple[str, ...]
    after: int

    def __call__(self, found: Found) -> Verdict:
        leads = []
        for metric in self.metrics:
            ours, theirs = curves(found, self.first, metric), curves(found, self.other, metric)
            if not ours or not theirs:
                return not_run(self.first, self.other)
            for mine, its in zip(ours, theirs, strict=True):
                then = dict(its)
                leads += [value - then[n] for n, value in mine if n > self.after and n in then]
        if not leads:
            return Verdict("cannot be tested", f"no round after {self.after} was measured for both")
        text = f"least lead over {self.other} after round {self.after}: {min(leads):+.3f}"
        return Verdict("holds" if min(leads) >= 0 else "does not hold", text)


@dataclass(frozen=True, slots=True)
class Steadier:
    """The first method varies less over the last rounds than the other."""

    first: str
    other: str
    metric: str
    last: int

    def __call__(self, found: Found) -> Verdict:
        spreads = [self._spread(curves(found, name, self.metric)) for name in (self.first, self.other)]
        if not all(spreads):
            return not_run(self.first, self.other)
        ours, theirs = map(mean, spreads)
        text = f"deviation of {self.metric} over the last {self.last} rounds {ours:.4f}, {self.other} {theirs:.4f}"
        return Verdict("holds" if ours < theirs else "does not hold", text)

    def _spread(self, runs: Sequence[Sequence[tuple[int, float]]]) -> list[float]:
        return [pstdev(value for n, value in run if n > run[-1][0] - self.last) for run in runs if run]


@dataclass(frozen=True, slots=True)
class Sooner:
    """The first method gets to a share of its own best in fewer rounds than the other does to that share of its own."""

    first: str
    other: str
    metric: str
    share: float = 0.95

    def __call__(self, found: Found) -> Verdict:
        times = [self._times(curves(found, name, self.metric)) for name in (self.first, self.other)]
        if not all(times):
            return not_run(self.first, self.other)
        told = [", ".join(map(str, each)) for each in times]
        text = f"{self.share:.0%} of its best {self.metric} at round {told[0]}; {self.other} at {told[1]}"
        return Verdict("holds" if mean(times[0]) < mean(times[1]) else "does not hold", text)

    def _times(self, runs: Sequence[Sequence[tuple[int, float]]]) -> list[int]:
        found = []
        for run in runs:
            best = max(value for _, value in run)
            found.append(next(n for n, value in run if value >= self.share * best))
        return found


@dataclass(frozen=True, slots=True)
class Ordered:
    """Methods' means fall in this order."""

    methods: tuple[str, ...]
    metric: str

    def __call__(self, found: Found) -> Verdict:
        means = [mean(v) for name in self.methods if (v := values(found, name, self.metric))]
        if len(means) < len(self.methods):
            return not_run(*self.methods)
        good = all(a >= b for a, b in pairwise(means))
        text = f"{self.metric}: " + ", ".join(f"{n} {v:.4g}" for n, v in zip(self.methods, means, strict=True))
        return Verdict("holds" if good else "does not hold", text)


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
        good = rows[-1][1] > rows[0][1] and all(b[1] >= a[1] - self.slack for a, b in pairwise(rows))
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
            gains, spent = along(found, name, self.gain), dict(along(found, name, self.cost))
            if not gains:
                return not_run(name)
            x, gain = max(gains, key=lambda row: row[1])
            best[name] = (gain, spent[x])
        gain, cost = best[self.series]
        beaten = [n for n, (g, c) in best.items() if n != self.series and g >= gain and c <= cost]
        text = "; ".join(f"{n} {self.gain} {g:.4g} for {c:.3g} {self.cost}" for n, (g, c) in best.items())
        return Verdict("does not hold" if beaten else "holds", text)


@dataclass(frozen=True, slots=True)
class Times:
    """One row is so many times another in a column."""

    first: str
    other: str
    column: str
    low: float
    high: float = float("inf")

    def __call__(self, found: Found) -> Verdict:
        a, b = values(found, self.first, self.column), values(found, self.other, self.column)
        if not a or not b:
            return not_run(self.first, self.other)
        times = mean(a) / mean(b)
        bar = f"at least {self.low:g}" if self.high == float("inf") else f"{self.low:g} to {self.high:g}"
        good = self.low <= times <= self.high
        text = f"{self.column}: {self.first} is {times:.2f} times {self.other}; the paper has {bar}"
        return Verdict("holds" if good else "holds in part" if times > 1 else "does not hold", text)


@dataclass(frozen=True, slots=True)
class GainsMore:
    """One pair of rows differs by a larger factor than another."""

    more: Pair
    less: Pair
    column: str

    def __call__(self, found: Found) -> Verdict:
        factors = []
        for pair in (self.more, self.less):
            a, b = values(found, pair.first, self.column), values(found, pair.other, self.column)
            if not a or not b:
                return not_run(pair.first, pair.other)
            factors.append(mean(a) / mean(b))
        text = f"{self.column}: {factors[0]:.2f} times for {self.more.other}, {factors[1]:.2f} for {self.less.other}"
        return Verdict("holds" if factors[0] > factors[1] else "does not hold", text)


@dataclass(frozen=True, slots=True)
class All:
    """Several checks that one sentence makes."""

    checks: tuple[Callable[[Found], Verdict], ...]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return tuple(pair for check in self.checks for pair in getattr(check, "pairs", ()))

    def __call__(self, found: Found) -> Verdict:
        verdicts = [check(found) for check in self.checks]
        return Verdict(together([v.verdict for v in verdicts]), "; ".join(v.found for v in verdicts))


@dataclass(frozen=True, slots=True)
class Every(All):
    """Several checks of which none may fail: what is ahead of all is behind nobody."""

    def __call__(self, found: Found) -> Verdict:
        verdict, told = All.__call__(self, found)
        return Verdict("does not hold" if verdict == "holds in part" else verdict, told)


@dataclass(frozen=True, slots=True)
class Untestable:
    why: str

    def __call__(self, found: Found) -> Verdict:
        return Verdict("cannot be tested", self.why)


def together(verdicts: Sequence[str]) -> Any:
    """Of several datasets or parts of a sentence: it holds where all that could be tested do."""
    tested_ones = [v for v in verdicts if v != "cannot be tested"]
    if not tested_ones:
        return "cannot be tested"
    if len(set(tested_ones)) == 1:
        return tested_ones[0]
    return "holds in part"


def not_run(*methods: str) -> Verdict:
    return Verdict("cannot be tested", f"not run here: {', '.join(methods)}")


def values(found: Found, method: str, metric: str) -> list[float]:
    """A figure of a method, seed by seed."""
    row = found["rows"].get(method)
    return list(row["metrics"].get(metric, ())) if row else []


def along(found: Found, series: str, metric: str) -> list[tuple[float, float]]:
    """(setting, mean) of a series, in the order of the setting."""
    rows = [row for row in found["rows"].values() if not series or row["series"] == series]
    return sorted((row["x"], mean(row["metrics"][metric])) for row in rows if metric in row["metrics"])


def curves(found: Found, method: str, metric: str) -> list[list[tuple[int, float]]]:
    """(round, figure) of a method, seed by seed."""
    row = found["rows"].get(method)
    curve = row and row.get("curve")
    if not curve or metric not in curve["values"]:
        return []
    return [
        [(n, v) for n, v in zip(curve["rounds"], run, strict=True) if v is not None] for run in curve["values"][metric]
    ]


def tested(found: Found, first: str, other: str, metric: str) -> dict[str, Any] | None:
    for test in found["tests"]:
        if (test["first"], test["other"], test["metric"]) == (first, other, metric):
            return dict(test)
    return None


def said(found: Found, first: str, other: str, metric: str, test: Mapping[str, Any]) -> str:
    a, b = mean(values(found, first, metric)), mean(values(found, other, metric))
    p = "p < 0.0001" if test["p"] < 1e-4 else f"p = {test['p']:.2g}"
    return (
        f"{metric} {a:.4g} against {b:.4g} of {other}: {test['difference']:+.4f} "
        f"[{test['low']:+.4f}, {test['high']:+.4f}], {p}"
    )


@dataclass(frozen=True, slots=True)
class Settles:
    """From some share of its rounds on, a method stays within a share of its best, with every seed."""

    method: str
    metric: str
    share: float
    by: float

    def __call__(self, found: Found) -> Verdict:
        runs = curves(found, self.method, self.metric)
        if not runs:
            return not_run(self.method)
        when = [self._settled(run) for run in runs]
        last = max(n for run in runs for n, _ in run)
        good = all(n <= self.by * last for n in when)
        text = f"{self.metric} stays above {self.share:.0%} of its best from round {', '.join(f'{n:,}' for n in when)} of {last:,} on"
        return Verdict("holds" if good else "does not hold", text)

    def _settled(self, run: Sequence[tuple[int, float]]) -> int:
        bar = self.share * max(value for _, value in run)
        below = [n for n, value in run if value < bar]
        return below[-1] if below else 0


@dataclass(frozen=True, slots=True)
class TimesSooner:
    """The other method's best is reached so many times sooner, averaged over seeds."""

    first: str
    other: str
    metric: str
    times: float

    def __call__(self, found: Found) -> Verdict:
        ours, theirs = curves(found, self.first, self.metric), curves(found, self.other, self.metric)
        if not ours or not theirs:
            return not_run(self.first, self.other)
        ratios = []
        for mine, its in zip(ours, theirs, strict=True):
            when, best = max(its, key=lambda point: point[1])
            reached = next((n for n, value in mine if value >= best), None)
            ratios.append(when / reached if reached else 0.0)
        told = ", ".join(f"{ratio:.1f}" if ratio else "never" for ratio in ratios)
        text = f"{self.other}'s best {self.metric} is reached {told} times sooner; bar {self.times:g}"
        return Verdict("holds" if mean(ratios) >= self.times and all(ratios) else "does not hold", text)
