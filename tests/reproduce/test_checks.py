"""Every check, on hand-made findings: once where it holds and once where it does not."""

from __future__ import annotations

import pytest
from reproduce.hand_made import paired, row, sweep, table

from coterie.reproduce.chance import chance_level
from coterie.reproduce.checks import (
    Ahead,
    All,
    AtMost,
    Fewer,
    GainsMore,
    Level,
    Ordered,
    ShareOf,
    Times,
    Untestable,
)
from coterie.reproduce.curve_checks import (
    NeverBelow,
    Reaches,
    Settles,
    Sooner,
    Stalls,
    Steadier,
    TimesSooner,
)
from coterie.reproduce.items import Check, MethodPair, Verdict
from coterie.reproduce.lookup import combine_verdicts
from coterie.reproduce.sweep_checks import (
    AllBelow,
    BestBelow,
    CheapestIsGood,
    Correlates,
    CostsMore,
    ExtremesAbove,
    FallsAfterPeak,
    Flat,
    Largest,
    Pareto,
    Rises,
    SameBest,
    SameSigns,
    ShareOfBest,
    Sign,
    SmallestWithin,
    Varies,
    VariesMore,
)
from coterie.types import JsonObject

HR = "HR@10"
GOOD = [
    (Ahead("good", "weak", HR), "+0.4000 [+0.3000, +0.5000], p = 0.001"),
    (Ahead("good", "weak", HR, by=0.39), "0.85 against 0.45"),
    (Level("good", "weak", HR, 0.5), "threshold ±0.5"),
    (ShareOf("good", "weak", HR, 1.9), "1.900 of weak (lowest seed 1.800)"),
    (Reaches("good", "weak", HR, 10), "of weak, 0.450, is reached at round 10, 10"),
    (NeverBelow("good", "weak", (HR,), 10), "after round 10: +0.400"),
    (Steadier("good", "weak", HR, 0.5), "0.0000 over the last 50% of the rounds, weak 0.0375"),
    (Sooner("good", "weak", HR), "at round 20, 20; weak at 30, 20"),
    (Stalls("good", HR, 10), "10, 10 rounds; threshold 10"),
    (AtMost("weak", "good", HR), "0.45, good 0.85"),
    (Settles("good", HR, 0.95, 0.5), "from round 10, 10 of 30 on"),
    (TimesSooner("good", "weak", HR, 2), "3.0, 2.0 times sooner"),
    (Ordered(("good", "weak"), HR), "good 0.85, weak 0.45"),
    (Times("good", "weak", HR, 1.5, 2), "1.89 times weak"),
    (All((Ahead("good", "weak", HR), Ordered(("good", "weak"), HR))), "0.45"),
]
BAD = [
    Ahead("weak", "good", HR),
    Ahead("good", "weak", HR, by=0.5),
    Ahead("good", "weak", HR, p=0.0001),
    Level("good", "weak", HR, 0.4),
    ShareOf("good", "weak", HR, 1.95),
    Reaches("good", "weak", HR, 9),
    Reaches("weak", "good", HR, 30),
    NeverBelow("weak", "good", (HR,), 0),
    Steadier("weak", "good", HR, 0.5),
    Sooner("weak", "good", HR),
    Settles("weak", HR, 0.95, 0.5),
    TimesSooner("good", "weak", HR, 3),
    TimesSooner("weak", "good", HR, 1),
    Ordered(("weak", "good"), HR),
    Times("weak", "good", HR, 2),
    Stalls("good", HR, 11),
    AtMost("good", "weak", HR),
]


@pytest.mark.parametrize(("check", "evidence"), GOOD, ids=lambda value: str(value)[:40])
def test_holds(check: Check, evidence: str):
    verdict = check(table())
    assert verdict.verdict == "holds"
    assert evidence in "; ".join(part.evidence for part in verdict.parts)


@pytest.mark.parametrize("check", BAD, ids=str)
def test_does_not_hold(check: Check):
    assert check(table()).verdict == "does not hold"


@pytest.mark.parametrize("check", [check for check, _ in GOOD[:-1]], ids=str)
def test_methods_without_results_cannot_be_tested(check: Check):
    verdict = check(table(rows={}, tests=[]))
    assert verdict.verdict == "cannot be tested"
    assert "not run here" in verdict.parts[0].evidence


def test_a_smaller_factor_than_the_papers_holds_in_part():
    assert Times("good", "weak", HR, 5)(table()).verdict == "holds in part"


def test_a_plateau_is_before_the_best():
    findings = table(
        rows={"slow": row([0.9], [[0.5, 0.4, 0.9]]), "late": row([0.9], [[0.9, 0.2, 0.2]])},
        tests=[],
    )
    assert Stalls("slow", HR, 20)(findings).verdict == "holds"
    assert Stalls("late", HR, 20)(findings).verdict == "does not hold"


def test_sweeps():
    rising = sweep({1: [0.1, 0.3], 2: [0.3], 3: [0.5]})
    flat = sweep({1: [0.30], 2: [0.31], 3: [0.30]})
    assert Rises("ours", HR)(rising).verdict == "holds"
    assert Rises("ours", HR)(flat).verdict == "does not hold"
    assert Rises("ours", HR, above=1)(sweep({1: [0.9], 2: [0.3], 3: [0.5]})).verdict == "holds"
    assert Rises("ours", HR, slack=0.2)(sweep({1: [0.1], 2: [0.3], 3: [0.2]})).verdict == "holds"
    assert Flat(HR, 0.011)(flat).verdict == "holds"
    assert Flat(HR, 0.011)(rising).verdict == "does not hold"
    assert Flat(HR, 0.04, relative=True)(flat).verdict == "holds"
    assert BestBelow("ours", HR, 3)(flat).verdict == "holds"
    assert BestBelow("ours", HR, 3)(rising).verdict == "does not hold"


def test_rounds_over_a_setting():
    """Means are 10, 20, 30 at 1, 2, 3, and 5 at 10; a method without the setting has 25."""
    findings = sweep({1: [5, 15], 2: [20], 3: [30], 10: [5]})
    findings["rows"]["base"] = row([25], series="base")
    proportional = Correlates("ours", HR, 0.8, below=10)(findings)
    assert proportional.verdict == "holds"
    assert "1: 10, 2: 20, 3: 30; correlation +1.00" in proportional.parts[0].evidence
    # Deviations of x are -3, -2, -1, 6 and of y -6.25, 3.75, 13.75, -11.25:
    # -70 / sqrt(50 * 368.75) = -0.5155.
    everywhere = Correlates("ours", HR, 0.8)(findings)
    assert everywhere.verdict == "does not hold"
    assert "correlation -0.52" in everywhere.parts[0].evidence
    assert Correlates("ours", HR, -0.6, 0.6)(findings).verdict == "holds"
    assert Fewer("p = 10", "p = 1", HR, 0.5)(findings).verdict == "holds"
    assert Fewer("p = 10", "p = 1", HR, 0.49)(findings).verdict == "does not hold"
    assert AllBelow("ours", "base", HR)(findings).verdict == "does not hold"
    assert AllBelow("ours", "base", HR)(sweep({1: [1]})).verdict == "cannot be tested"
    findings["rows"]["base"] = row([31], series="base")
    assert AllBelow("ours", "base", HR)(findings).verdict == "holds"
    assert SmallestWithin("ours", HR, 10, 20)(findings).verdict == "holds"
    assert SmallestWithin("ours", HR, 1, 9)(findings).verdict == "does not hold"
    # The mean between the extremes is 25: 10 and 5 are below it.
    assert ExtremesAbove("ours", HR)(findings).verdict == "does not hold"
    assert ExtremesAbove("ours", HR)(sweep({1: [5], 2: [3], 3: [6]})).verdict == "holds"
    assert ExtremesAbove("ours", HR)(sweep({1: [5], 2: [3], 3: [3]})).verdict == "does not hold"
    constant = Correlates("ours", HR, -0.8, 0.8)(sweep({1: [3], 2: [3], 3: [3]}))
    assert constant.verdict == "holds"


def test_a_fall_after_the_peak_must_be_visible():
    """The best is 0.50 at 2; at 3 it is 0.48, 4 % lower."""
    peaked = sweep({1: [0.2], 2: [0.4, 0.6], 3: [0.48]})
    assert FallsAfterPeak("ours", HR, 0.04)(peaked).verdict == "holds"
    assert FallsAfterPeak("ours", HR, 0.05)(peaked).verdict == "does not hold"
    rising = sweep({1: [0.2], 2: [0.5]})
    assert FallsAfterPeak("ours", HR, 0.0)(rising).verdict == "does not hold"


def test_a_share_of_the_best_is_not_of_the_last():
    """0.4 at 1 is 0.8 of the best, 0.5 at 2, and all of the last, 0.4 at 3."""
    peaked = sweep({1: [0.4], 2: [0.5], 3: [0.4]})
    assert ShareOfBest("ours", HR, 1, 0.8)(peaked).verdict == "holds"
    verdict = ShareOfBest("ours", HR, 1, 0.81)(peaked)
    assert verdict.verdict == "does not hold"
    assert "0.800 of the best, 0.5 at 2" in verdict.parts[0].evidence
    assert ShareOfBest("ours", HR, 7, 0.1)(peaked).verdict == "cannot be tested"


def test_a_metric_varies_without_rising():
    """From 0.4 to 0.5: a fifth of the largest. Without the first point a tenth."""
    falling = sweep({1: [0.5], 2: [0.45], 3: [0.4]})
    assert Varies("ours", HR, 0.19)(falling).verdict == "holds"
    assert Varies("ours", HR, 0.21)(falling).verdict == "does not hold"
    assert Varies("ours", HR, 0.19, above=1)(falling).verdict == "does not hold"
    assert Flat(HR, 0.12, "ours", relative=True, above=1)(falling).verdict == "holds"
    assert Flat(HR, 0.12, "ours", relative=True)(falling).verdict == "does not hold"


def test_one_series_varies_more_than_another():
    wide = sweep({1: [0.1], 2: [0.5]}, "wide")["rows"]
    narrow = sweep({3: [0.8], 4: [0.9]}, "narrow")["rows"]
    findings = table(rows=wide | narrow, tests=[])
    assert VariesMore("wide", "narrow", HR)(findings).verdict == "holds"
    assert VariesMore("narrow", "wide", HR)(findings).verdict == "does not hold"
    assert VariesMore("wide", "none", HR)(findings).verdict == "cannot be tested"


def point(series: str, gain: float, cost: float) -> JsonObject:
    made = row([gain], x=1.0, series=series)
    made["metrics"]["vectors"] = [cost]
    return made


def test_gain_and_cost_at_the_best_settings():
    findings = table(
        rows={"a": point("a", 0.50, 10), "b": point("b", 0.48, 11), "c": point("c", 0.40, 1)},
        tests=[],
    )

    def verdict(check: Check) -> str:
        return check(findings).verdict

    # a and b: gains are 4 % apart, costs 1 / 11 = 9.1 %.
    assert verdict(SameBest("a", "b", HR, "vectors", 0.1)) == "holds"
    assert verdict(SameBest("a", "b", HR, "vectors", 0.09)) == "does not hold"
    assert verdict(CostsMore("b", "a", HR, "vectors", 0.1)) == "holds"
    assert verdict(CostsMore("b", "a", HR, "vectors", 0.11)) == "does not hold"
    assert verdict(CostsMore("a", "b", HR, "vectors", 0.0)) == "does not hold"
    # c is the cheapest, with 0.8 of the best; of a and b the cheapest is the best.
    assert verdict(CheapestIsGood(("a", "b", "c"), HR, "vectors", 0.8)) == "holds"
    assert verdict(CheapestIsGood(("a", "b", "c"), HR, "vectors", 0.81)) == "does not hold"
    assert verdict(CheapestIsGood(("a", "b"), HR, "vectors", 1.0)) == "holds"
    assert verdict(CheapestIsGood(("a", "none"), HR, "vectors", 0.1)) == "cannot be tested"


def test_columns_of_a_row():
    rows: dict[str, JsonObject] = {"one": row([]), "two": row([])}
    rows["one"]["metrics"] = {"x": [0.2, 0.4], "y": [-0.1], "z": [0.1]}
    rows["two"]["metrics"] = {"x": [0.1], "y": [0.3], "z": [0.2]}
    findings = table(rows=rows, tests=[])

    def verdict(check: Check) -> str:
        return check(findings).verdict

    assert verdict(Sign("one", ("x", "z"), above=True)) == "holds"
    assert verdict(Sign("one", ("x", "y"), above=True)) == "does not hold"
    assert verdict(Sign("one", ("y",), above=False)) == "holds"
    assert verdict(Sign("one", ("x",), above=True, than=0.35)) == "does not hold"
    assert verdict(Sign("one", ("x", "w"), above=True)) == "cannot be tested"
    assert verdict(SameSigns("one", "two", ("x", "y", "z"), 2)) == "holds"
    assert verdict(SameSigns("one", "two", ("x", "y", "z"), 3)) == "does not hold"
    assert verdict(Largest("one", "x", ("x", "y", "z"))) == "holds"
    assert verdict(Largest("two", "x", ("x", "y", "z"))) == "does not hold"


def test_pareto_front():
    findings = table(
        rows={"a": point("a", 0.5, 10), "b": point("b", 0.6, 10), "c": point("c", 0.4, 1)}, tests=[]
    )
    assert Pareto("b", ("a", "b", "c"), HR, "vectors")(findings).verdict == "holds"
    assert Pareto("a", ("a", "b", "c"), HR, "vectors")(findings).verdict == "does not hold"


def test_factors_of_two_pairs():
    findings = table(
        rows={"a": row([6.0]), "b": row([1.0]), "c": row([4.0]), "d": row([2.0])}, tests=[]
    )
    assert GainsMore(MethodPair("a", "b"), MethodPair("c", "d"), HR)(findings).verdict == "holds"
    assert (
        GainsMore(MethodPair("c", "d"), MethodPair("a", "b"), HR)(findings).verdict
        == "does not hold"
    )


def test_over_several_datasets():
    assert combine_verdicts(["holds", "cannot be tested", "holds"]) == "holds"
    assert combine_verdicts(["holds", "does not hold"]) == "holds in part"
    assert combine_verdicts(["cannot be tested"]) == "cannot be tested"
    assert combine_verdicts([]) == "cannot be tested"
    assert Untestable("no data")(table()) == Verdict.of("cannot be tested", "no data")


def test_an_insignificant_lead_does_not_hold():
    findings = table(tests=[paired("good", "weak", 0.4, -0.1, 0.9, 0.2)])
    assert Ahead("good", "weak", HR)(findings).verdict == "does not hold"


def test_a_method_at_chance_level_cannot_be_compared():
    # One held-out item among 50 others: chance is 10/51 = 0.196 for HR@10.
    lucky = table(protocol="loo-50", rows={"good": row([0.5]), "weak": row([0.21])})
    learned = table(protocol="loo-50", rows={"good": row([0.5]), "weak": row([0.22])})
    verdict = Ahead("good", "weak", HR)(lucky)
    assert verdict.verdict == "cannot be tested"
    assert verdict.parts[0].evidence == "weak is at chance level: HR@10 0.210, chance 0.196"
    assert ShareOf("weak", "good", HR, 0.4)(lucky).verdict == "cannot be tested"
    assert Reaches("good", "weak", HR, 30)(lucky).verdict == "cannot be tested"
    assert Ahead("good", "weak", HR)(learned).verdict == "holds"


def test_chance_levels():
    assert chance_level("loo-50", "HR@10") == pytest.approx(10 / 51)
    # Ranks 1 and 2 among 4 candidates: (1/log2(2) + 1/log2(3)) / 4.
    assert chance_level("loo-3", "NDCG@2") == pytest.approx((1 + 0.6309297) / 4)
    assert chance_level("loo-3", "HR@10") == 1
    assert chance_level("holdout-10", "AUC") == 0.5
    assert chance_level("holdout", "P@10") is None
    assert chance_level(None, "HR@10") is None


def test_effects_carry_the_figures_of_the_plot():
    effect = Ahead("good", "weak", HR, by=0.1)(table()).parts[0].effect
    assert effect is not None
    assert (effect.scale, effect.value, effect.low, effect.high) == ("difference", 0.4, 0.3, 0.5)
    assert (effect.threshold, effect.p) == (0.1, 0.001)
    ratio = ShareOf("good", "weak", HR, 1.5)(table()).parts[0].effect
    assert ratio is not None
    assert (ratio.scale, ratio.value) == ("ratio", pytest.approx((0.8 / 0.4 + 0.9 / 0.5) / 2))
    both = All((Ahead("good", "weak", HR), ShareOf("good", "weak", HR, 1.5)))(table())
    assert [part.effect and part.effect.scale for part in both.parts] == ["difference", "ratio"]
