"""Evaluation: metrics under the protocol and full ranking, one row per user, no seen items."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from score_table import Choosy, Table

from coterie import api
from coterie.data.interactions import Interactions
from coterie.data.splits import Split, split
from coterie.evaluation import candidates as sampling
from coterie.evaluation.evaluation import evaluate, quick
from coterie.evaluation.metrics import evenness, per_user
from coterie.evaluation.protocols import Protocol
from coterie.evaluation.ranking import rank_all


@pytest.fixture(scope="module")
def parts(people) -> Split:
    return split(people, "leave-one-out", 0.2, seed=0, validation=True)


@pytest.fixture(scope="module")
def model(people) -> Table:
    return Table(np.random.default_rng(0).random((people.n_users, people.n_items), np.float32))


@pytest.fixture(scope="module")
def candidates(parts) -> sampling.Candidates:
    return sampling.sample(parts.test, parts.everything(), 20, seed=0)


def test_both_rankings_stand_side_by_side(parts, model, candidates):
    protocol = Protocol(candidates=20, cutoffs=(5, 10))
    evaluation = evaluate(model, parts, protocol, candidates)
    whole = per_user(
        rank_all(model, parts.seen(), parts.test.rows, parts.test.n_items, 10), (5, 10)
    )
    assert {n for n in evaluation.table if n.startswith("full:")} == {f"full:{n}" for n in whole}
    for name, values in whole.items():
        np.testing.assert_array_equal(evaluation.table[f"full:{name}"], values)
        assert evaluation.full[name] == pytest.approx(values.mean())
        assert evaluation.metrics[name] == pytest.approx(evaluation.table[name].mean())
    assert (
        evaluation.metrics["HR@10"] > evaluation.full["HR@10"]
    )  # 21 candidates are easier than about 100
    assert {f"{m}@{k}" for m in ("IC", "Gini", "Pop") for k in (5, 10)} <= set(evaluation.full)


def test_without_candidates_the_protocol_is_full_ranking(parts, model):
    evaluation = evaluate(model, parts, Protocol(), None)
    assert evaluation.metrics == evaluation.full
    assert not any(name.startswith("full:") for name in evaluation.table)


def test_a_table_row_is_one_user_whatever_the_order_of_the_candidates(parts, model, candidates):
    """Published candidate files may list users in any order."""
    protocol = Protocol(candidates=20)
    plain = evaluate(model, parts, protocol, candidates)
    order = np.random.default_rng(1).permutation(len(candidates.users))
    mixed = dataclasses.replace(
        candidates,
        users=candidates.users[order],
        items=candidates.items[order],
        relevant=candidates.relevant[order],
    )
    evaluation = evaluate(model, parts, protocol, mixed)
    back = np.argsort(evaluation.users)
    plain_back = np.argsort(plain.users)
    for name in ("HR@10", "AUC", "full:HR@10", "full:AUC"):
        np.testing.assert_array_equal(
            evaluation.table[name][back], plain.table[name][plain_back], err_msg=name
        )


def test_what_was_trained_or_validated_on_is_not_recommended(parts, model):
    ranks = rank_all(model, parts.seen(), parts.test.rows, parts.test.n_items, 10)
    known = set(parts.train.pairs()) | set(parts.validation.pairs())
    listed = ranks.users[:, None].astype(np.int64) * parts.test.n_items + ranks.top
    assert not known & set(listed.ravel().tolist())


def test_the_quick_measure_agrees_with_the_evaluation(parts, model, candidates):
    protocol = Protocol(candidates=20)
    evaluation = evaluate(model, parts, protocol, candidates)
    sampled = quick(model, protocol, parts.seen(), parts.test, candidates)
    whole = quick(model, protocol, parts.seen(), parts.test, None)
    assert sampled == {name: evaluation.metrics[name] for name in sampled}
    assert whole == {name: evaluation.full[name] for name in whole}


def test_validation_samples_negatives_when_test_candidates_are_published(tmp_path, people):
    """A published file has negatives for test items only; validation must sample its own."""
    # The last item of every user is the newest.
    newest = {int(user): int(item) for user, item in zip(people.users, people.items, strict=True)}
    number = np.argsort(people.item_order)
    negatives = {
        user: number[np.setdiff1d(np.arange(people.n_items), people.rows.of(user))[:20]]
        for user in newest
    }
    lines = [
        f"({user},{number[item]})\t" + "\t".join(map(str, negatives[user]))
        for user, item in newest.items()
    ]
    file = tmp_path / "test.negative"
    file.write_text("\n".join(lines) + "\n")
    run = api.run("random", people, protocol="full", candidates_file=str(file), validation=True)
    assert run.curve[-1]["part"] == "validation"
    assert run.metrics["HR@10"] < 0.7  # 10 of 21
    assert run.curve[-1]["HR@10"] < 0.7


# Users whom a model does not serve.


@pytest.fixture(scope="module")
def choosy(people, model) -> Choosy:
    return Choosy(model.table, np.arange(people.n_users) % 4 > 0)


@pytest.mark.parametrize(
    "protocol", [Protocol(cutoffs=(5, 10)), Protocol(candidates=20, cutoffs=(5, 10))]
)
def test_a_user_who_is_not_served_scores_zero(parts, model, choosy, candidates, protocol):
    listed = candidates if protocol.candidates else None
    everyone = evaluate(model, parts, protocol, listed)
    some = evaluate(choosy, parts, protocol, listed)
    served = choosy.chosen[some.users]
    assert some.full["UC"] == served.mean()
    assert 0.7 < some.full["UC"] < 0.8
    for name, values in some.table.items():
        assert (values[~served] == 0).all(), name
        np.testing.assert_array_equal(values[served], everyone.table[name][served], err_msg=name)


@pytest.mark.parametrize("protocol", [Protocol(), Protocol(candidates=20)])
def test_the_mean_over_all_is_coverage_times_the_mean_over_the_served(
    parts, choosy, candidates, protocol
):
    evaluation = evaluate(choosy, parts, protocol, candidates if protocol.candidates else None)
    for found in (evaluation.metrics, evaluation.full):
        over_served = [name for name in found if name.startswith("served:")]
        assert {"served:P@10", "served:R@10", "served:AUC"} <= set(over_served)
        for name in over_served:
            assert found[name.removeprefix("served:")] == pytest.approx(
                evaluation.full["UC"] * found[name]
            ), name


def test_three_users_by_hand():
    """The first user has a hit at rank 1, the second has no list, the third has no hit."""
    scores = np.array([[0, 3, 2, 1], [0, 3, 2, 1], [0, 1, 2, 3]], np.float32)
    data = Interactions.from_columns(
        [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], None, [1, 2, 1, 2, 1, 2]
    )
    data = dataclasses.replace(data, item_ids=np.arange(4), item_order=np.arange(4, dtype=np.int32))
    parts = split(data, "leave-one-out", 0.2, seed=0)
    evaluation = evaluate(
        Choosy(scores, np.array([True, False, True])), parts, Protocol(cutoffs=(1,)), None
    )
    assert evaluation.table["HR@1"].tolist() == [1, 0, 0]
    assert evaluation.table["AUC"].tolist() == [1, 0, 0]
    assert evaluation.full["UC"] == pytest.approx(2 / 3)
    assert (evaluation.full["HR@1"], evaluation.full["served:HR@1"]) == (pytest.approx(1 / 3), 0.5)
    assert evaluation.full["IC@1"] == 2  # items 1 and 3; the second user has no list


def test_diversity_is_over_served_users_only(parts, choosy):
    ranks = rank_all(choosy, parts.seen(), parts.test.rows, parts.test.n_items, 10)
    evaluation = evaluate(choosy, parts, Protocol(), None)
    listed = ranks.top[choosy.chosen[ranks.users]]
    assert evaluation.full["IC@10"] == len(np.unique(listed))
    assert evaluation.full["Gini@10"] == evenness(listed.ravel(), parts.test.n_items)


def test_a_model_that_serves_all_users_has_no_served_means(parts, model, choosy):
    evaluation = evaluate(model, parts, Protocol(), None)
    assert evaluation.full["UC"] == 1
    unserved = evaluate(
        Choosy(model.table, np.zeros(len(model.table), bool)), parts, Protocol(), None
    )
    assert (
        unserved.full["UC"],
        unserved.full["P@10"],
        unserved.full["IC@10"],
        unserved.full["Gini@10"],
    ) == (0, 0, 0, 0)
    assert not any(name.startswith("served:") for name in (*evaluation.full, *unserved.full))
    assert not any(
        name.startswith("served:")
        for name in quick(choosy, Protocol(), parts.seen(), parts.test, None)
    )
