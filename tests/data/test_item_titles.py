"""Titles from files of items: separators, encodings, headers, and which columns are guessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.data.item_titles import read_titles
from coterie.errors import DataError, UnknownName

IDS = np.array(["034", "7", "9"], dtype=object)
BOOKS = [
    ("isbn;author;Book-Title\n034;Ann;Été\n7;Bo;Two, three\n", "latin-1"),
    ('isbn,author,Book-Title\n034,Ann,Été\n7,Bo,"Two, three"\n', "utf-8"),
    ("isbn\tgenre\tBook-Title\r\n034\tx\tÉté\r\n7\tx\tTwo, three\r\n", "utf-8-sig"),
    ("034|1995|Été\n7|1996|Two, three\n", "latin-1"),
    ("034|Été|http://a.b/Ete-and-more\n7|Two, three|http://a.b/Two-and-three\n", "latin-1"),
]


@pytest.mark.parametrize(("text", "encoding"), BOOKS)
def test_columns_are_guessed(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "books"
    path.write_bytes(text.encode(encoding))
    assert read_titles(path, IDS).tolist() == ["Été", "Two, three", ""]


def test_whole_numbers_are_found_by_their_text(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("id,name\n7,seven\n")
    assert read_titles(path, np.array([7, 8])).tolist() == ["seven", ""]


def test_columns_can_be_named_or_numbered(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("id,old,title,author\n1,7,seven,Ann\n")
    assert read_titles(path, IDS, "old", "author").tolist() == ["", "Ann", ""]
    assert read_titles(path, IDS, "2", "4").tolist() == ["", "Ann", ""]
    with pytest.raises(UnknownName, match=r"column.*'authr'.*items.csv"):
        read_titles(path, IDS, None, "authr")


def test_a_file_of_other_items_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("id,title\n1,one\n2,two\n")
    with pytest.raises(DataError, match=r"'id' has none of the run's 3 items; .*such as 034"):
        read_titles(path, IDS)


@pytest.mark.parametrize(
    ("text", "error"), [("", "is empty"), ("id\n7\n", "has one column, 'id'; expected")]
)
def test_a_file_without_titles_is_an_error(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "items.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=error):
        read_titles(path, IDS)


def test_parquet_has_titles_too(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "items.parquet"
    pd.DataFrame({"n": [1, 2], "item": [7, 9], "name": ["seven", None]}).to_parquet(path)
    assert read_titles(path, IDS).tolist() == ["", "seven", ""]
