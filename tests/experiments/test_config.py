"""Settings: flat keys, one owner per key, and errors that name key, value, rule and remedy."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import annotated_types
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from coterie.algorithms.registry import ALGORITHMS, algorithm
from coterie.core.settings import OTHER_WORDS, Settings, split_by_owner
from coterie.data.filters import Filters
from coterie.data.synthetic import Synthetic
from coterie.errors import ConfigError, UnknownName, UserError, did_you_mean
from coterie.evaluation.protocols import PROTOCOLS, Protocol
from coterie.experiments import config
from coterie.experiments.config import (
    RENAMED,
    Choice,
    Course,
    Experiment,
    as_yaml,
    parse_assignments,
    read_file,
)

quickly = settings(deadline=None, max_examples=60)
COMMON = (Choice, Course, Filters, Protocol, Synthetic)


def groups(name: str) -> tuple[type[Settings], ...]:
    return (*COMMON, algorithm(name).settings)


# ---- flat keys


def experiments() -> st.SearchStrategy[dict[str, Any]]:
    """Valid experiments, in flat keys."""
    shared = st.fixed_dictionaries(
        {"algorithm": st.sampled_from(list(ALGORITHMS))},
        optional={
            "seed": st.integers(0, 2**63 - 1),
            "protocol": st.sampled_from(list(PROTOCOLS)),
            "cutoffs": st.lists(st.integers(1, 1000), min_size=1, max_size=5),
            "fraction": st.floats(0, 1, exclude_min=True, exclude_max=True),
            "candidates": st.integers(0, 500),
            "min_rating": st.none() | st.floats(-1e6, 1e6),
            "core": st.integers(0, 100),
            "duplicates": st.sampled_from(["newest", "oldest", "error"]),
            "validation": st.booleans(),
            "as_published": st.booleans(),
            "patience": st.integers(0, 9),
            "test_file": st.none() | st.text("abc/: #'\"é-", min_size=1, max_size=12),
        },
    )
    synthetic = st.fixed_dictionaries(
        {},
        optional={
            "n_users": st.integers(2, 999),
            "taste": st.floats(0, 1),
            "drift": st.floats(0, 1),
        },
    )
    a_file = st.fixed_dictionaries(
        {"dataset": st.text("abc é", min_size=1, max_size=9).map(lambda name: f"./{name}.csv")},
        optional={
            "columns": st.dictionaries(
                st.sampled_from(["user_id", "item_id"]), st.text(min_size=1, max_size=5)
            ),
            "skip_bad_rows": st.booleans(),
        },
    )
    whole = st.builds(lambda one, other: one | other, shared, synthetic | a_file)
    return whole.map(
        lambda keys: (
            keys
            | ({"validation": True} if keys.get("patience") else {})
            | ({"split": "own"} if keys.get("test_file") else {})
        )
    )


@quickly
@given(experiments())
def test_flat_keys_make_the_same_experiment_again(values: dict[str, Any]) -> None:
    experiment = Experiment.of(values)
    assert Experiment.of(experiment.flat()) == experiment


@quickly
@given(experiments())
def test_yaml_keeps_every_setting(values: dict[str, Any]) -> None:
    experiment = Experiment.of(values)
    assert Experiment.of(yaml.safe_load(as_yaml(experiment.flat()))) == experiment


@quickly
@given(experiments())
def test_flat_keys_hold_what_was_given(values: dict[str, Any]) -> None:
    flat = Experiment.of(values).flat()
    assert values.keys() <= flat.keys()
    for key in values.keys() - {"protocol", "cutoffs"}:
        assert flat[key] == values[key]
    if "cutoffs" in values:
        assert flat["cutoffs"] == sorted(set(values["cutoffs"]))


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("dataset", ["synthetic", "ml-100k", "ml-1m", "foursquare-italy", "my.csv"])
def test_defaults_survive_the_round_trip(name: str, dataset: str) -> None:
    experiment = Experiment.of({"algorithm": name, "dataset": dataset})
    assert Experiment.of(experiment.flat()) == experiment
    assert experiment.choice.protocol in PROTOCOLS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_key_belongs_to_two_groups(name: str) -> None:
    for one, other in itertools.combinations(groups(name), 2):
        assert not one.model_fields.keys() & other.model_fields.keys(), (one, other)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_setting_has_a_help_text(name: str) -> None:
    for group in groups(name):
        for key, _, text in group.rows():
            assert len(text) > 5, f"{group.__name__}.{key}"


def test_dataset_brings_its_filter_and_protocol() -> None:
    italy = Experiment.of({"algorithm": "popular", "dataset": "foursquare-italy"})
    assert italy.filters.min_user_interactions == 20
    assert (italy.choice.protocol, italy.protocol.split, italy.protocol.fraction) == (
        "holdout",
        "temporal",
        0.2,
    )
    other = Experiment.of(
        {"algorithm": "popular", "dataset": "foursquare-italy", "min_user_interactions": 5}
    )
    assert other.filters.min_user_interactions == 5


def test_protocols_are_those_of_the_papers() -> None:
    def of(name: str) -> Protocol:
        return Experiment.of({"algorithm": "popular", "protocol": name}).protocol

    assert (of("loo-50").candidates, of("loo-50").cutoffs) == (50, (10,))
    assert of("loo-99").candidates == 99
    assert (of("loo-100").candidates, of("loo-100").cutoffs) == (100, (20,))
    assert (of("full").split, of("full").candidates) == ("leave-one-out", 0)


def test_experiment_cannot_be_changed() -> None:
    experiment = Experiment.of({"algorithm": "gmf"})
    with pytest.raises(Exception, match=r"frozen|cannot assign"):
        experiment.settings.epochs = 3  # type: ignore[attr-defined]


# ---- errors


def limits(group: type[Settings]) -> list[tuple[str, float, float]]:
    """(key, limit, a value on the wrong side of it) for every limit a setting has."""
    found = []
    for key, field in group.model_fields.items():
        for rule in field.metadata:
            match rule:
                case annotated_types.Ge(ge=limit):
                    found.append((key, limit, limit - 1))
                case annotated_types.Gt(gt=limit):
                    found.append((key, limit, limit))
                case annotated_types.Le(le=limit):
                    found.append((key, limit, limit + 1))
                case annotated_types.Lt(lt=limit):
                    found.append((key, limit, limit))
    return found


@pytest.mark.parametrize("name", ALGORITHMS)
def test_value_out_of_range_names_key_value_rule_and_remedy(name: str) -> None:
    checked = 0
    for key, limit, wrong in (found for group in groups(name) for found in limits(group)):
        with pytest.raises(ConfigError) as caught:
            Experiment.of({"algorithm": name, key: wrong})
        line = str(caught.value)
        for part in (
            f"'{key}'",
            repr(wrong),
            f"{limit:g}" if limit < 1e5 else str(limit),
            f"--set {key}=",
        ):
            assert part in line, line
        assert "\n" not in line
        checked += 1
    assert checked >= 10


@pytest.mark.parametrize("name", ALGORITHMS)
def test_numbers_are_finite(name: str) -> None:
    keys = [
        k for group in groups(name) for k, f in group.model_fields.items() if f.annotation is float
    ]
    assert keys
    for key, bad in itertools.product(keys, (math.nan, math.inf, "nan")):
        with pytest.raises(ConfigError, match=key):
            Experiment.of({"algorithm": name, key: bad})


def known_keys() -> list[str]:
    return sorted(
        {key for name in ALGORITHMS for group in groups(name) for key in group.model_fields}
    )


@quickly
@given(st.sampled_from(known_keys()), st.data())
def test_key_with_a_letter_missing_gets_a_suggestion(key: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(key) - 1))
    typo = key[:place] + key[place + 1 :]
    name = next(n for n in ALGORITHMS if key in {k for g in groups(n) for k in g.model_fields})
    owners = {g.__name__: g for g in groups(name)}
    if len(typo) < 2 or typo in known_keys():
        return
    with pytest.raises(ConfigError, match="Did you mean") as caught:
        split_by_owner({typo: 1}, owners)
    assert f"unknown setting {typo!r} (value 1)" in str(caught.value)


@pytest.mark.parametrize("values", [{}, {"dataset": "ml-100k"}, {"epochs": 3}])
def test_experiment_without_an_algorithm(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected a key 'algorithm'"):
        Experiment.of(values)


@pytest.mark.parametrize("wrong", [3, None, ["gmf"], {"gmf": 1}])
def test_algorithm_that_is_no_name(wrong: object) -> None:
    with pytest.raises(UserError, match="algorithm"):
        Experiment.of({"algorithm": wrong})


def test_unknown_names() -> None:
    for values in (
        {"algorithm": "gfm"},
        {"algorithm": "gmf", "dataset": "ml"},
        {"algorithm": "gmf", "protocol": "lo"},
    ):
        with pytest.raises(UnknownName):
            Experiment.of(values)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_renamed_setting_names_its_new_name(old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=f"setting '{old}' is of an earlier .* expected '{new}'"):
        Experiment.of({"algorithm": "fedfast", old: 1})
    assert new in known_keys()


class Pair(Settings):
    low: int = Field(1, ge=0)
    """Lower end."""


def test_group_alone_refuses_unknown_keys_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'lo'\. Did you mean 'low'\?"):
        Pair.of({"lo": 3})


@quickly
@given(st.text(), st.lists(st.text(), max_size=30))
def test_did_you_mean_is_one_sentence_about_known_names(name: str, known: list[str]) -> None:
    sentence = did_you_mean(name, known)
    if sentence.startswith("Did you mean"):
        assert any(repr(k) in sentence for k in known)
    elif known:
        assert sentence.startswith("Known: ")
    else:
        assert sentence == "There are none."


@given(st.sampled_from(list(ALGORITHMS)))
def test_did_you_mean_finds_a_name_in_other_letters(name: str) -> None:
    assert did_you_mean(name.upper(), ALGORITHMS) == f"Did you mean {name!r}?"


def test_did_you_mean_shows_a_dozen_and_counts_the_rest() -> None:
    known = [f"{n:04}" for n in range(100)]
    assert did_you_mean("zzzz", known) == f"Known: {', '.join(known[:12])} and 88 more."


# ---- assignments


def test_values_are_read_as_yaml() -> None:
    pairs = ["a=3", "b=0.5", "c=true", "d=text", "e=[1, 2]", "f=null", "g=", "h=x=y", " i = 4"]
    assert parse_assignments(pairs) == {
        "a": 3,
        "b": 0.5,
        "c": True,
        "d": "text",
        "e": [1, 2],
        "f": None,
        "g": None,
        "h": "x=y",
        "i": 4,
    }


def test_text_that_is_not_yaml_stays_text() -> None:
    assert parse_assignments(["test_file=a: b: c", "x=[1, 2"]) == {
        "test_file": "a: b: c",
        "x": "[1, 2",
    }


@pytest.mark.parametrize("pair", ["epochs", "=3", " =3", ""])
def test_what_is_not_an_assignment(pair: str) -> None:
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_assignments([pair])


@quickly
@given(st.floats(1e-12, 1e12))
def test_every_number_arrives_as_it_was_written(rate: float) -> None:
    """YAML 1.1 reads 1e-05 as text."""
    values = parse_assignments([f"learning_rate={rate!r}"])
    assert Experiment.of({"algorithm": "bpr"} | values).settings.learning_rate == rate  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "expected"), [("5", (5,)), ("20,5", (5, 20)), ("[10, 10, 1]", (1, 10))]
)
def test_cutoffs_in_several_notations(text: str, expected: tuple[int, ...]) -> None:
    values = parse_assignments([f"cutoffs={text}"])
    assert Experiment.of({"algorithm": "popular"} | values).protocol.cutoffs == expected


def test_headline_with_commas() -> None:
    values = parse_assignments(["headline=NDCG,R"])
    assert Experiment.of({"algorithm": "popular"} | values).protocol.headline == ("NDCG", "R")


# ---- files


def test_file_gives_flat_keys(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("algorithm: gmf\n# a comment\ncutoffs: [5, 10]\n7: seven\n")
    assert read_file(str(tmp_path / "e.yaml")) == {
        "algorithm": "gmf",
        "cutoffs": [5, 10],
        "7": "seven",
    }


@pytest.mark.parametrize(
    "content", [b"a: [", b"\tx", b"\xff\xfe", b"- a\n- b\n", b"", b"gmf", b"!!python/object:os.x"]
)
def test_file_that_holds_no_keys_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "e.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_file(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_key_given_twice_is_refused(tmp_path: Path) -> None:
    """Otherwise the second value would win silently."""
    (tmp_path / "e.yaml").write_text("algorithm: gmf\nepochs: 3\nepochs: 30\n")
    with pytest.raises(ConfigError, match="epochs"):
        read_file(str(tmp_path / "e.yaml"))


def test_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    for name in ("none.yaml", "folder.yaml"):
        with pytest.raises(ConfigError, match=name):
            read_file(str(tmp_path / name))


def test_yaml_keeps_what_is_read_as_the_end_of_a_line() -> None:
    values = {"columns": {"user_id": "\x85"}, "dataset": "é.csv"}
    assert yaml.safe_load(as_yaml(values)) == values
    assert "é.csv" in as_yaml({"dataset": "é.csv"}), "names stay readable"


# ---- tuned settings of FedAvg's two readings


@pytest.mark.parametrize("dataset", ["ml-100k", "ml-1m", "synthetic", "pinterest"])
def test_settings_tuned_for_one_reading_of_fedavg_are_not_used_for_the_other(dataset: str) -> None:
    usual = Experiment.of({"algorithm": "fedavg", "dataset": dataset})
    literal = Experiment.of({"algorithm": "fedavg", "dataset": dataset, "average": "all"})
    assert usual.tuned
    assert literal.tuned
    tuned = yaml.safe_load(Path(config.__file__).with_name("tuned.yaml").read_text())[dataset]
    for experiment, entry in ((usual, "fedavg"), (literal, "fedavg, average=all")):
        values = experiment.settings.model_dump()
        assert {key: values[key] for key in tuned[entry]} == tuned[entry]
    assert tuned["fedavg"]["average"] == "touched"
    assert tuned["fedavg, average=all"]["average"] == "all"


def test_a_reading_that_was_not_tuned_has_plain_defaults() -> None:
    """Yelp was tuned for the default reading only."""
    assert Experiment.of({"algorithm": "fedavg", "dataset": "yelp"}).tuned
    assert not Experiment.of({"algorithm": "fedavg", "dataset": "yelp", "average": "all"}).tuned


def test_the_default_reading_of_fedavg_averages_the_rows_that_clients_touched() -> None:
    for name in ("fedavg", "fedavg+actvsamp", "fedbso"):
        assert algorithm(name).settings.model_fields["average"].default == "touched"


# ---- other words for settings


@pytest.mark.parametrize(
    ("name", "word", "meant"),
    [
        ("bpr", "lr", "learning_rate"),
        ("fedavg", "lr", "learning_rate"),
        ("bpr", "dim", "embedding_size"),
        ("bpr", "factors", "embedding_size"),
        ("als", "n_factors", "embedding_size"),
        ("bpr", "k", "embedding_size"),
        ("itemknn", "k", "neighbours"),
        ("bpr", "lambda", "reg_user"),
        ("gmf", "l2", "reg"),
        ("slim", "l1", "reg_l1"),
        ("slim", "reg", "reg_l2"),
        ("slim", "k", "neighbours"),
        ("bpr", "rounds", "epochs"),
        ("fedavg", "epochs", "rounds"),
        ("fedavg", "E", "local_epochs"),
        ("fedavg", "fraction_fit", "participation"),
        ("bpr", "random_state", "seed"),
        ("bpr", "topk", "cutoffs"),
    ],
)
def test_a_word_of_other_libraries_finds_its_setting(name: str, word: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting '{word}'.*Did you mean '{meant}'"):
        Experiment.of({"algorithm": name, word: 1})


def test_other_words_are_for_settings_that_exist() -> None:
    groups = [Choice, Course, Filters, Protocol, *(algorithm(n).settings for n in ALGORITHMS)]
    known = {key for group in groups for key in group.model_fields}
    assert OTHER_WORDS.keys() <= known
