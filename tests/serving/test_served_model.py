"""A served model recommends what `coterie recommend` does, for users and histories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coterie import Run
from coterie.errors import ConfigError, RunError
from coterie.experiments import run_folder
from coterie.serving import model as module
from coterie.serving.model import ServedModel, UnknownId
from coterie.serving.sources import RunFolder

KINDS = {
    "fedals": {},
    "als": {"popularity_prior": 5},
    "fedavg": {},
    "gmf": {},
    "ease": {},
    "itemknn": {},
    "userknn": {},
    "popular": {},
}
"""Kinds of models, with and without popularity in the scores."""


def pairs(text: str) -> list[tuple[object, str, float]]:
    return [(one["item"], one["text"], one["score"]) for one in json.loads(text)]


def expected(found: list[module.Run]) -> list[tuple[object, str, float]]:
    return [(one.item, one.text, one.score) for one in found]


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_users_and_histories_get_what_the_run_recommends(
    name: str, exclude_seen: bool, trained: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists of many users come in several blocks here: seven users each."""
    monkeypatch.setattr(module, "BLOCK_CELLS", 7 * 80)
    folder = trained(name, **KINDS[name])
    run = Run.load(folder)
    model = RunFolder(folder).load()
    users = np.arange(len(run.catalogue.user_ids), dtype=np.int32)
    together = model.for_users(users, 5, exclude_seen)
    for user, found in zip(users.tolist(), together, strict=True):
        alone = run.recommend(run.catalogue.user_ids[user], 5, exclude_seen)
        assert pairs(model.for_user(user, 5, exclude_seen)) == expected(alone)
        assert [item for item, _, _ in pairs(found)] == [one.item for one in alone]
        scores = [score for _, _, score in pairs(found)]
        assert scores == pytest.approx([one.score for one in alone], abs=1e-5)
    for history in (["3"], ["9", 4, "4", "70"], []):
        found = model.for_history(model.history(history), 5, exclude_seen)
        assert pairs(found) == expected(run.recommend_new_user(history, 5, exclude_seen))


@pytest.mark.parametrize("name", ["fedals", "ease", "userknn"])
def test_similar_items_are_those_of_the_run(name: str, trained: Callable[..., Path]) -> None:
    run = Run.load(trained(name))
    model = RunFolder(trained(name)).load()
    for item in ("3", "70"):
        found = pairs(model.similar(int(model.items([item])[0]), 6))
        assert found == expected(run.similar_items(item, 6))


def test_models_that_cannot_do_something_say_so(trained: Callable[..., Path]) -> None:
    model = RunFolder(trained("random")).load()
    assert not model.serves_new_users
    with pytest.raises(ConfigError, match="does not compare items"):
        model.similar(0, 3)
    with pytest.raises(ConfigError, match="cannot serve users who were not in training"):
        model.for_history(model.history(["3"]), 3, exclude_seen=True)


def test_an_unknown_id_is_named_and_no_other(trained: Callable[..., Path]) -> None:
    model = RunFolder(trained("fedals")).load()
    with pytest.raises(UnknownId, match=r"unknown user 'x'; expected one of the model's 60 users"):
        model.users(["x"])
    with pytest.raises(UnknownId, match="unknown item 9999"):
        model.items([3, 9999])
    with pytest.raises(UnknownId) as error:
        model.users(["y" * 5000])
    assert len(str(error.value)) < 300


def test_a_model_of_other_items_is_refused(fedals: Path, trained: Callable[..., Path]) -> None:
    other = trained("fedals", n_items=50)
    run_folder.write_catalogue(fedals, run_folder.read_catalogue(other))
    with pytest.raises(RunError, match="it scores 78 items; expected 50"):
        RunFolder(fedals).load()


def test_the_version_follows_the_files(fedals: Path, trained: Callable[..., Path]) -> None:
    first = RunFolder(fedals).load()
    assert RunFolder(trained("fedals")).load().version == first.version
    model, _ = run_folder.read_model(trained("fedals", seed=2))
    run_folder.write_model(fedals, model)
    assert RunFolder(fedals).load().version != first.version
    assert isinstance(first, ServedModel)
