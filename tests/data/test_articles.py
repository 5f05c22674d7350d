"""Article clicks: interactions, titles and bodies, and the errors of both files."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie import api
from coterie.data import articles
from coterie.data.datasets import DATASETS, load
from coterie.data.fetch import find_local
from coterie.data.filters import Filters
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.errors import DataError, FetchError

CLICKS = (
    ",article_id,title,email\n"
    '0,1430.0,"using pixiedust for fast, easy analysis",bob\n'
    "1,9.0,a tour,ann\n"
    "2,20.0,maps,\n"
    "3,9.0,a tour,bob\n"
    "4,9.0,a tour,ann\n"
    '5,887.0,"502    forgetting the past to learn ...\nName: title, dtype: object",ann\n'
    '6,1277.0,"54174    detect sensors in r...\nName: title, dtype: object",bob\n'
)
ROWS = [("ann", "9"), ("ann", "887"), ("bob", "9"), ("bob", "1277"), ("bob", "1430")]
MERGED = "1 repeated user-item pairs merged, the last row of each kept"
WITHOUT_USER = "1 click without a user (empty email) dropped"
HEADER = ",doc_body,doc_description,doc_full_name,doc_status,article_id\n"
TEXTS = HEADER + (
    '0,"Sign in\n\nA ""dramatic"" tour,\nthrough Python.\n",about tours,A Tour,Live,9\n'
    "1, ,only a summary,Forgetting the Past to Learn the Future,Live,887\n"
    "2,another body,another summary,A Tour Again,Live,9\n"
    "3,nobody clicked this,,Unread,Live,5\n"
)
TITLES = [
    "a tour",
    "forgetting the past to learn the future",
    "detect sensors in r",
    "using pixiedust for fast, easy analysis",
]
BODIES = ['Sign in\n\nA "dramatic" tour,\nthrough Python.', "only a summary", "", ""]
REMEDY = "Fix the row or pass --skip-bad-rows."


def rows_of(data: Interactions) -> list[tuple[str, str]]:
    return list(zip(data.user_ids[data.users], data.item_ids[data.items], strict=True))


@pytest.fixture
def folder(write) -> Callable[..., Path]:
    """`folder(clicks, texts)` writes both files, or the clicks alone, and returns their folder."""

    def make(clicks: str | bytes = CLICKS, texts: str | bytes | None = TEXTS) -> Path:
        if texts is not None:
            write(f"watson-articles/{articles.ARTICLES}", texts)
        return write(f"watson-articles/{articles.CLICKS}", clicks).parent

    return make


# ---- contents


def test_articles_have_whole_numbers_titles_and_bodies(folder) -> None:
    data = read(folder())
    assert rows_of(data) == ROWS
    assert data.item_ids.tolist() == ["9", "887", "1277", "1430"]
    assert data.item_texts.tolist() == TITLES
    assert data.item_bodies.tolist() == BODIES
    assert (data.ratings, data.times, data.item_categories, data.user_features) == (
        None,
        None,
        None,
        {},
    )


def test_clicks_without_a_user_are_dropped_and_repeated_ones_counted(folder) -> None:
    data = read(folder())
    assert data.notes == (MERGED, WITHOUT_USER)
    assert data.user_records.tolist() == [3, 3]
    assert "20" not in data.item_ids
    two = read(folder(CLICKS + "7,9.0,a tour,  \n", TEXTS))
    assert two.notes == (MERGED, "2 clicks without a user (empty email) dropped")
    none = read(folder(CLICKS.replace("2,20.0,maps,\n", ""), TEXTS))
    assert none.notes == (MERGED,)


def test_the_same_comes_out_of_every_packing(write, tmp_path: Path) -> None:
    write(f"plain/{articles.CLICKS}", CLICKS)
    write(f"plain/{articles.ARTICLES}", TEXTS)
    write(f"packed/{articles.CLICKS}.gz", gzip.compress(CLICKS.encode()))
    write(f"packed/{articles.ARTICLES}.gz", gzip.compress(TEXTS.encode()))
    write(
        f"mixed/{articles.CLICKS}",
        "\ufeff" + CLICKS.replace("\n", "\r\n").replace("learn ...\r\n", "learn ...\n"),
    )
    write(f"mixed/{articles.ARTICLES}.gz", gzip.compress(TEXTS.encode()))
    with zipfile.ZipFile(tmp_path / "anything.zip", "w") as archive:
        archive.writestr(f"data/{articles.CLICKS}", CLICKS)
        archive.writestr(f"data/{articles.ARTICLES}.gz", gzip.compress(TEXTS.encode()))
    # The articles are read from the same folder.
    single = tmp_path / "plain" / articles.CLICKS
    for place in (
        *(tmp_path / name for name in ("plain", "packed", "mixed", "anything.zip")),
        single,
    ):
        data = read(place)
        assert (rows_of(data), data.item_texts.tolist(), data.item_bodies.tolist()) == (
            ROWS,
            TITLES,
            BODIES,
        ), place


def test_without_its_articles_there_are_titles_only_and_a_note(folder) -> None:
    data = read(folder(CLICKS, None))
    assert rows_of(data) == ROWS
    assert data.item_texts.tolist() == ["a tour", "forgetting the past to learn", *TITLES[2:]]
    assert data.item_bodies is None
    assert (
        data.notes[-1] == f"articles have no bodies: {articles.ARTICLES} is not next to the clicks"
    )


@pytest.mark.parametrize(
    ("told", "name", "title"),
    [
        ("a tour", "Another Name", "a tour"),
        ("", "A Tour", "a tour"),
        ("", "", ""),
        ("502    the past ...\nName: title, dtype: object", "The Past and Now", "the past and now"),
        ("502    the past...\r\nName: title, dtype: object", "", "the past"),
        ("7    short\nName: title, dtype: object", "", "short"),
        ("Name: title, dtype: object", "", "Name: title, dtype: object"),
        ("what dtype: object means", "", "what dtype: object means"),
        ("10 visualizations ...", "", "10 visualizations ..."),
    ],
)
def test_a_title_that_is_a_print_gives_way_to_the_name(
    told: str, name: str, title: str, folder
) -> None:
    quoted = told.replace('"', '""')
    data = read(
        folder(
            f',article_id,title,email\n0,9.0,"{quoted}",ann\n1,4.0,b,ann\n',
            HEADER + f"0,body,,{name},Live,9\n",
        )
    )
    assert data.item_texts.tolist() == ["b", title]


def test_without_titles_the_names_serve(folder) -> None:
    data = read(folder("article_id,email\n9.0,ann\n1430.0,ann\n", TEXTS))
    assert data.item_texts.tolist() == ["a tour", ""]
    assert read(folder("article_id,email\n1430.0,ann\n", TEXTS)).item_texts is None


def test_an_empty_title_does_not_hide_one_that_stands_elsewhere(folder) -> None:
    data = read(folder(",article_id,title,email\n0,9.0,the tour,ann\n1,9.0,,bob\n", TEXTS))
    assert data.item_texts.tolist() == ["the tour"]


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1430.0", "1430"),
        ("1430", "1430"),
        (" 7.00 ", "7"),
        ("0.0", "0"),
        ("007.0", "7"),
        ("3.", "3"),
    ],
)
def test_a_number_is_the_same_article_however_it_is_written(cell: str, number: str, folder) -> None:
    clicks = f",article_id,title,email\n0,{cell},a,ann\n"
    texts = HEADER + f"0,the body,,A,Live,{cell}\n"
    data = read(folder(clicks, texts))
    assert (data.item_ids.tolist(), data.item_bodies.tolist()) == ([number], ["the body"])


def test_a_body_may_be_longer_than_csv_takes_and_the_limit_stays_as_it_was(folder) -> None:
    limit = csv.field_size_limit()
    body = "a long, long article.\n" * 20_000
    assert len(body) > 3 * limit
    data = read(folder(CLICKS, HEADER + f'0,"{body}",,A Tour,Live,9\n'))
    assert data.item_bodies[0] == body.strip()
    assert csv.field_size_limit() == limit
    with pytest.raises(DataError):
        read(folder(CLICKS, HEADER + f'0,"{body}'))
    assert csv.field_size_limit() == limit


TITLE_LETTERS = st.text(alphabet="ab ,\"'\n\r;ü\u4e2d", max_size=8)
CLICK = st.tuples(
    st.integers(0, 12),
    st.sampled_from([".0", "", ".00"]),
    st.sampled_from(["", "u", "v", "w", "ü"]),
)
ARTICLE = st.tuples(st.integers(0, 12), TITLE_LETTERS, TITLE_LETTERS)


def written(rows: list[list[str]]) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue()


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    clicks=st.lists(CLICK, min_size=1, max_size=30).filter(
        lambda rows: any(user for *_, user in rows)
    ),
    titles=st.lists(TITLE_LETTERS, min_size=13, max_size=13),
    described=st.lists(ARTICLE, max_size=10),
)
def test_whatever_is_written_is_read(clicks, titles, described, folder) -> None:
    """Equals a simple reference for any titles and bodies that csv can write."""
    click_rows = [["", "article_id", "title", "email"]]
    click_rows += [
        [str(n), f"{item}{end}", titles[item], user] for n, (item, end, user) in enumerate(clicks)
    ]
    article_rows = [HEADER.strip().split(",")]
    article_rows += [
        [str(n), body, summary, "", "Live", str(item)]
        for n, (item, body, summary) in enumerate(described)
    ]
    data = read(folder(written(click_rows), written(article_rows)))

    with_user = [(user, str(item)) for item, _, user in clicks if user]
    assert set(rows_of(data)) == set(with_user)
    assert len(data) == len(set(with_user))
    assert dict(zip(data.user_ids, data.user_records.tolist(), strict=True)) == Counter(
        user for user, _ in with_user
    )
    assert any("without a user" in note for note in data.notes) == (len(with_user) < len(clicks))
    bodies: dict[str, str] = {}
    for item, body, summary in described:
        bodies.setdefault(str(item), body.strip() or summary.strip())
    for place, item in enumerate(data.item_ids):
        assert (data.item_texts is None and not titles[int(item)].strip()) or (
            data.item_texts is not None and data.item_texts[place] == titles[int(item)].strip()
        )
        assert (data.item_bodies[place] if described else "") == bodies.get(item, "")


# ---- errors

NOT_WHOLE = "expected a whole number"
BAD_CLICKS = {
    "a word": (b"7,nine,x,ann", "column 'article_id' is 'nine'", NOT_WHOLE),
    "no article": (b"7,,x,ann", "column 'article_id' is ''", NOT_WHOLE),
    "half an article": (b"7,9.5,x,ann", "column 'article_id' is '9.5'", NOT_WHOLE),
    "a negative number": (b"7,-9.0,x,ann", "column 'article_id' is '-9.0'", NOT_WHOLE),
    "not a number": (b"7,nan,x,ann", "column 'article_id' is 'nan'", NOT_WHOLE),
    "digits of another script": (
        "7,\u0669,x,ann".encode(),
        "column 'article_id' is '\u0669'",
        NOT_WHOLE,
    ),
    "too few cells": (b"7,9.0,ann", "3 columns", "expected 4 columns"),
    "too many cells": (b"7,9.0,a, tour,ann", "5 columns", "expected 4 columns"),
    "a title in Latin-1": (
        b"7,9.0,caf\xe9,ann",
        "column 'title' is 'caf\\udce9'",
        "expected UTF-8 text",
    ),
    "a user in Latin-1": (
        b"7,9.0,x,andr\xe9",
        "column 'email' is 'andr\\udce9'",
        "expected UTF-8 text",
    ),
}


@pytest.mark.parametrize(("row", "what", "rule"), BAD_CLICKS.values(), ids=BAD_CLICKS)
def test_a_bad_click_is_named_and_can_be_skipped(
    row: bytes, what: str, rule: str, folder, refused
) -> None:
    """The rows above take ten lines: two titles span two lines."""
    place = folder(CLICKS.encode() + row + b"\n" + b"8,8.0,y,eve\n")
    assert refused(place) == f"{place / articles.CLICKS}:11: {what}; {rule}. {REMEDY}"
    data = read(place, ReadOptions(skip_bad_rows=True))
    assert rows_of(data) == [*ROWS, ("eve", "8")]
    assert data.notes == (f"1 bad row skipped: {rule} (line 11)", MERGED, WITHOUT_USER)


BAD_ARTICLES = {
    "a word": (b"4,body,,Nine,Live,nine", "column 'article_id' is 'nine'", NOT_WHOLE),
    "no article": (b"4,body,,Nine,Live,", "column 'article_id' is ''", NOT_WHOLE),
    "too few cells": (b"4,body,Live,1430", "4 columns", "expected 6 columns"),
    "a body in Latin-1": (
        b"4,caf\xe9,,Nine,Live,1430",
        "column 'doc_body' is 'caf\\udce9'",
        "expected UTF-8 text",
    ),
    "a name in Latin-1": (
        b"4,x,,caf\xe9,Live,1430",
        "column 'doc_full_name' is 'caf\\udce9'",
        "expected UTF-8 text",
    ),
    "a summary in Latin-1": (
        b"4,x,\xe9,X,Live,1430",
        "column 'doc_description' is '\\udce9'",
        "expected UTF-8 text",
    ),
}


@pytest.mark.parametrize(("row", "what", "rule"), BAD_ARTICLES.values(), ids=BAD_ARTICLES)
def test_a_bad_article_is_named_and_can_be_skipped(
    row: bytes, what: str, rule: str, folder, refused
) -> None:
    """The rows above take nine lines: one body spans five."""
    place = folder(CLICKS, TEXTS.encode() + row + b"\n" + b"5,fine,,Fine,Live,1277\n")
    assert refused(place) == f"{place / articles.ARTICLES}:10: {what}; {rule}. {REMEDY}"
    data = read(place, ReadOptions(skip_bad_rows=True))
    assert data.item_bodies.tolist() == [*BODIES[:2], "fine", ""]
    assert data.notes == (MERGED, WITHOUT_USER, f"1 bad row of {articles.ARTICLES} skipped: {rule}")


def test_of_several_bad_articles_the_first_is_named_and_all_are_counted(folder, refused) -> None:
    place = folder(
        CLICKS, TEXTS.encode() + b"4,\xe9,,X,Live,1\n5,body,,X,Live,x\n6,body,,X,Live,y\n"
    )
    assert refused(place).startswith(f"{place / articles.ARTICLES}:10: column 'doc_body' is")
    notes = read(place, ReadOptions(skip_bad_rows=True)).notes
    assert f"2 bad rows of {articles.ARTICLES} skipped: {NOT_WHOLE}" in notes
    assert f"1 bad row of {articles.ARTICLES} skipped: expected UTF-8 text" in notes


@pytest.mark.parametrize("column", articles.ARTICLE_COLUMNS)
def test_articles_without_a_column_are_refused(column: str, folder, refused) -> None:
    message = refused(folder(CLICKS, TEXTS.replace(column, "other")))
    assert f"{articles.ARTICLES}:1: there is no column {column!r}; the file has '', " in message
    assert "as it was distributed" in message


@pytest.mark.parametrize("texts", ["", "\n\n"])
def test_an_empty_file_is_named(texts: str, folder, refused) -> None:
    remedy = "expected a header and rows below it. Check that it is the right file."
    place = folder(CLICKS, texts)
    assert refused(place) == f"{place / articles.ARTICLES}: is empty; {remedy}"
    place = folder(texts, TEXTS)
    assert refused(place) == f"{place / articles.CLICKS}: is empty; {remedy}"


def test_articles_that_are_a_header_alone_describe_nothing(folder) -> None:
    data = read(folder(CLICKS, HEADER))
    assert (rows_of(data), data.item_bodies) == (ROWS, None)


def test_only_clicks_without_a_user_are_no_interactions(folder, refused) -> None:
    message = refused(folder(",article_id,title,email\n0,9.0,a,\n"))
    assert "contains no interactions; expected at least one row of user_id, item_id." in message


def test_a_stray_quote_is_named_by_where_its_row_began(folder, refused) -> None:
    place = folder(CLICKS + '7,9.0,"a tour,ann\n8,9.0,a tour,ann\n')
    assert refused(place).startswith(
        f"{place / articles.CLICKS}:11: unexpected end of data; expected fields separated by ','"
    )
    place = folder(CLICKS, TEXTS + '4,"body,,X,Live,1430\n')
    assert refused(place).startswith(f"{place / articles.ARTICLES}:10: unexpected end of data;")
    place = folder(CLICKS.replace(",article_id", '"article_id', 1))
    assert refused(place).startswith(
        f"{place / articles.CLICKS}:1: the header '\"article_id,title,email' cannot be split"
    )


@pytest.mark.parametrize("name", [articles.CLICKS, articles.ARTICLES])
def test_a_damaged_file_is_named(name: str, write, refused) -> None:
    for file, text in ((articles.CLICKS, CLICKS), (articles.ARTICLES, TEXTS)):
        packed = gzip.compress(text.encode())
        path = write(f"cut/{file}.gz", packed[:-20] if file == name else packed)
    assert refused(path.parent).startswith(f"{path.parent / name}.gz: is damaged or cut short")


def test_a_bad_row_inside_a_zip_is_named_by_its_file(write, refused) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(articles.CLICKS, CLICKS)
        archive.writestr(articles.ARTICLES, TEXTS + "4,body,,X,Live,x\n")
    path = write("articles.zip", buffer.getvalue())
    assert refused(path).startswith(f"{path / articles.ARTICLES}:10: column 'article_id' is 'x'")


# ---- options


def test_columns_may_be_called_otherwise(folder, refused) -> None:
    place = folder(CLICKS.replace("email", "reader"))
    assert rows_of(read(place, ReadOptions(columns={"user_id": "reader"}))) == ROWS
    assert (
        "there is no column 'email' for user_id; the file has '', 'article_id', 'title', 'reader'."
        in refused(place)
    )
    timed = CLICKS.replace("title,", "when,").replace("a tour", "5").replace("maps", "6")
    kept = timed.split('5,887.0,"')[0].replace(
        '"using pixiedust for fast, easy analysis"', "2000-01-01"
    )
    data = read(folder(kept), ReadOptions(columns={"timestamp": "when"}))
    assert (rows_of(data), data.times.tolist()) == (
        [("ann", "9"), ("bob", "9"), ("bob", "1430")],
        [5, 5, 946_684_800],
    )


def test_a_repeated_pair_can_be_refused_or_the_oldest_kept(folder, refused) -> None:
    place = folder()
    assert refused(place, duplicates="error").startswith(
        f"{place / articles.CLICKS}:6: user 'ann' and item '9' are already on line 3; "
        "expected distinct pairs."
    )
    assert read(place, ReadOptions(duplicates="oldest")).notes[0] == MERGED.replace(
        "last row", "first row"
    )


def test_another_file_of_that_name_is_read_as_a_delimited_file(write) -> None:
    path = write(articles.CLICKS, "user_id;item_id;rating\nann;x;3\nbob;9.5;4\n")
    data = read(path)
    assert rows_of(data) == [("ann", "x"), ("bob", "9.5")]
    assert (data.ratings.tolist(), data.notes) == ([3.0, 4.0], ())


# ---- by name


def test_by_name_users_with_fewer_than_twenty_clicks_are_left_out(folder, monkeypatch) -> None:
    """Repeated clicks count: ann 20 on 20 articles, bob 20 on two, eve 19; 20 have no user."""
    clicks = [f"{item}.0,t{item},ann" for item in range(20)] + [
        f"{item % 2}.0,t{item % 2},bob" for item in range(20)
    ]
    clicks += [f"{item}.0,t{item},eve" for item in range(3, 22)] + ["21.0,t21,"] * 20
    place = folder("article_id,title,email\n" + "\n".join(clicks) + "\n")
    monkeypatch.setenv("COTERIE_DATA", str(place.parent))
    data = load("watson-articles")
    assert (data.name, data.user_ids.tolist(), len(data), data.n_items) == (
        "watson-articles",
        ["ann", "bob"],
        22,
        20,
    )
    assert data.item_bodies.tolist() == [
        BODIES[0] if item == 9 else "nobody clicked this" if item == 5 else "" for item in range(20)
    ]
    assert load("watson-articles", Filters()).user_ids.tolist() == ["ann", "bob", "eve"]


def test_by_name_a_fifth_is_held_out_and_ranked_among_ten_others_each(folder, monkeypatch) -> None:
    """Thirty users with twenty of three hundred articles each: four held out, sixteen trained."""
    rows = [f"{(7 * user + n) % 300}.0,t,reader{user}" for user in range(30) for n in range(20)]
    place = folder("article_id,title,email\n" + "\n".join(rows) + "\n", None)
    monkeypatch.setenv("COTERIE_DATA", str(place.parent))
    result = api.run("popular", "watson-articles").result
    assert (result["protocol"], result["tested_users"], result["users"]) == ("holdout-10", 30, 30)
    assert DATASETS["watson-articles"].protocol == "holdout-10"


def test_a_missing_dataset_is_an_error_that_names_its_files(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    with pytest.raises(FetchError) as caught:
        load("watson-articles")
    for part in (
        str(tmp_path / "watson-articles"),
        articles.CLICKS,
        articles.ARTICLES,
        "IBM Watson Studio",
    ):
        assert part in str(caught.value)


# ---- real data


@pytest.fixture
def real(real_data) -> Path:
    """The folder of the real files."""
    real_data("watson-articles", articles.CLICKS)
    place = find_local("watson-articles", (articles.CLICKS,))
    if place is None or not place.is_dir():
        pytest.skip("the dataset watson-articles is here, but not as a folder")
    return place


def plainly(place: Path, name: str) -> list[dict[str, str]]:
    """The rows as the csv module reads them."""
    path = place / f"{name}.gz" if (place / f"{name}.gz").exists() else place / name
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def test_the_real_clicks(real: Path) -> None:
    data = read(real)
    rows = plainly(real, articles.CLICKS)
    clicks = [(row["email"], str(int(float(row["article_id"])))) for row in rows if row["email"]]
    assert (data.n_users, data.n_items, len(data)) == (5_148, 714, 33_669)
    assert (len(rows), len(clicks), int(data.user_records.sum())) == (45_993, 45_976, 45_976)
    assert set(rows_of(data)) == set(clicks)
    assert data.times is None
    assert data.notes == (
        "12,307 repeated user-item pairs merged, the last row of each kept",
        "17 clicks without a user (empty email) dropped",
    )


def test_the_real_articles(real: Path) -> None:
    data = read(real)
    described: dict[str, dict[str, str]] = {}
    for row in plainly(real, articles.ARTICLES):
        described.setdefault(row["article_id"], row)
    titles = {
        str(int(float(row["article_id"]))): row["title"] for row in plainly(real, articles.CLICKS)
    }
    damaged = {item for item, title in titles.items() if "dtype: object" in title}
    assert (len(described), len(damaged), len(damaged & set(described))) == (1_051, 14, 13)
    assert sum(map(bool, data.item_bodies)) == 437
    for item, text, body in zip(data.item_ids, data.item_texts, data.item_bodies, strict=True):
        assert body == (described[item]["doc_body"].strip() if item in described else "")
        assert text == (
            described[item]["doc_full_name"].strip().lower() if item in described else text
        )
        assert text == titles[item].strip() or item in damaged
    assert (
        data.item_texts[data.item_ids.tolist().index("1277")]
        == "detect potentially malfunctioning sensors in r"
    )
    assert all(data.item_texts)


def test_the_real_clicks_by_name(real: Path) -> None:
    """Users with twenty clicks or more, repeated ones included; distinct ones are fewer."""
    data = load("watson-articles")
    clicks = [
        (row["email"], row["article_id"]) for row in plainly(real, articles.CLICKS) if row["email"]
    ]
    per_user = Counter(user for user, _ in clicks)
    assert set(data.user_ids) == {user for user, n in per_user.items() if n >= 20}
    assert (data.name, data.n_users, data.n_items, len(data)) == (
        "watson-articles",
        602,
        642,
        16_558,
    )
    assert int(data.user_records.sum()) == 25_479
    assert sum(map(bool, data.item_bodies)) == 407
    per_user = Counter(user for user, _ in set(clicks))
    assert (
        sum(n >= 20 for n in per_user.values())
        == load("watson-articles", Filters(min_user_interactions=20)).n_users
        == 372
    )
