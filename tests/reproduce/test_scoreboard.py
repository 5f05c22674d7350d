"""Verdicts at a glance: the paper's claims and ours are counted apart."""

from __future__ import annotations

from reproduce.hand_made import report

from coterie.reproduce.items import ClaimPart, Effect, Holds, Verdict
from coterie.reproduce.scoreboard import (
    badge,
    scores,
    scores_text,
    short_labels,
    where_it_holds,
)
from coterie.types import JsonObject


def part(verdict: Holds, label: str) -> ClaimPart:
    return ClaimPart(verdict, "figures", Effect(label, "difference", 0.1, 0.0, 0.2, 0.0))


def claim(**datasets: Verdict) -> JsonObject:
    return {
        "verdict": "holds in part",
        "by": {name: verdict.to_json() for name, verdict in datasets.items()},
    }


def test_the_papers_claims_and_ours_are_counted_apart():
    items = report()["items"]
    assert [(score.title, sum(score.counts.values())) for score in scores(items)] == [
        ("The paper's claims", 1),
        ("Our additional claims", 1),
    ]
    assert scores_text(items) == (
        "the paper's claims: 1 holds; our additional claims: 1 does not hold"
    )
    for each in items[0]["claims"]:
        each["ours"] = True
    assert scores_text(items) == "our claims: 1 holds, 1 does not hold"


def test_a_verdict_has_a_sign_as_well_as_a_colour():
    assert badge("holds") == '<span class="badge holds">✓ holds</span>'
    assert badge("does not hold", "a & b") == '<span class="badge not">✗ a &amp; b</span>'


def test_in_part_names_the_datasets():
    found = claim(
        first=Verdict.of("holds", ""),
        second=Verdict.of("does not hold", ""),
        third=Verdict.of("cannot be tested", ""),
        fourth=Verdict("holds in part", (part("holds", "HR: a − b"), part("holds", "P: a − b"))),
    )
    assert where_it_holds(found) == (
        "Holds on first; in part on fourth (2 of 2 comparisons); not on second; "
        "cannot be tested on third."
    )
    assert where_it_holds(found | {"verdict": "holds"}) == ""


def test_in_part_names_the_metric_if_it_is_the_same_on_every_dataset():
    parts = (part("does not hold", "HR@10: a − b"), part("holds", "NDCG@10: a − b"))
    verdict = Verdict("holds in part", parts)
    assert where_it_holds(claim(x=verdict, y=verdict)) == "Holds for NDCG@10; not for HR@10."


def test_the_few_comparisons_that_fail_are_named():
    names = ("a", "b", "c", "d")
    held = tuple(part("holds", f"P: knn − {name}") for name in names)
    parts = (*held, part("does not hold", "P: knn − fcf"))
    found = claim(x=Verdict("does not hold", parts)) | {"verdict": "does not hold"}
    assert where_it_holds(found) == "Fails for knn − fcf; holds in the other 4 comparisons."
    mostly_failed = claim(x=Verdict("does not hold", (held[0], *parts[4:] * 2)))
    assert where_it_holds(mostly_failed | {"verdict": "does not hold"}) == ""


def test_a_factor_below_the_papers_holds_in_direction():
    assert where_it_holds(claim(x=Verdict.of("holds in part", "ms: 1.5 times"))) == (
        "In direction, not in size."
    )


def test_labels_leave_out_what_all_share():
    assert short_labels(["HR: a − b", "NDCG: a − b"]) == {"HR: a − b": "HR", "NDCG: a − b": "NDCG"}
    assert short_labels(["HR: a, tuned − b, tuned", "HR: a − c"]) == {
        "HR: a, tuned − b, tuned": "a − b (both tuned)",
        "HR: a − c": "a − c",
    }
    assert short_labels(["HR: a, x, tuned − b, tuned", "HR: a − c"]) == {
        "HR: a, x, tuned − b, tuned": "a, x − b (both tuned)",
        "HR: a − c": "a − c",
    }
    assert list(short_labels(["P: a, pi = 1 / a, pi = 0", "P: b / c"]).values()) == [
        "a: pi = 1 / pi = 0",
        "b / c",
    ]
