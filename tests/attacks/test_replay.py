"""The disclosure report of a run: its rounds replayed, figures by pi, and required texts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import coterie
from coterie import attacks as disclosure
from coterie.attacks.replay import Replay, by_rate, collectors_for_sums
from coterie.attacks.tables import (
    EVERYTHING,
    IDS_SENT,
    RINGS_REVEAL,
    WARNING,
    brief,
    markdown,
    notes,
)
from coterie.core.progress import SILENT
from coterie.errors import ConfigError, RunError
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.experiments.run_folder import read_config

SMALL = {"embedding_size": 6, "epochs": 3}


class Recorder:
    """A collector that records only what the server sent."""

    def __init__(self) -> None:
        self.sent: list[np.ndarray] = []

    def add(self, observation) -> None:
        self.sent.append(observation.sent["item_rows"].copy())


def pfpl(people, out, **changes):
    return coterie.run("pfpl+", people, out=out, **(SMALL | changes))


@pytest.mark.parametrize(("name", "rounds"), [("pfpl+", 3), ("fcf", 3), ("fedals", 3)])
def test_the_rounds_are_those_of_the_run(people, tmp_path, name, rounds):
    """In the round after the last one the server sends the run's model, bit for bit."""
    length = {"epochs": 3} if name == "pfpl+" else {"rounds": 3}
    run = coterie.run(name, people, out=tmp_path / "run", embedding_size=6, seed=4, **length)
    ready = prepare(Experiment.of(read_config(tmp_path / "run")), people, SILENT)
    recorder = Recorder()
    replay = replace(Replay.of(ready), collectors=(recorder,))
    assert list(replay.play([2, rounds + 1], SILENT)) == [2, rounds + 1]
    assert recorder.sent[-1].tobytes() == run.model.item_rows.tobytes()
    assert recorder.sent[0].tobytes() != run.model.item_rows.tobytes()


def test_report_of_a_run(people, tmp_path):
    run = pfpl(people, tmp_path / "run")
    found = disclosure.report(run, (2, 20), data=people)
    for k in (2, 20):
        assert found.of("bias-sign", k).precision == 1.0
    recalls = [found.of("bias-sign", k).recall for k in (2, 20)]
    assert recalls[0] < recalls[1]
    assert recalls[1] > 0.95
    assert found.of("bias-sign", 20).popular_precision < 0.6
    assert found.of("factor-sign", 20).precision > 0.95
    assert {line.rounds for line in found.lines} == {2, 20}
    assert {line.pi for line in found.lines} == {"all"}
    assert found.about["rounds_of_the_run"] == 3
    assert "Users observed, by rounds: 200 after 2, 200 after 20." in notes(found)
    assert "The run ends after round 3; later rounds continue it." in notes(found)
    assert disclosure.report(tmp_path / "run", (2,), data=people).lines == tuple(
        n for n in found.lines if n.rounds == 2
    )


def test_the_warning_is_in_the_report(people, tmp_path):
    pfpl(people, tmp_path / "run", disclosure=0.5)
    found = disclosure.report(tmp_path / "run", (1,), data=people)
    disclosure.save(found, tmp_path / "run")
    assert WARNING == "pi is a disclosure rate, not a privacy guarantee."
    text = (tmp_path / "run" / "disclosure.md").read_text()
    assert text == markdown(found)
    assert f"{WARNING} Here disclosure=0.5." in text
    saved = json.loads((tmp_path / "run" / "disclosure.json").read_text())
    assert saved["warning"] == WARNING
    assert saved["figures"][0]["attacker"] == "bias-sign"
    assert saved["figures"][0]["precision"] == 1.0
    for attacker in found.attackers:
        # Each attacker has a line with its figures, and a line with what it uses.
        assert sum(f"| {attacker} |" in line for line in text.splitlines()) == 2


def test_figures_are_given_by_disclosure_rate(people, tmp_path):
    pfpl(people, tmp_path / "run", disclosure="choice(0, 1)")
    found = disclosure.report(tmp_path / "run", (10,), data=people)
    assert {line.pi for line in found.lines} == {"all", "0", "1"}
    header, rows = brief(found)
    assert header[2:4] == ["pi", "claims"]
    assert [row[2] for row in rows[:3]] == ["all", "0", "1"]
    assert rows[1][3:5] == ["0.0", "-/-"]
    nothing, everything, whole = (found.of("bias-sign", 10, pi) for pi in ("0", "1", "all"))
    assert (nothing.claims, nothing.precision, nothing.recall) == (0.0, None, 0.0)
    assert (everything.precision, everything.claimed_users) == (1.0, everything.users)
    assert nothing.users + everything.users == whole.users
    assert everything.recall > 0.9
    shared = everything.recall * everything.users / whole.users
    assert whole.recall == pytest.approx(shared)


def test_many_rates_are_grouped_by_tenths():
    pi = np.array([0.0, 0.05, 0.1, 0.19, *np.linspace(0.5, 0.59, 9), 1.0, 0.95, 0.3])
    observed = np.ones(len(pi), bool)
    observed[-1] = False
    groups = by_rate(pi, observed)
    assert {name: int(users.sum()) for name, users in groups.items()} == {
        "0 to 0.1": 2,
        "0.1 to 0.2": 2,
        "0.5 to 0.6": 9,
        "0.9 to 1": 2,
    }
    assert by_rate(np.array([0.3, 0.3, 0.7]), np.array([True, True, False])) == {}
    assert by_rate(None, observed) == {}


def test_changing_rates_count_by_their_mean(people, tmp_path):
    """Users disclose nothing in the first epoch and everything later: over four rounds 3/4."""
    lines = [f"{user},0,1\n{user},1,2\n" for user in people.user_ids[:150]]
    (tmp_path / "rates.csv").write_text("user_id,disclosure,epoch\n" + "".join(lines))
    pfpl(people, tmp_path / "run", disclosure=0.25, disclosure_file=str(tmp_path / "rates.csv"))
    found = disclosure.report(tmp_path / "run", (1, 4), data=people)
    assert {line.pi for line in found.lines if line.rounds == 1} == {"all", "0", "0.25"}
    assert {line.pi for line in found.lines if line.rounds == 4} == {"all", "0.25", "0.75"}
    assert found.of("bias-sign", 1, "0").claims == 0


def test_private_items_have_no_sign_but_the_complement_reveals_them(people, tmp_path):
    """All items of the first hundred users are private: to a server their rate is 0, not 1."""
    frame = people.to_frame()
    some = frame[frame["user_id"].isin(people.user_ids[:100])]
    some[["user_id", "item_id"]].to_csv(tmp_path / "private.csv", index=False)
    pfpl(people, tmp_path / "run", private_items=str(tmp_path / "private.csv"))
    found = disclosure.report(tmp_path / "run", (60,), data=people)
    signs = found.of("bias-sign", 60)
    left = found.of("never-down", 60)
    assert (signs.users, signs.claimed_users, signs.precision) == (200, 100, 1.0)
    assert left.precision > 0.95
    assert left.recall == 1.0


def test_fcf_reveals_the_histories_in_one_round(people, tmp_path):
    coterie.run("fcf", people, out=tmp_path / "run", rounds=2, embedding_size=6)
    found = disclosure.report(tmp_path / "run", data=people)
    assert {line.rounds for line in found.lines} == {1}
    first = found.of("fcf", 1)
    assert first.precision > 0.99
    assert first.recall > 0.99
    assert first.popular_precision < 0.6
    assert EVERYTHING in markdown(found)


# FedALS, FedEASE and FedSLIM


@pytest.mark.parametrize("name", ["fedals", "fedease", "fedslim"])
def test_item_ids_in_the_clear_are_the_histories(people, tmp_path, name):
    coterie.run(name, people, out=tmp_path / "run", rounds=1)
    found = disclosure.report(tmp_path / "run", (1,), data=people)
    ids = found.of("ids", 1)
    assert (ids.precision, ids.recall, ids.claimed_users) == (1.0, 1.0, 200)
    # The floor: as many claims, made from the most popular items.
    assert ids.popular_precision < 0.6
    assert notes(found)[0] == IDS_SENT
    assert "Users observed, by rounds: 200 after 1." in notes(found)


def test_vectors_alone_reveal_histories(people, tmp_path):
    coterie.run("fedals", people, out=tmp_path / "run", embedding_size=32, rounds=3)
    found = disclosure.report(tmp_path / "run", (3,), data=people)
    scores = found.of("scores", 3)
    pursuit = found.of("pursuit", 3)
    assert (scores.users, pursuit.users) == (50, 50)
    assert scores.r_precision > scores.popular_r_precision
    assert pursuit.precision > 0.95
    assert pursuit.recall > 0.95
    assert pursuit.r_precision > scores.r_precision


def test_ratings_are_attacked_by_their_ids(people, tmp_path):
    coterie.run("fedals", people, out=tmp_path / "run", embedding_size=4, rounds=1)
    ready = prepare(Experiment.of(read_config(tmp_path / "run")), people, SILENT)
    world = replace(Replay.of(ready).world, rated=True)
    assert [list(each.uses) for each in collectors_for_sums(world)] == [["ids"]]


def test_sums_over_small_rings_reveal_histories(people, tmp_path):
    """Rings of 10 and 16 coordinates: members are told apart. In rings of 50 they are not."""
    for size, exact in ((10, True), (50, False)):
        folder = tmp_path / str(size)
        ring = {"secure_aggregation": "ring", "ring_size": size}
        coterie.run("fedals", people, out=folder, embedding_size=16, rounds=1, **ring)
        found = disclosure.report(folder, (1,), data=people)
        unmixed = found.of("unmix", 1)
        assert (unmixed.users, unmixed.claimed_users) == (100, 100 if exact else 0)
        if exact:
            assert (unmixed.precision, unmixed.recall) == (1.0, 1.0)
        assert notes(found)[0] == RINGS_REVEAL


@pytest.mark.parametrize("name", ["fedease", "fedslim"])
def test_pairs_over_rings_reveal_histories(people, tmp_path, name):
    ring = {"secure_aggregation": "ring", "ring_size": 5}
    coterie.run(name, people, out=tmp_path / "run", **ring)
    found = disclosure.report(tmp_path / "run", data=people).of("pairs", 1)
    assert found.users == 100
    assert found.precision == 1.0
    assert found.recall > 0.9


def test_blocks_of_coordinates_are_unmixed_where_members_are_fewer(people, tmp_path):
    ring = {"secure_aggregation": "ring", "ring_size": 5, "block_size": 8}
    coterie.run("fedals", people, out=tmp_path / "run", embedding_size=16, rounds=2, **ring)
    found = disclosure.report(tmp_path / "run", (2,), data=people)
    assert (found.of("unmix", 2).precision, found.of("unmix", 2).recall) == (1.0, 1.0)
    assert found.of("lone-item", 2).claims == 0


def test_a_sequential_run_is_observed_round_by_round(people, tmp_path):
    coterie.run("sfpl+", people, out=tmp_path / "run", epochs=1, embedding_size=6)
    figures = disclosure.report(tmp_path / "run", (40,), data=people).of("bias-sign", 40)
    assert 20 < figures.users <= 40
    assert (figures.precision, figures.claimed_users) == (1.0, figures.users)


def test_a_run_that_began_with_the_weights_of_another(people, tmp_path):
    pfpl(people, tmp_path / "first")
    run = pfpl(people, tmp_path / "second", start_from=str(tmp_path / "first"), epochs=1)
    ready = prepare(Experiment.of(read_config(tmp_path / "second")), people, SILENT)
    recorder = Recorder()
    list(replace(Replay.of(ready), collectors=(recorder,)).play([2], SILENT))
    assert recorder.sent[1].tobytes() == run.model.item_rows.tobytes()
    fresh = pfpl(people, tmp_path / "fresh", epochs=1)
    assert fresh.model.item_rows.tobytes() != run.model.item_rows.tobytes()


# Mistakes


def test_other_algorithms_are_refused_by_name(people, tmp_path):
    coterie.run("popular", people, out=tmp_path / "run")
    with pytest.raises(
        ConfigError, match="algorithm is popular, for which there is no attacker"
    ) as refused:
        disclosure.report(tmp_path / "run", data=people)
    assert all(name in str(refused.value) for name in ("sfpl,", "sfpl+", "pfpl,", "pfpl+", "fcf"))


def test_a_run_without_a_folder_is_refused(people):
    with pytest.raises(RunError, match=r"has no folder.*out="):
        disclosure.report(coterie.run("pfpl+", people, **SMALL), data=people)


def test_other_data_is_refused(people, tmp_path):
    pfpl(people, tmp_path / "run")
    fewer = people.select(np.arange(len(people) - 3))
    with pytest.raises(RunError, match="differ from those the run was trained on"):
        disclosure.report(tmp_path / "run", (1,), data=fewer)


@pytest.mark.parametrize("rounds", [(), (0,), (5, -1)])
def test_impossible_rounds_are_refused(people, tmp_path, rounds):
    pfpl(people, tmp_path / "run", epochs=1)
    with pytest.raises(ConfigError, match=r"rounds are .*at least 1"):
        disclosure.report(tmp_path / "run", rounds, data=people)
