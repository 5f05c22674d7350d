"""How claims about convergence are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, pstdev

from coterie.reproduce.items import Verdict
from coterie.reproduce.lookup import Found, curves, not_run


@dataclass(frozen=True, slots=True)
class Reaches:
    """The first method reaches the best figure that the other ever has within so many rounds, with every seed."""

    first: str
    other: str
    metric: str
    rounds: int

    def __call__(self, found: Found) -> Verdict:
        ours = curves(found, self.first, self.metric)
        theirs = curves(found, self.other, self.metric)
        if not ours or not theirs:
            return not_run(self.first, self.other)
        bests = [max(value for _, value in curve) for curve in theirs]
        when = [
            next((n for n, value in curve if value >= best), None)
            for curve, best in zip(ours, bests, strict=True)
        ]
        good = all(n is not None and n <= self.rounds for n in when)
        told = ", ".join("never" if n is None else f"{n:,}" for n in when)
        text = f"{self.other}'s best {self.metric} of {mean(bests):.3f} is reached at round {told}; bar {self.rounds:,}"
        return Verdict("holds" if good else "does not hold", text)


@dataclass(frozen=True, slots=True)
class TimesSooner:
    """The other method's best is reached so many times sooner, averaged over seeds."""

    first: str
    other: str
    metric: str
    times: float

    def __call__(self, found: Found) -> Verdict:
        ours = curves(found, self.first, self.metric)
        theirs = curves(found, self.other, self.metric)
        if not ours or not theirs:
            return not_run(self.first, self.other)
        ratios = []
        for mine, its in zip(ours, theirs, strict=True):
            when, best = max(its, key=lambda point: point[1])
            reached = next((n for n, value in mine if value >= best), None)
            ratios.append(when / reached if reached else 0.0)
        told = ", ".join(f"{ratio:.1f}" if ratio else "never" for ratio in ratios)
        text = (
            f"{self.other}'s best {self.metric} is reached {told} times sooner; bar {self.times:g}"
        )
        return Verdict(
            "holds" if mean(ratios) >= self.times and all(ratios) else "does not hold", text
        )


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
class NeverBelow:
    """The first method is not below the other at any round measured after some."""

    first: str
    other: str
    metrics: tuple[str, ...]
    after: int

    def __call__(self, found: Found) -> Verdict:
        leads = []
        for metric in self.metrics:
            ours = curves(found, self.first, metric)
            theirs = curves(found, self.other, metric)
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
class Stalls:
    """On its way to a share of its best a method has a stretch of so many rounds without a better one, with every seed."""

    method: str
    metric: str
    stretch: int
    share: float = 0.95

    def __call__(self, found: Found) -> Verdict:
        runs = curves(found, self.method, self.metric)
        if not runs:
            return not_run(self.method)
        longest = [self._longest(run) for run in runs]
        text = f"longest stretch without a better {self.metric} before {self.share:.0%} of the best: {', '.join(map(str, longest))} rounds; bar {self.stretch}"
        return Verdict("holds" if min(longest) >= self.stretch else "does not hold", text)

    def _longest(self, run: Sequence[tuple[int, float]]) -> int:
        bar = self.share * max(value for _, value in run)
        best = -1.0
        since = 0
        longest = 0
        for n, value in run:
            if value > best:
                longest = max(longest, n - since)
                best = value
                since = n
            if value >= bar:
                break
        return longest


@dataclass(frozen=True, slots=True)
class Steadier:
    """The first method varies less over the last rounds than the other."""

    first: str
    other: str
    metric: str
    last: int

    def __call__(self, found: Found) -> Verdict:
        spreads = [
            self._spread(curves(found, name, self.metric)) for name in (self.first, self.other)
        ]
        if not all(spreads):
            return not_run(self.first, self.other)
        ours, theirs = map(mean, spreads)
        text = f"deviation of {self.metric} over the last {self.last} rounds {ours:.4f}, {self.other} {theirs:.4f}"
        return Verdict("holds" if ours < theirs else "does not hold", text)

    def _spread(self, runs: Sequence[Sequence[tuple[int, float]]]) -> list[float]:
        return [
            pstdev(value for n, value in run if n > run[-1][0] - self.last) for run in runs if run
        ]
