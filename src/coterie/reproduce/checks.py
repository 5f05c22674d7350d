"""Checks of claims about final figures. A check is a value: methods, metric and threshold.

Called with the findings of one dataset, it returns a verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

from coterie.reproduce.items import Effect, MethodPair, Verdict
from coterie.reproduce.lookup import (
    DatasetFindings,
    combine_verdicts,
    describe_test,
    effect_of,
    find_test,
    not_run,
    passed,
    refused,
    seed_values,
)

SIGNIFICANT = 0.05
"""Differences with p below this are significant, after Holm's correction over all tests."""


@dataclass(frozen=True, slots=True)
class Paired:
    """A comparison of two methods, user by user."""

    first: str
    other: str
    metric: str

    @property
    def pairs(self) -> tuple[MethodPair, ...]:
        return (MethodPair(self.first, self.other),)


@dataclass(frozen=True, slots=True)
class Ahead(Paired):
    """The first method is better than the other by more than `by`, significantly."""

    by: float = 0.0
    p: float = SIGNIFICANT

    def __call__(self, findings: DatasetFindings) -> Verdict:
        refusal = refused(findings, self.metric, self.first, self.other)
        if refusal:
            return refusal
        test = find_test(findings, self.first, self.other, self.metric)
        if test is None:
            return not_run(self.first, self.other)
        good = test["difference"] > self.by and test["p"] < self.p
        effect = effect_of(test, self.by)
        return Verdict.of(passed(good), describe_test(findings, test), effect)


@dataclass(frozen=True, slots=True)
class Level(Paired):
    """The whole confidence interval of the difference lies within `within` of zero."""

    within: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        refusal = refused(findings, self.metric, self.first, self.other)
        if refusal:
            return refusal
        test = find_test(findings, self.first, self.other, self.metric)
        if test is None:
            return not_run(self.first, self.other)
        good = -self.within <= test["low"] and test["high"] <= self.within
        text = f"{describe_test(findings, test)}; threshold ±{self.within:g}"
        return Verdict.of(passed(good), text, effect_of(test, self.within, tolerance=True))


@dataclass(frozen=True, slots=True)
class ShareOf:
    """The first method reaches a share of the other's figure, averaged over seeds."""

    first: str
    other: str
    metric: str
    share: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        refusal = refused(findings, self.metric, self.first, self.other)
        if refusal:
            return refusal
        first = seed_values(findings, self.first, self.metric)
        other = seed_values(findings, self.other, self.metric)
        shares = [a / b for a, b in zip(first, other, strict=True)]
        text = (
            f"{self.metric}: {mean(shares):.3f} of {self.other} "
            f"(lowest seed {min(shares):.3f}); threshold {self.share:g}"
        )
        effect = Effect(
            label=f"{self.metric}: {self.first} / {self.other}",
            scale="ratio",
            value=mean(shares),
            low=min(shares),
            high=max(shares),
            threshold=self.share,
        )
        return Verdict.of(passed(mean(shares) >= self.share), text, effect)


@dataclass(frozen=True, slots=True)
class Ordered:
    """The methods' means descend in this order."""

    methods: tuple[str, ...]
    metric: str

    def __call__(self, findings: DatasetFindings) -> Verdict:
        by_method = {name: seed_values(findings, name, self.metric) for name in self.methods}
        if not all(by_method.values()):
            return not_run(*self.methods)
        means = [mean(by_method[name]) for name in self.methods]
        good = all(a >= b for a, b in pairwise(means))
        parts = [f"{name} {value:.4g}" for name, value in zip(self.methods, means, strict=True)]
        return Verdict.of(passed(good), f"{self.metric}: {', '.join(parts)}")


@dataclass(frozen=True, slots=True)
class Times:
    """One row is between `low` and `high` times another in a column."""

    first: str
    other: str
    column: str
    low: float
    high: float = float("inf")

    def __call__(self, findings: DatasetFindings) -> Verdict:
        first = seed_values(findings, self.first, self.column)
        other = seed_values(findings, self.other, self.column)
        if not first or not other:
            return not_run(self.first, self.other)
        ratio = mean(first) / mean(other)
        if self.high == float("inf"):
            claimed = f"at least {self.low:g}"
        else:
            claimed = f"{self.low:g} to {self.high:g}"
        text = (
            f"{self.column}: {self.first} is {ratio:.2f} times {self.other}; "
            f"the paper has {claimed}"
        )
        if self.low <= ratio <= self.high:
            return Verdict.of("holds", text)
        return Verdict.of("holds in part" if ratio > 1 else "does not hold", text)


@dataclass(frozen=True, slots=True)
class AtMost:
    """One row is not above another in a column."""

    first: str
    other: str
    column: str

    def __call__(self, findings: DatasetFindings) -> Verdict:
        first = seed_values(findings, self.first, self.column)
        other = seed_values(findings, self.other, self.column)
        if not first or not other:
            return not_run(self.first, self.other)
        text = f"{self.column} {mean(first):.4g}, {self.other} {mean(other):.4g}"
        return Verdict.of(passed(mean(first) <= mean(other)), text)


@dataclass(frozen=True, slots=True)
class Fewer:
    """One row has at most a share of another's value in a column, such as rounds."""

    first: str
    other: str
    column: str
    share: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        first = seed_values(findings, self.first, self.column)
        other = seed_values(findings, self.other, self.column)
        if not first or not other:
            return not_run(self.first, self.other)
        text = (
            f"{self.column}: {self.first} {mean(first):.4g}, {self.other} {mean(other):.4g}; "
            f"threshold {self.share:g} of it"
        )
        return Verdict.of(passed(mean(first) <= self.share * mean(other)), text)


@dataclass(frozen=True, slots=True)
class GainsMore:
    """One pair of rows differs by a larger factor than another pair."""

    more: MethodPair
    less: MethodPair
    column: str

    def __call__(self, findings: DatasetFindings) -> Verdict:
        factors = []
        for pair in (self.more, self.less):
            first = seed_values(findings, pair.first, self.column)
            other = seed_values(findings, pair.other, self.column)
            if not first or not other:
                return not_run(pair.first, pair.other)
            factors.append(mean(first) / mean(other))
        text = (
            f"{self.column}: {factors[0]:.3f} times for {self.more.other}, "
            f"{factors[1]:.3f} for {self.less.other}"
        )
        return Verdict.of(passed(factors[0] > factors[1]), text)


@dataclass(frozen=True, slots=True)
class All:
    """Several checks of one claim. It holds in part where only some of them hold."""

    checks: tuple[Callable[[DatasetFindings], Verdict], ...]

    @property
    def pairs(self) -> tuple[MethodPair, ...]:
        return tuple(pair for check in self.checks for pair in getattr(check, "pairs", ()))

    def __call__(self, findings: DatasetFindings) -> Verdict:
        verdicts = [check(findings) for check in self.checks]
        combined = combine_verdicts([v.verdict for v in verdicts])
        return Verdict(combined, tuple(part for v in verdicts for part in v.parts))


@dataclass(frozen=True, slots=True)
class Every(All):
    """Several checks of one claim. It does not hold unless all of them hold."""

    def __call__(self, findings: DatasetFindings) -> Verdict:
        verdict, parts = All.__call__(self, findings)
        return Verdict("does not hold" if verdict == "holds in part" else verdict, parts)


@dataclass(frozen=True, slots=True)
class Untestable:
    """A claim that no experiment here can test."""

    why: str

    def __call__(self, findings: DatasetFindings) -> Verdict:
        return Verdict.of("cannot be tested", self.why)
