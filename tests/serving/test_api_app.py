"""The API's replies: equal to `coterie recommend`, and one clear text for every failure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from asking import Caller
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie import Run
from coterie.errors import MissingExtra
from coterie.serving import app as module
from coterie.serving.sources import RunFolder
from coterie.serving.watcher import ModelWatcher


@pytest.fixture(scope="module")
def watcher(trained: Callable[..., Path]) -> ModelWatcher:
    return ModelWatcher(RunFolder(trained("fedals")))


@pytest.fixture(scope="module")
def api(watcher: ModelWatcher) -> Caller:
    return Caller.of(watcher)


@pytest.fixture(scope="module")
def run(trained: Callable[..., Path]) -> Run:
    return Run.load(trained("fedals"))


def items(found: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(one["item"], one["score"]) for one in found]


def expected(found: list[object]) -> list[tuple[object, float]]:
    return [(one.item, one.score) for one in found]  # type: ignore[attr-defined]


def test_a_user_gets_the_recommendations_of_the_run(api: Caller, run: Run) -> None:
    found = api.get("/recommendations", user="7", n=4).data
    assert found["user"] == "7"
    assert items(found["items"]) == expected(run.recommend("7", 4))
    found = api.get("/recommendations", user="7", n=80, exclude_seen="false").data
    assert items(found["items"]) == expected(run.recommend("7", 80, exclude_seen=False))
    assert len(api.get("/recommendations", user="7").data["items"]) == 10


def test_a_slow_model_answers_from_a_thread(
    api: Caller, run: Run, watcher: ModelWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "current", replace(watcher.current, quick=False))
    assert items(api.get("/recommendations", user="7").data["items"]) == expected(
        run.recommend("7")
    )


def test_a_new_user_gets_the_recommendations_of_the_run(api: Caller, run: Run) -> None:
    found = api.post("/recommendations", {"history": [3, "9"], "n": 4}).data
    assert items(found["items"]) == expected(run.recommend_new_user([3, "9"], 4))


def test_a_batch_has_the_lists_of_its_users_and_histories(api: Caller, run: Run) -> None:
    asked = {"users": ["7", 8, "7"], "histories": [["3"], []], "n": 4}
    found = api.post("/recommendations/batch", asked).data
    lists = [[one["item"] for one in each] for each in found["users"]]
    assert lists == [[one.item for one in run.recommend(user, 4)] for user in ("7", 8, "7")]
    assert [items(each) for each in found["histories"]] == [
        expected(run.recommend_new_user(history, 4)) for history in (["3"], [])
    ]


def test_similar_items_health_and_model(api: Caller, run: Run, watcher: ModelWatcher) -> None:
    found = api.get("/similar-items", item="3", n=4).data
    assert items(found["items"]) == expected(run.similar_items("3", 4))
    version = watcher.current.version
    assert api.get("/health").data == {"status": "ok", "version": version, "failed_load": None}
    about = api.get("/model").data
    assert (about["version"], about["algorithm"], about["source"]) == (version, "fedals", "run")
    assert (about["users"], about["items"]) == (60, len(run.catalogue.item_ids))
    assert about["trained_at"] <= about["loaded_at"]


def test_the_api_describes_itself(api: Caller) -> None:
    about = api.get("/openapi.json").data
    assert set(about["paths"]) == {
        "/recommendations",
        "/recommendations/batch",
        "/similar-items",
        "/health",
        "/model",
    }
    query = about["paths"]["/recommendations"]["get"]["parameters"]
    assert {one["name"]: one["required"] for one in query} == {
        "user": True,
        "n": False,
        "exclude_seen": False,
    }


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ({"user": "nobody"}, 404, "unknown user 'nobody'; expected one of the model's 60 users"),
        ({}, 422, "user is missing"),
        ({"user": "7", "n": "0"}, 422, "n is '0': input should be greater than or equal to 1"),
        ({"user": "7", "n": "1001"}, 422, "less than or equal to 1000"),
        ({"user": "7", "n": "many"}, 422, "n is 'many'"),
        ({"user": "7", "exclude_sen": "1"}, 422, "exclude_sen is not a parameter"),
        ({"user": "7" * 600}, 422, "at most 512 characters"),
    ],
)
def test_mistakes_in_a_query(query: dict[str, str], status: int, error: str, api: Caller) -> None:
    answer = api.get("/recommendations", **query)
    assert (answer.status, answer.headers[b"content-type"]) == (status, b"application/json")
    assert error in answer.error


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"history": ["3", "nothing"]}, 404, "unknown item 'nothing'"),
        ({"history": [1.5]}, 422, "history.0 is 1.5"),
        ({"history": [None]}, 422, "history.0 is a NoneType"),
        ({"history": [True]}, 422, "history.0 is True"),
        ({"history": [10**30]}, 422, "history.0"),
        ({"history": "3"}, 422, "history is '3'"),
        ({"history": ["3"] * 10_001}, 422, "history"),
        ({"histroy": ["3"]}, 422, "history is missing"),
        ({}, 422, "history is missing"),
        ([], 422, "the body"),
        (b"", 422, ""),
        (b"{", 422, "not valid JSON"),
        (b"\xff\xfe", 422, "JSON"),
        (b'{"history": [' + b"9" * 5000 + b"]}", 422, ""),
        (b'{"history": [NaN]}', 422, "history.0"),
        (b'{"history": ["\\ud800"]}', 422, "history.0"),
        (b"[" * 100_000, 422, "the body cannot be parsed"),
        (b'{"history": ' * 1000, 422, ""),
    ],
)
def test_mistakes_in_a_history(body: object, status: int, error: str, api: Caller) -> None:
    answer = api.post("/recommendations", body)
    assert answer.status == status
    assert error in answer.error
    assert len(answer.error) < 500


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({}, 422, "users and histories are empty"),
        ({"users": ["7", "nobody"]}, 404, "unknown user 'nobody'"),
        ({"users": ["7"] * 1001}, 422, "users"),
        ({"histories": [[]] * 101}, 422, "histories"),
        ({"users": ["7"] * 200, "n": 1000}, 422, "200 lists of n=1000 items are 200,000"),
    ],
)
def test_batches_are_bounded(body: object, status: int, error: str, api: Caller) -> None:
    answer = api.post("/recommendations/batch", body)
    assert answer.status == status
    assert error in answer.error


def test_other_paths_and_methods(api: Caller) -> None:
    answer = api.get("/admin")
    assert answer.status == 404
    assert "expected one of GET /recommendations, POST /recommendations" in answer.error
    assert api.post("/health", {}).status == 405
    assert api.get("/docs").status == 404


def test_a_model_that_cannot_serve_new_users_says_so(trained: Callable[..., Path]) -> None:
    api = Caller.of(ModelWatcher(RunFolder(trained("random"))))
    answer = api.post("/recommendations", {"history": ["3"]})
    assert answer.status == 422
    assert "cannot serve users who were not in training" in answer.error


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    body=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["history", "users", "histories", "n", "features"]), inner
            )
        ),
        max_leaves=8,
    )
)
@pytest.mark.parametrize("path", ["/recommendations", "/recommendations/batch"])
def test_any_body_gets_an_answer(path: str, body: object, api: Caller) -> None:
    answer = api.post(path, body)
    assert answer.status in (200, 404, 422)
    assert answer.status == 200 or answer.error
    assert api.logged == []


def test_the_bounds_of_the_docs() -> None:
    assert (module.MOST_ITEMS, module.MOST_USERS, module.MOST_HISTORIES) == (1000, 1000, 100)


def test_a_diverged_model_is_the_servers_failure(
    api: Caller, watcher: ModelWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list with a score that is not a number would not be valid JSON either."""
    broken = replace(
        watcher.current.run.model, item_bias=np.full(len(watcher.current.item_json), np.nan)
    )
    monkeypatch.setattr(watcher, "current", replace(watcher.current, recommender=broken))
    for answer in (
        api.get("/recommendations", user="7"),
        api.post("/recommendations/batch", {"users": ["7", "8"]}),
    ):
        assert answer.status == 500
        assert "training diverged" in answer.error


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_a_missing_package_names_the_extra(
    package: str, trained: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from asking import LOCAL

    from coterie.serving.server import serve

    for name in ("coterie.serving.app", "coterie.serving.connection"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(sys.modules, "coterie.deployment.fleet.listener", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"pip install 'coterie\[web\]'"):
        serve(trained("fedals"), LOCAL, 1.0, print)
