"""How claims about figures are checked. Each is a value with its methods and bar, and is called with what was found on one dataset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

from coterie.reproduce.items import Pair, Verdict
from coterie.reproduce.lookup import Found, not_run, said, tested, together, values

SURE = 0.05
"""The p that a difference is taken for real below, corrected by Holm over all tests of the dataset."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Of two methods, user by user."""

    first: str
    other: str
    metric: str

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return (Pair(self.first, self.other),)


@dataclass(frozen=True, slots=True)
class Ahead(Paired):
    """The first method is ahead of the other, and that is no chance."""

    by: float = 0.0
    p: float = SURE

    def __call__(self, found: Found) -> Verdict:
        test = tested(found, self.first, self.other, self.metric)
        if test is None:
            return not_run(self.first, self.other)
        good = test["difference"] > self.by and test["p"] < self.p
        return Verdict(
            "holds" if good else "does not hold",
            said(found, self.first, self.other, self.metric, test),
        )


@dataclass(frozen=True, slots=True)
class Level(Paired):
    """Two methods differ by at most so much, with the whole interval."""

    within: float

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
        ours = values(found, self.first, self.metric)
        theirs = values(found, self.other, self.metric)
        if not ours or not theirs:
            return not_run(self.first, self.other)
        shares = [a / b for a, b in zip(ours, theirs, strict=True)]
        text = f"{self.metric}: {mean(shares):.3f} of {self.other} (least seed {min(shares):.3f}); bar {self.share:g}"
        return Verdict("holds" if mean(shares) >= self.share else "does not hold", text)


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
        text = f"{self.metric}: " + ", ".join(
            f"{n} {v:.4g}" for n, v in zip(self.methods, means, strict=True)
        )
        return Verdict("holds" if good else "does not hold", text)


@dataclass(frozen=True, slots=True)
class Times:
    """One row is so many times another in a column."""

    first: str
    other: str
    column: str
    low: float
    high: float = float("inf")

    def __call__(self, found: Found) -> Verdict:
        a = values(found, self.first, self.column)
        b = values(found, self.other, self.column)
        if not a or not b:
            return not_run(self.first, self.other)
        times = mean(a) / mean(b)
        bar = (
            f"at least {self.low:g}"
            if self.high == float("inf")
            else f"{self.low:g} to {self.high:g}"
        )
        good = self.low <= times <= self.high
        text = f"{self.column}: {self.first} is {times:.2f} times {self.other}; the paper has {bar}"
        return Verdict("holds" if good else "holds in part" if times > 1 else "does not hold", text)


@dataclass(frozen=True, slots=True)
class AtMost:
    """One row is not above another in a column."""

    first: str
    other: str
    column: str

    def __call__(self, found: Found) -> Verdict:
        a = values(found, self.first, self.column)
        b = values(found, self.other, self.column)
        if not a or not b:
            return not_run(self.first, self.other)
        text = f"{self.column} {mean(a):.4g}, {self.other} {mean(b):.4g}"
        return Verdict("holds" if mean(a) <= mean(b) else "does not hold", text)


@dataclass(frozen=True, slots=True)
class GainsMore:
    """One pair of rows differs by a larger factor than another."""

    more: Pair
    less: Pair
    column: str

    def __call__(self, found: Found) -> Verdict:
        factors = []
        for pair in (self.more, self.less):
            a = values(found, pair.first, self.column)
            b = values(found, pair.other, self.column)
            if not a or not b:
                return not_run(pair.first, pair.other)
            factors.append(mean(a) / mean(b))
        text = f"{self.column}: {factors[0]:.3f} times for {self.more.other}, {factors[1]:.3f} for {self.less.other}"
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
        return Verdict(
            together([v.verdict for v in verdicts]), "; ".join(v.found for v in verdicts)
        )


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
