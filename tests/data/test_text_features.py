"""The encoded titles, items and users that towers read, as bags and as words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import api
from coterie.data import splits, text_features
from coterie.data import text as texts
from coterie.data.content import Content, TextEncoding, UserInput
from coterie.data.interactions import objects
from coterie.data.text import Ragged
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.types import Rows

INPUTS = 1 << 20  # so large that two different words hardly ever collide
FILMS = ("The One Cat", "Dog! (1999)", "")
KINDS = (("Drama", "Film-Noir"), (), ("Drama",))
PLOTS = ("The one and only CAT, with a hat.", "", "It was the dog")
FEATURES = {"occupation": ("1", "25"), "age": ("25", "1")}
Spelt = list[list[int]]


def training(
    titles: Sequence[str] | None = FILMS,
    kinds: Sequence[tuple[str, ...]] | None = None,
    bodies: Sequence[str] | None = None,
    features: Mapping[str, Sequence[str]] | None = None,
    n_users: int = 2,
) -> TrainingSet:
    nothing = Rows(np.zeros(n_users + 1, np.int64), np.empty(0, np.int32))
    n_items = len(titles or bodies or FILMS)
    named = {name: objects(values) for name, values in (features or {}).items()}
    columns = [None if column is None else objects(column) for column in (titles, kinds, bodies)]
    return TrainingSet(
        n_users,
        n_items,
        nothing,
        nothing,
        None,
        named,
        item_texts=columns[0],
        item_categories=columns[1],
        item_bodies=columns[2],
    )


def read(
    of: TrainingSet,
    encoding: TextEncoding = "words",
    n_inputs: int = INPUTS,
    most_words: int = 50,
    user_input: UserInput = "auto",
) -> Content:
    return text_features.read(of, encoding, n_inputs, most_words, user_input)


def spelt(words: Sequence[str], n_inputs: int = INPUTS) -> Spelt:
    """Every word as the inputs of its letters."""
    return [texts.trigrams([word], n_inputs).items.tolist() for word in words]


def words_in(part: Ragged, whole: Content) -> list[Spelt]:
    assert (part.weights == 1).all()
    assert len(part.weights) == len(part.rows.items)
    return [[whole.letters.of(word).tolist() for word in part.rows.of(k)] for k in range(len(part))]


def bags_in(part: Ragged) -> list[dict[int, float]]:
    ends = part.rows.offsets
    return [
        dict(
            zip(part.rows.of(k).tolist(), part.weights[ends[k] : ends[k + 1]].tolist(), strict=True)
        )
        for k in range(len(part))
    ]


def bag(words: Sequence[str], n_inputs: int = INPUTS) -> Counter[int]:
    return Counter(i for letters in spelt(words, n_inputs) for i in letters)


def items_of(found: Content) -> Ragged:
    assert found.items is not None
    return found.items


def users_of(found: Content) -> Ragged:
    assert found.users is not None
    return found.users


# Items

TITLES = [["the", "one", "cat"], ["dog", "1999"], []]
WHOLE = [
    ["the", "one", "cat", "drama", "film", "noir", "cat", "hat"],
    ["dog", "1999"],
    ["drama", "dog"],
]


def test_an_item_is_its_title_its_categories_and_its_body_without_stop_words() -> None:
    """Stop words stay in titles: "The One" has nothing else."""
    found = read(training(FILMS, KINDS, PLOTS))
    assert words_in(found.titles, found) == [spelt(words) for words in TITLES]
    assert words_in(items_of(found), found) == [spelt(words) for words in WHOLE]


@pytest.mark.parametrize("n_inputs", [1, 30, INPUTS])
def test_bags_hold_the_same_words(n_inputs: int) -> None:
    found = read(training(FILMS, KINDS, PLOTS), "bags", n_inputs)
    assert bags_in(found.titles) == [bag(words, n_inputs) for words in TITLES]
    assert bags_in(items_of(found)) == [bag(words, n_inputs) for words in WHOLE]


def test_what_data_does_not_tell_of_items_is_not_read() -> None:
    only_titles = read(training(FILMS))
    assert words_in(items_of(only_titles), only_titles) == [spelt(words) for words in TITLES]
    without_bodies = read(training(FILMS, KINDS))
    expected = [["the", "one", "cat", "drama", "film", "noir"], ["dog", "1999"], ["drama"]]
    assert words_in(items_of(without_bodies), without_bodies) == [
        spelt(words) for words in expected
    ]
    without_kinds = read(training(FILMS, None, PLOTS))
    expected = [["the", "one", "cat", "cat", "hat"], ["dog", "1999"], ["dog"]]
    assert words_in(items_of(without_kinds), without_kinds) == [spelt(words) for words in expected]


def test_every_word_is_spelt_once() -> None:
    found = read(training(FILMS, KINDS, PLOTS, FEATURES))
    distinct = {word for words in WHOLE for word in words}
    assert len(found.letters.counts) == len(distinct) + 4  # two ages and two occupations


def test_without_titles_there_is_nothing_to_read() -> None:
    with pytest.raises(
        ConfigError, match=r"items of this data have no texts.*; expected titles\. Use ml-100k, "
    ):
        read(training(None, KINDS, PLOTS))


some_texts = st.lists(st.text(max_size=20), min_size=1, max_size=5)


@settings(deadline=None, max_examples=150)
@given(some_texts, st.data(), st.integers(1, 2000))
def test_any_texts_are_read_as_their_words(
    titles: list[str], data: st.DataObject, n_inputs: int
) -> None:
    as_many = st.lists(st.text(max_size=20), min_size=len(titles), max_size=len(titles))
    kinds = [(kind, "Drama") for kind in data.draw(as_many)]
    bodies = data.draw(as_many)
    given_all = training(titles, kinds, bodies)
    head = texts.words_of(titles)
    body = texts.words_of(bodies, texts.STOP_WORDS)
    middle = [texts.words_of([a])[0] + texts.words_of([b])[0] for a, b in kinds]
    whole = [a + b + c for a, b, c in zip(head, middle, body, strict=True)]
    by_words = read(given_all, "words", n_inputs, most_words=1000)
    by_bags = read(given_all, "bags", n_inputs)
    assert words_in(items_of(by_words), by_words) == [spelt(words, n_inputs) for words in whole]
    assert words_in(by_words.titles, by_words) == [spelt(words, n_inputs) for words in head]
    assert bags_in(items_of(by_bags)) == [bag(words, n_inputs) for words in whole]
    assert bags_in(by_bags.titles) == [bag(words, n_inputs) for words in head]


# The first words


@pytest.mark.parametrize("most", [1, 2, 3, 5, 7, 8, 50])
def test_the_first_words_are_read(most: int) -> None:
    """The title first, then categories, then the body up to the limit."""
    found = read(training(FILMS, KINDS, PLOTS, FEATURES), most_words=most)
    assert words_in(items_of(found), found) == [spelt(words[:most]) for words in WHOLE]
    assert words_in(found.titles, found) == [spelt(words[:most]) for words in TITLES]
    assert [len(words) for words in words_in(users_of(found), found)] == [min(most, 2)] * 2


def test_bags_have_all_words() -> None:
    given_all = training(FILMS, KINDS, PLOTS)
    assert bags_in(items_of(read(given_all, "bags", most_words=1))) == [
        bag(words) for words in WHOLE
    ]


# Users


def test_an_age_of_25_is_no_occupation_25() -> None:
    data = training(features=FEATURES)
    (age25, occupation1), (age1, occupation25) = text_features.features(data)
    assert len({age25, occupation1, age1, occupation25}) == 4
    # Features are in the order of their names.
    assert all(word.startswith("age") for word in (age25, age1))
    assert all(word.startswith("occupation") for word in (occupation1, occupation25))
    assert [word[-2:] for word in (age25, occupation25)] == ["25", "25"]
    by_words = read(data, "words")
    by_bags = read(data, "bags")
    assert words_in(users_of(by_words), by_words) == [
        spelt([age25, occupation1]),
        spelt([age1, occupation25]),
    ]
    assert bags_in(users_of(by_bags)) == [bag([age25, occupation1]), bag([age1, occupation25])]
    assert bag([age25, occupation1]) != bag([age1, occupation25])


def test_a_feature_is_one_word_whatever_its_value() -> None:
    jobs = ("Tech/Support", "K-12 Student", "tech/support", "", "技術者", "💡")
    found = text_features.features(training(features={"Job Title": jobs}, n_users=len(jobs)))
    assert [texts.words_of(words) for words in found] == [[list(words)] for words in found]
    words = [word for (word,) in found]
    assert words[0] == words[2]  # in any case
    assert len({words[k] for k in (0, 1, 3, 4)}) == 4  # what is not known is no value


@pytest.mark.parametrize(
    ("user_input", "has_features", "read_as_features"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("features", True, True),
        ("titles", True, False),
        ("titles", False, False),
    ],
)
def test_what_represents_users(
    user_input: UserInput, has_features: bool, read_as_features: bool
) -> None:
    for encoding in ("bags", "words"):
        found = read(
            training(features=FEATURES if has_features else None), encoding, user_input=user_input
        )
        assert (found.users is not None) == read_as_features
        assert found.users is None or len(found.users) == 2


def test_features_that_the_data_does_not_have_cannot_be_read() -> None:
    with pytest.raises(
        ConfigError,
        match=r"setting 'person' is 'features', but the data has no user features\. "
        r"Set person=titles\.",
    ):
        read(training(), user_input="features")


def test_features_do_not_change_how_items_are_read() -> None:
    only_node = read(training(FILMS, KINDS))
    with_features = read(training(FILMS, KINDS, None, FEATURES))
    assert words_in(items_of(only_node), only_node) == words_in(
        items_of(with_features), with_features
    )
    assert words_in(only_node.titles, only_node) == words_in(with_features.titles, with_features)


# A subset of the users


@pytest.mark.parametrize("which", [[1], [1, 0], [0, 1, 1], []])
def test_a_node_has_the_features_of_its_own_users(which: list[int]) -> None:
    whole = read(training(FILMS, KINDS, None, FEATURES), "bags")
    part = whole.of_users(np.array(which, np.int32))
    assert bags_in(users_of(part)) == [bags_in(users_of(whole))[k] for k in which]
    assert part.items is whole.items
    assert part.titles is whole.titles
    assert part.letters is whole.letters


def test_a_node_without_features_or_items_stays_without() -> None:
    part = replace(read(training(), "bags"), items=None).of_users(np.array([1], np.int32))
    assert part.items is None
    assert part.users is None


def test_a_training_part_takes_its_content_along() -> None:
    whole = training(features=FEATURES)
    part = replace(whole, content=read(whole, "bags")).of_users(np.array([1], np.int32))
    assert part.content is not None
    assert bags_in(users_of(part.content)) == [bag(text_features.features(whole)[1])]


# Read once


def test_the_same_texts_are_read_once() -> None:
    """Also for equal but distinct objects, as in a second run on the same data."""
    first = read(training(FILMS, KINDS, PLOTS, FEATURES), "bags")
    assert read(training(tuple(FILMS), list(KINDS), list(PLOTS), dict(FEATURES)), "bags") is first


CHANGES: list[Callable[[], Content]] = [
    lambda: read(training(("The One Cat", "Dog! (1998)", ""), KINDS, PLOTS, FEATURES)),
    lambda: read(training(FILMS, (("Drama",), (), ()), PLOTS, FEATURES)),
    lambda: read(training(FILMS, KINDS, ("", "", ""), FEATURES)),
    lambda: read(training(FILMS, KINDS, PLOTS, {"age": ("25", "1"), "occupation": ("1", "24")})),
    lambda: read(training(FILMS, KINDS, PLOTS, FEATURES), "bags"),
    lambda: read(training(FILMS, KINDS, PLOTS, FEATURES), n_inputs=50),
    lambda: read(training(FILMS, KINDS, PLOTS, FEATURES), most_words=2),
    lambda: read(training(FILMS, KINDS, PLOTS, FEATURES), user_input="titles"),
]


@pytest.mark.parametrize("changed", range(len(CHANGES)))
def test_anything_else_is_read_anew(changed: int) -> None:
    def all_of(found: Content) -> tuple[object, ...]:
        parts = [part for part in (found.items, found.titles, found.users) if part is not None]
        return (*(part.rows.items.tolist() for part in parts), found.letters.items.tolist())

    before = all_of(read(training(FILMS, KINDS, PLOTS, FEATURES)))
    assert all_of(CHANGES[changed]()) != before
    assert all_of(read(training(FILMS, KINDS, PLOTS, FEATURES))) == before


# Real data


def test_movielens_has_texts_of_films_and_features_of_users(real_data: Callable[..., None]) -> None:
    real_data("ml-100k", "u.data", "ml-100k.inter")
    data = api.load("ml-100k")
    found = read(splits.split(data, "temporal", 0.2, seed=0).training(), "words", 1100)
    assert (len(items_of(found)), len(found.titles), len(users_of(found))) == (
        data.n_items,
        data.n_items,
        943,
    )
    assert data.item_texts is not None
    titles = data.item_texts.tolist()
    # RecBole's copy has the year in a column of its own.
    year = ["1995"] if "Toy Story (1995)" in titles else []
    film = titles.index("Toy Story (1995)" if year else "Toy Story")
    title = spelt(["toy", "story", *year], 1100)
    assert words_in(found.titles, found)[film] == title
    assert words_in(items_of(found), found)[film][: len(title)] == title
    kinds = sorted(words_in(items_of(found), found)[film][len(title) :])
    assert kinds == sorted(spelt(["animation", "children", "s", "comedy"], 1100))
    assert (items_of(found).rows.counts > 0).all()
    assert (users_of(found).rows.counts == len(data.user_features)).all()
