"""Letter trigrams against a twin that hashes piece by piece, bags against Counters, and rows of any length against lists."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product
from string import ascii_lowercase

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from coterie.core import streams
from coterie.data import text as texts
from coterie.data.text import STOP_WORDS, Ragged
from coterie.types import Floats, Rows

any_letter = st.characters(exclude_categories=())  # lone surrogates too: files hold them
any_word = st.text(any_letter, max_size=8)
any_texts = st.lists(st.lists(any_word, max_size=6), max_size=6)
numbers_of_inputs = st.integers(1, 3000)


def input_of(piece: str, n_inputs: int) -> int:
    """The slow twin: three letters of 21 bits, mixed; the upper half of that as a share of the inputs."""
    a, b, c = map(ord, piece)
    return (streams.mix(a << 42 | b << 21 | c) >> 32) * n_inputs >> 32


def inputs_of(word: str, n_inputs: int) -> list[int]:
    marked = f"#{word}#"
    return [input_of(marked[k : k + 3], n_inputs) for k in range(len(word))]


def lists(rows: Rows) -> list[list[int]]:
    return [rows.of(k).tolist() for k in range(len(rows.counts))]


def weighted(ragged: Ragged) -> list[list[tuple[int, float]]]:
    ends = ragged.rows.offsets.tolist()
    entries = list(zip(ragged.rows.items.tolist(), ragged.weights.tolist(), strict=True))
    return [entries[first:last] for first, last in pairwise(ends)]


# Words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Toy Story (1995)", ["toy", "story", "1995"]),
        ("  Léon: The Professional...  ", ["léon", "the", "professional"]),
        ("ВОЙНА и мир", ["война", "и", "мир"]),
        ("東京物語、1953", ["東京物語", "1953"]),
        (
            "𐐀𐐁 😀 𐐂",
            ["𐐨𐐩", "𐐪"],
        ),  # Deseret lies beyond the first 65,536 letters, and has lower case
        ("one\ntwo\tthree\x00four", ["one", "two", "three", "four"]),
        ("?!", []),
        ("", []),
    ],
)
def test_words_are_letters_and_digits_in_a_row(text: str, words: list[str]) -> None:
    assert texts.words_of([text]) == [words]


def test_words_to_leave_out_are_left_out_in_any_case_and_as_a_whole() -> None:
    found = texts.words_of(["The theory OF the Offer", "Of the"], frozenset({"the", "of"}))
    assert found == [["theory", "offer"], []]


def test_stop_words_are_words_as_they_are_read() -> None:
    """Else they would never be met."""
    assert texts.words_of(sorted(STOP_WORDS)) == [[word] for word in sorted(STOP_WORDS)]
    assert texts.words_of(sorted(STOP_WORDS), STOP_WORDS) == [[] for _ in STOP_WORDS]


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.text(any_letter), max_size=5), st.frozensets(st.sampled_from(["a", "b", "0", "é"]))
)
def test_every_text_has_its_words_whatever_it_is_made_of(
    several: list[str], without: frozenset[str]
) -> None:
    together = texts.words_of(several, without)
    assert together == [texts.words_of([text], without)[0] for text in several]
    assert together == [[w for w in words if w not in without] for words in texts.words_of(several)]
    assert all(word for words in together for word in words)


# Trigrams


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("cat", ["#ca", "cat", "at#"]),
        ("a", ["#a#"]),
        ("at", ["#at", "at#"]),
        ("", []),
        ("1995", ["#19", "199", "995", "95#"]),
        ("été", ["#ét", "été", "té#"]),
        ("𐐨😀", ["#𐐨😀", "𐐨😀#"]),
        ("\U0010ffff", ["#\U0010ffff#"]),
        ("\ud800", ["#\ud800#"]),
        ("#", ["###"]),
    ],
)
def test_a_word_is_cut_into_as_many_pieces_as_it_has_letters(word: str, pieces: list[str]) -> None:
    for n_inputs in (1, 7, 1100, 1 << 20):
        found = texts.trigrams([word], n_inputs)
        assert found.offsets.tolist() == [0, len(pieces)]
        assert found.items.tolist() == [input_of(piece, n_inputs) for piece in pieces]


def test_pieces_switch_on_the_same_inputs_on_every_machine_and_in_every_version() -> None:
    """Frozen: a tower of last year reads with these."""
    assert texts.trigrams(["cat", "𐐨"], 1100).items.tolist() == [116, 818, 274, 915]
    assert texts.trigrams(["cat"], 1 << 20).items.tolist() == [110593, 779993, 261708]


@settings(deadline=None, max_examples=300)
@given(st.lists(any_word, max_size=12), numbers_of_inputs)
def test_trigrams_equal_the_slow_twin(words: list[str], n_inputs: int) -> None:
    found = texts.trigrams(words, n_inputs)
    assert lists(found) == [inputs_of(word, n_inputs) for word in words]
    assert found.items.dtype == np.int32
    assert found.offsets.dtype == np.int64
    assert ((found.items >= 0) & (found.items < n_inputs)).all()


def test_no_words_have_no_letters() -> None:
    found = texts.trigrams([], 1100)
    assert (found.offsets.tolist(), found.items.tolist()) == ([0], [])


def test_every_input_is_as_likely() -> None:
    """All pieces of three letters, over 100 inputs: some 176 each."""
    inner = [
        inputs[1]
        for inputs in lists(
            texts.trigrams(["".join(p) for p in product(ascii_lowercase, repeat=3)], 100)
        )
    ]
    assert chisquare(np.bincount(inner, minlength=100)).pvalue > 1e-3


def test_the_order_of_letters_matters() -> None:
    found = {tuple(sorted(row)) for row in lists(texts.trigrams(["tar", "rat", "art"], 1 << 20))}
    assert len(found) == 3


# Texts as numbers of words


@settings(deadline=None, max_examples=200)
@given(any_texts, numbers_of_inputs)
def test_texts_are_read_back_word_by_word(several: list[list[str]], n_inputs: int) -> None:
    read = texts.read(several, n_inputs)
    spelt = [[read.letters.of(word).tolist() for word in row] for row in lists(read.texts)]
    assert spelt == [[inputs_of(word, n_inputs) for word in words] for words in several]
    assert len(read.letters.counts) == len({word for words in several for word in words})


def test_a_word_has_one_number_wherever_it_stands() -> None:
    read = texts.read([["the", "cat", "the"], [], ["cat"], ["dog", "the"]], 1100)
    assert lists(read.texts) == [[0, 1, 0], [], [1], [2, 0]]


@settings(deadline=None, max_examples=150)
@given(any_texts, any_texts, st.lists(any_word, min_size=1, max_size=6))
def test_a_text_reads_alike_whatever_stands_beside_it(
    before: list[list[str]], after: list[list[str]], text: list[str]
) -> None:
    only_node = texts.read([text], 1100)
    among = texts.read([*before, text, *after], 1100)
    here = among.texts.of(len(before))
    assert [only_node.letters.of(w).tolist() for w in only_node.texts.of(0)] == [
        among.letters.of(w).tolist() for w in here
    ]
    assert weighted(texts.bags(among))[len(before)] == weighted(texts.bags(only_node))[0]


# Bags


def test_a_bag_by_hand() -> None:
    """#ca cat at#, #ca cat ats ts#: two pieces stand in both words."""
    read = texts.read([["cat", "cats"]], 1 << 20)
    once = ["at#", "ats", "ts#"]
    twice = ["#ca", "cat"]
    expected = [(input_of(p, 1 << 20), 1.0) for p in once] + [
        (input_of(p, 1 << 20), 2.0) for p in twice
    ]
    assert weighted(texts.bags(read)) == [sorted(expected)]


@settings(deadline=None, max_examples=300)
@given(any_texts, st.integers(1, 40))
def test_bags_equal_counters(several: list[list[str]], n_inputs: int) -> None:
    """With few inputs, pieces fall together and are added up."""
    bags = texts.bags(texts.read(several, n_inputs))
    counted = [Counter(i for word in words for i in inputs_of(word, n_inputs)) for words in several]
    assert weighted(bags) == [sorted(counter.items()) for counter in counted]
    assert len(bags) == len(several)
    dtypes = [array.dtype.name for array in (bags.rows.offsets, bags.rows.items, bags.weights)]
    assert dtypes == ["int64", "int32", "float32"]


def test_empty_texts_have_empty_bags() -> None:
    assert weighted(texts.bags(texts.read([], 10))) == []
    assert weighted(texts.bags(texts.read([[], []], 10))) == [[], []]
    assert [
        len(bag) for bag in weighted(texts.bags(texts.read([[], ["a"], [""], ["b"], []], 1 << 20)))
    ] == [
        0,
        1,
        0,
        1,
        0,
    ]


# Rows of any length


def ragged(rows: list[list[int]]) -> Ragged:
    """Every entry weighs its place, so that a mixed-up weight shows."""
    flat = [entry for row in rows for entry in row]
    weights: Floats = np.arange(len(flat), dtype=np.float32)
    return Ragged(
        Rows(np.cumsum([0, *map(len, rows)], dtype=np.int64), np.array(flat, np.int32)), weights
    )


some_rows = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6)


@settings(deadline=None, max_examples=200)
@given(some_rows, st.data())
def test_taking_rows_equals_plain_lists(rows: list[list[int]], data: st.DataObject) -> None:
    which = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    whole = ragged(rows)
    for numbers in (np.array(which, np.int32), np.array(which, np.int64)):
        taken = whole.take(numbers)
        assert weighted(taken) == [weighted(whole)[k] for k in which]
        assert len(taken) == len(which)


@settings(deadline=None, max_examples=200)
@given(some_rows, st.integers(0, 4), st.data())
def test_joining_rows_equals_plain_lists(
    rows: list[list[int]], m: int, data: st.DataObject
) -> None:
    """-1 stands anywhere, and for everything."""
    one = st.lists(st.integers(-1, len(rows) - 1), min_size=m, max_size=m)
    which = data.draw(st.lists(one, max_size=6))
    whole = ragged(rows)
    for numbers in (np.array(which, np.int32), np.array(which, np.int64)):
        joined = whole.joined(numbers.reshape(len(which), m))
        assert weighted(joined) == [
            [e for k in row if k >= 0 for e in weighted(whole)[k]] for row in which
        ]
        assert len(joined) == len(which)


def test_joining_by_hand() -> None:
    whole = ragged([[5, 6], [], [7]])
    joined = whole.joined(np.array([[2, 0, -1], [-1, -1, -1], [1, -1, 2], [0, 0, 1]], np.int32))
    assert weighted(joined) == [
        [(7, 2.0), (5, 0.0), (6, 1.0)],
        [],
        [(7, 2.0)],
        [(5, 0.0), (6, 1.0), (5, 0.0), (6, 1.0)],
    ]
