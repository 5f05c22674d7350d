"""Checks of claims about measured costs."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean

from coterie.reproduce.items import Verdict
from coterie.reproduce.lookup import DatasetFindings, not_run, passed, seed_values


@dataclass(frozen=True, slots=True)
class Even:
    """The largest value of these rows in a column is at most `factor` times the smallest."""

    methods: tuple[str, ...]
    column: str
    factor: float

    def __call__(self, findings: DatasetFindings) -> Verdict:
        by_row = {name: seed_values(findings, name, self.column) for name in self.methods}
        if not all(by_row.values()):
            return not_run(*(name for name, values in by_row.items() if not values))
        means = {name: mean(values) for name, values in by_row.items()}
        ratio = max(means.values()) / min(means.values())
        listed = ", ".join(f"{name} {value:.3g}" for name, value in means.items())
        text = (
            f"{self.column}: {listed}; the largest is {ratio:.2f} times the smallest; "
            f"threshold {self.factor:g}"
        )
        return Verdict.of(passed(ratio <= self.factor), text)


@dataclass(frozen=True, slots=True)
class Shorter:
    """A row has a smaller value in one column than in another."""

    method: str
    column: str
    other_column: str

    def __call__(self, findings: DatasetFindings) -> Verdict:
        value = seed_values(findings, self.method, self.column)
        other = seed_values(findings, self.method, self.other_column)
        if not value or not other:
            return not_run(f"{self.method}: {self.column}, {self.other_column}")
        text = (
            f"{self.method}: {self.column} {mean(value):.3g}, {self.other_column} {mean(other):.3g}"
        )
        return Verdict.of(passed(mean(value) < mean(other)), text)
