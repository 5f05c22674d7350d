"""Checks of claims about convergence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, pstdev

from coterie.reproduce.items import Verdict
from coterie.reproduce.lookup import DatasetFindings, MetricCurve, curves, not_run, passed, refused


def first_round_at(curve: MetricCurve, target: float) -> int | None:
    """The first round measured at or above the target."""
    return next((n for n, value in curve if value >= target), None)


@dataclass(frozen=True, slots=True)
class Reaches:
    """With every seed, the first method reaches the other's best value within `rounds` rounds."""

    first: str
    other: str
    metric: str
    rounds: int

    def __call__(self, findings: DatasetFindings) -> Verdict:
        refusal = refused(findings, self.metric, self.first, self.other)
        if refusal:
            return refusal
        first = curves(findings, self.first, self.metric)
        other = curves(findings, self.other, self.metric)
        if not first or not other:
            return not_run(self.first, self.other)
        bests = [max(value for _, value in curve) for curve in other]
        reached = [first_round_at(a, best) for a, best in zip(first, bests, strict=True)]
        good = all(n is not None and n <= self.rounds for n in reached)
        listed = ", ".join("never" if n is None else f"{n:,}" for n in reached)
        text = (
            f"the best {self.metric} of {self.other}, {mean(bests):.3f}, "
            f"is reached at round {listed}; threshold {self.rounds:,}"
        )
        return Verdict.of(passed(good), text)


@dataclass(frozen=True, slots=True)
class TimesSooner:
    """The first method reaches the other's best value `times` times sooner, averaged over seeds."""

    first: str
    other: str
    metric: str
    times: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        refusal = refused(findings, self.metric, self.first, self.other)
        if refusal:
            return refusal
        first = curves(findings, self.first, self.metric)
        other = curves(findings, self.other, self.metric)
        if not first or not other:
            return not_run(self.first, self.other)
        ratios = []
        for a, b in zip(first, other, strict=True):
            best_round, best = max(b, key=lambda point: point[1])
            reached = first_round_at(a, best)
            ratios.append(best_round / reached if reached else 0.0)
        listed = ", ".join(f"{ratio:.1f}" if ratio else "never" for ratio in ratios)
        text = (
            f"the best {self.metric} of {self.other} is reached {listed} times sooner; "
            f"threshold {self.times:g}"
        )
        return Verdict.of(passed(mean(ratios) >= self.times and all(ratios)), text)


@dataclass(frozen=True, slots=True)
class Sooner:
    """The first method reaches a share of its own best in fewer rounds than the other does."""

    first: str
    other: str
    metric: str
    share: float = 0.95

    def __call__(self, findings: DatasetFindings) -> Verdict:
        refusal = refused(findings, self.metric, self.first, self.other)
        if refusal:
            return refusal
        first = self._rounds(curves(findings, self.first, self.metric))
        other = self._rounds(curves(findings, self.other, self.metric))
        if not first or not other:
            return not_run(self.first, self.other)
        text = (
            f"{self.share:.0%} of its best {self.metric} at round {', '.join(map(str, first))}; "
            f"{self.other} at {', '.join(map(str, other))}"
        )
        return Verdict.of(passed(mean(first) < mean(other)), text)

    def _rounds(self, runs: Sequence[MetricCurve]) -> list[int]:
        rounds = []
        for run in runs:
            best = max(value for _, value in run)
            rounds.append(next(n for n, value in run if value >= self.share * best))
        return rounds


@dataclass(frozen=True, slots=True)
class NeverBelow:
    """The first method is not below the other at any measured round after round `after`."""

    first: str
    other: str
    metrics: tuple[str, ...]
    after: int

    def __call__(self, findings: DatasetFindings) -> Verdict:
        leads = []
        for metric in self.metrics:
            refusal = refused(findings, metric, self.first, self.other)
            if refusal:
                return refusal
            first = curves(findings, self.first, metric)
            other = curves(findings, self.other, metric)
            if not first or not other:
                return not_run(self.first, self.other)
            for a, b in zip(first, other, strict=True):
                at_round = dict(b)
                leads += [value - at_round[n] for n, value in a if n > self.after and n in at_round]
        if not leads:
            return Verdict.of(
                "cannot be tested", f"no round after {self.after} was measured for both"
            )
        text = f"smallest lead over {self.other} after round {self.after}: {min(leads):+.3f}"
        return Verdict.of(passed(min(leads) >= 0), text)


@dataclass(frozen=True, slots=True)
class Settles:
    """With every seed, a method stays within `share` of its best after `by` of its rounds."""

    method: str
    metric: str
    share: float
    by: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        runs = curves(findings, self.method, self.metric)
        if not runs:
            return not_run(self.method)
        settled = [self._settled(run) for run in runs]
        last = max(n for run in runs for n, _ in run)
        good = all(n <= self.by * last for n in settled)
        listed = ", ".join(f"{n:,}" for n in settled)
        text = (
            f"{self.metric} stays above {self.share:.0%} of its best "
            f"from round {listed} of {last:,} on"
        )
        return Verdict.of(passed(good), text)

    def _settled(self, run: MetricCurve) -> int:
        threshold = self.share * max(value for _, value in run)
        below = [n for n, value in run if value < threshold]
        return below[-1] if below else 0


@dataclass(frozen=True, slots=True)
class Stalls:
    """With every seed, a method goes `stretch` rounds without a better value.

    Only rounds before it reaches `share` of its best count.
    """

    method: str
    metric: str
    stretch: int
    share: float = 0.95

    def __call__(self, findings: DatasetFindings) -> Verdict:
        runs = curves(findings, self.method, self.metric)
        if not runs:
            return not_run(self.method)
        longest = [self._longest(run) for run in runs]
        text = (
            f"longest stretch without a better {self.metric} before {self.share:.0%} of the best: "
            f"{', '.join(map(str, longest))} rounds; threshold {self.stretch}"
        )
        return Verdict.of(passed(min(longest) >= self.stretch), text)

    def _longest(self, run: MetricCurve) -> int:
        threshold = self.share * max(value for _, value in run)
        best = -1.0
        since = 0
        longest = 0
        for n, value in run:
            if value > best:
                longest = max(longest, n - since)
                best = value
                since = n
            if value >= threshold:
                break
        return longest


@dataclass(frozen=True, slots=True)
class Steadier:
    """The first method varies less than the other in the last part of its rounds."""

    first: str
    other: str
    metric: str
    last: float
    """Share of a run's rounds."""

    def __call__(self, findings: DatasetFindings) -> Verdict:
        refusal = refused(findings, self.metric, self.first, self.other)
        if refusal:
            return refusal
        first = self._deviations(curves(findings, self.first, self.metric))
        other = self._deviations(curves(findings, self.other, self.metric))
        if not first or not other:
            return not_run(self.first, self.other)
        text = (
            f"{self.metric}: standard deviation {mean(first):.4f} over the last {self.last:.0%} of "
            f"the rounds, {self.other} {mean(other):.4f}"
        )
        return Verdict.of(passed(mean(first) < mean(other)), text)

    def _deviations(self, runs: Sequence[MetricCurve]) -> list[float]:
        return [
            pstdev(value for n, value in run if n > run[-1][0] * (1 - self.last))
            for run in runs
            if run
        ]
