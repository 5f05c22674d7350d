"""Three raw files of users, from the file to a comparison: docs/own-data.md, five commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from calling import Done

from coterie.experiments import run_folder

Command = Callable[..., Done]

N_USERS = 40
N_ITEMS = 30
PER_USER = 8


def choices() -> list[tuple[int, int, int]]:
    """(user, item, number), where a user's items differ."""
    random = np.random.default_rng(0)
    return [
        (user, int(item), user * PER_USER + n)
        for user in range(N_USERS)
        for n, item in enumerate(random.choice(N_ITEMS, PER_USER, replace=False))
    ]


def write_music(folder: Path) -> Path:
    """Tabs, milliseconds in a column named utc, and a column that nobody needs."""
    rows = [f"u{u}\talbum {i}\tgood\t{1_500_000_000_000 + n * 86_400_000}" for u, i, n in choices()]
    path = folder / "music.tsv"
    path.write_text("\n".join(["user\talbum\treview\tutc", *rows, ""]))
    return path


def write_books(folder: Path) -> Path:
    """Semicolons, latin-1, quotes everywhere, an escaped quote, and a stray one on line 3."""
    names = {0: '\\"0210', 1: "02é"}
    rows = [f'"{u}";"{names.get(i, i)}";"{n % 11}"' for u, i, n in choices()]
    rows.insert(1, '"7";"1"2";"3"')
    path = folder / "books.csv"
    path.write_bytes("\n".join(['"User-ID";"ISBN";"Book-Rating"', *rows, ""]).encode("latin-1"))
    return path


def write_restaurants(folder: Path) -> Path:
    """Texts with separators, quotes and line ends; days as ISO 8601."""
    text = '"nice, but\nslow ""service"""'
    rows = [f"Ann {u},Place {i},{text},{n % 5 + 1},2020-0{n % 9 + 1}-01" for u, i, n in choices()]
    path = folder / "food.csv"
    path.write_text("\n".join(["Reviewer,Restaurant,Review,Rating,Date", *rows, ""]))
    return path


BOOKS = ("--encoding", "latin-1", "--skip-bad-rows")
FILES = {
    "music": (write_music, (), "timestamp is 'utc' (guessed)"),
    "books": (write_books, BOOKS, "item_id is 'ISBN' (guessed)"),
    "restaurants": (write_restaurants, (), "columns not used: 'Review'"),
}


@pytest.mark.parametrize("kind", FILES)
def test_from_a_raw_file_to_a_comparison(kind: str, coterie: Command, tmp_path: Path) -> None:
    write, options, said = FILES[kind]
    path = str(write(tmp_path))
    assert said in " ".join(coterie("data", "describe", path, *options).out.split())
    core = tmp_path / "core.csv"
    coterie("data", "filter", path, str(core), "--set", "core=2", *options)
    facts = json.loads(coterie("data", "describe", str(core), "--json").out)
    assert facts["users"] == N_USERS
    assert core.stat().st_mode & 0o777 == 0o600
    run = json.loads(coterie("run", "popular", "-d", str(core), "--json").out)
    assert run["metrics"]
    place = ("--cells", str(tmp_path / "cells"), "--out", str(tmp_path / "report"))
    shown = coterie("compare", "popular", "random", "-d", str(core), "--seeds", "2", *place)
    assert "popular" in shown.out


def test_a_run_says_which_columns_it_uses(coterie: Command, tmp_path: Path) -> None:
    done = coterie("run", "random", "-d", str(write_music(tmp_path)))
    said = " ".join(done.err.split())
    assert "columns not used: 'review'" in said
    assert "times: 'utc' has milliseconds since 1970, stored as whole seconds" in said


def test_facts_of_reading_are_given_as_json(coterie: Command, tmp_path: Path) -> None:
    path = str(write_books(tmp_path))
    facts = json.loads(coterie("data", "describe", path, *BOOKS, "--json").out)
    assert facts["rows"] == N_USERS * PER_USER + 1
    rule = "expected fields separated by ';', with quotes around whole fields"
    assert facts["skipped"] == [{"reason": rule, "rows": 1, "lines": [3]}]
    assert facts["columns"] == {
        "user_id": {"name": "User-ID", "guessed": True},
        "item_id": {"name": "ISBN", "guessed": True},
        "rating": {"name": "Book-Rating", "guessed": True},
    }


NOT_USED = "ratings are not used: every row counts as a positive (feedback=implicit)"


@pytest.mark.parametrize(
    "command",
    [
        ("data", "describe"),
        ("run", "popular", "-d"),
        ("compare", "popular", "random", "--seeds", "1", "-d"),
    ],
    ids=" ".join,
)
def test_ratings_that_are_not_used_are_said(
    command: tuple[str, ...], coterie: Command, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(write_restaurants(tmp_path))
    done = coterie(*command, path)
    said = " ".join((done.out + done.err).split())
    assert f"{NOT_USED}; min_rating=N leaves out lower ones" in said


@pytest.mark.parametrize("setting", ["feedback=explicit", "min_rating=3", "min_rating=0"])
def test_ratings_that_are_used_are_not_said_to_be_unused(
    setting: str, coterie: Command, tmp_path: Path
) -> None:
    done = coterie("data", "describe", str(write_restaurants(tmp_path)), "--set", setting)
    assert NOT_USED not in done.out
    assert ("interactions kept: rated at least" in done.out) == setting.startswith("min_rating")


def test_reports_say_how_the_data_was_read(coterie: Command, tmp_path: Path) -> None:
    data = ("-d", str(write_books(tmp_path)), *BOOKS)
    cells = ("--cells", str(tmp_path / "cells"))
    coterie("compare", "popular", "random", "--seeds", "1", *data, *cells, "--out", "compared")
    coterie("run", "popular", *data, "--out", "run")
    said = "item_id is 'ISBN' (guessed)"
    skipped = "skipped"
    for name in ("compared/comparison.json", "run/result.json"):
        reading = json.loads((tmp_path / name).read_text())["reading"]
        assert any(said in line for line in reading)
        assert any(skipped in line and "line 3" in line for line in reading), reading
    for name in ("compared/report.md", "compared/report.html", "run/report.md", "run/report.html"):
        text = unescape((tmp_path / name).read_text())
        assert "How the data was read" in text
        assert said in text
        assert skipped in text


def test_files_about_users_are_for_their_owner_only(coterie: Command, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    coterie("run", "userknn", "-d", str(write_music(tmp_path)), "--out", str(folder))
    private = {p.name for p in folder.iterdir() if p.suffix == ".npz"} | {"users.csv"}
    assert {"catalogue.npz", "model.npz"} <= private
    assert {(folder / name).stat().st_mode & 0o777 for name in private} == {0o600}
    assert run_folder.read_catalogue(folder).user_ids.shape == (N_USERS,)


def test_a_filtered_file_overwrites_nothing(coterie: Command, tmp_path: Path) -> None:
    path = write_music(tmp_path)
    done = coterie("data", "filter", str(path), str(path))
    assert "exists already; expected a new file" in done.error


def test_a_named_dataset_has_a_format_of_its_own(coterie: Command) -> None:
    done = coterie("run", "popular", "-d", "synthetic", "--delimiter", ";")
    assert done.error.endswith("Remove them.")
