"""Results as a table: figures in the right cells, and Markdown that parses with any name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import coterie
from coterie.experiments.finished_run import Run
from coterie.report.markdown import markdown
from coterie.report.page import page
from coterie.report.table import notes, shown, table

DATA = {"n_users": 60, "n_items": 90, "mean_interactions": 9}


@pytest.fixture(scope="module")
def popular() -> Run:
    return coterie.run("popular", **DATA)


@pytest.fixture(scope="module")
def holdout() -> Run:
    return coterie.run("random", protocol="holdout", **DATA)


def with_result(run: Run, **changes: Any) -> Run:
    return replace(run, result=run.result | changes)


def cells(line: str) -> list[str]:
    """The cells of a row, as GitHub reads it: split at pipes that are not escaped."""
    parts = re.split(r"(?<!\\)\|", line.strip())
    assert (parts[0], parts[-1]) == ("", "")
    return [part.strip().replace("\\|", "|") for part in parts[1:-1]]


def parsed(text: str) -> list[dict[str, str]]:
    """The rows of a Markdown table by column name; fails if it is not a valid table."""
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("|"))
    last = next(
        (n for n, line in enumerate(lines[first:], first) if not line.startswith("|")), len(lines)
    )
    header, rule, *rows = (cells(line) for line in lines[first:last])
    assert lines[first - 1] == ""
    assert all(re.fullmatch(r":?-{3,}:?", cell) for cell in rule)
    assert len(rule) == len(header)
    assert len(set(header)) == len(header)
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_every_figure_is_in_its_column(popular: Run) -> None:
    text = markdown([popular])
    (row,) = parsed(text)
    result = popular.result
    assert "## synthetic, loo-50\n" in text
    assert (row["run"], row["seed"], row["trained"]) == ("popular", "0", "1 step")
    for name in ("HR@10", "NDCG@10"):
        assert row[name] == f"{result['metrics'][name]:.4f}"
        assert row[f"{name} full"] == f"{result['full'][name]:.4f}"


def test_full_ranking_is_not_shown_twice(holdout: Run) -> None:
    (row,) = parsed(markdown([holdout]))
    assert not [name for name in row if name.endswith("full")]
    assert {"P@10", "R@10", "IC@10", "Gini@10"} <= row.keys()


def test_runs_with_different_metrics_leave_cells_empty(popular: Run) -> None:
    other = with_result(popular, headline=["MRR@10"])
    first, second = parsed(markdown([popular, other]))
    assert first["HR@10"]
    assert second["MRR@10"] == f"{popular.metrics['MRR@10']:.4f}"
    only_auc = {"AUC": popular.metrics["AUC"]}
    lacking = with_result(popular, metrics=only_auc, full=only_auc)
    assert parsed(markdown([popular, lacking]))[1]["HR@10"] == ""


@pytest.mark.parametrize(
    "name", ["a|b.csv", "|", "a\nb.csv", "<b>x</b>.csv", "a | b | c", "x\\|y", "`|`"]
)
def test_any_file_name_makes_a_table(popular: Run, name: str) -> None:
    odd = with_result(popular, dataset=name, algorithm=name)
    (row,) = parsed(markdown([odd]))
    assert row["run"] == " ".join(name.split())
    assert row["HR@10"] == f"{popular.metrics['HR@10']:.4f}"
    assert len(re.findall("^## ", markdown([odd, popular]), re.MULTILINE)) == 2


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("HR@10", 0.5, "0.5000"),
        ("HR@10", 0.0, "0.0000"),
        ("HR@10", 1.0, "1.0000"),
        ("Gini@10", 0.00035, "0.00035"),
        ("Gini@10", 0.0012, "0.0012"),
        ("IC@10", 21.0, "21"),
        ("IC@100", 12345.0, "12,345"),
    ],
)
def test_format_of_figures(name: str, value: float, text: str) -> None:
    assert shown(name, value) == text


def test_notes_have_what_a_reader_must_know(popular: Run) -> None:
    odd = with_result(
        popular,
        tested_users=1234,
        training_interactions=56789,
        users=2000,
        items=300,
        future_share=0.25,
    )
    text = " ".join(notes(odd))
    for part in ("1,234 users", "56,789 interactions", "2,000 users", "300 items", "25.0%"):
        assert part in text
    assert "as_published" not in text
    assert "as_published" in " ".join(notes(with_result(popular, as_published=True)))


def test_notes_on_disclosure_rates(popular: Run) -> None:
    own = [
        {"from": 0.0, "to": 0.0, "users": 3, "HR@10": 0.25},
        {"from": 0.9, "to": 1.0, "users": 1200, "HR@10": 0.5},
    ]
    mixed = replace(
        popular,
        result=popular.result | {"settings": {"disclosure": "beta(1, 2)"}, "by_disclosure": own},
    )
    text = " ".join(notes(mixed))
    assert "pi = beta(1, 2); pi is a disclosure rate, not a privacy guarantee" in text
    groups = "0: 0.2500 (3), 0.9 to 1: 0.5000 (1,200)."
    assert f"HR@10 by the users' final disclosure rate: {groups}" in text
    assert "guarantee" not in " ".join(notes(popular))


def test_no_note_on_leakage_without_timestamps(popular: Run) -> None:
    assert "leakage" not in " ".join(notes(with_result(popular, future_share=None)))


def test_leaky_run_is_marked_beside_an_honest_one(popular: Run) -> None:
    text = markdown([popular, with_result(popular, algorithm="leaky", as_published=True)])
    marked = [line for line in text.splitlines() if "as_published" in line]
    assert len(marked) == 1
    assert "leaky" in marked[0]
    assert "popular" not in marked[0]


def test_header_and_rows_have_one_length(popular: Run, holdout: Run) -> None:
    header, rows, _ = table([popular, holdout])
    assert {len(row) for row in rows} == {len(header)}


IN_THE_CLEAR = {
    "fedslim": "its whole history",
    "fedease": "its whole history",
    "fedals": "its whole history, and its vector",
}


@pytest.mark.parametrize(("name", "received"), IN_THE_CLEAR.items())
def test_a_run_in_the_clear_says_that_the_server_receives_histories(
    name: str, received: str
) -> None:
    run = coterie.run(name, rounds=1, **DATA)
    sentence = f"Without secure aggregation the server received of every client: {received} ("
    assert any(line.startswith(sentence) for line in notes(run))
    assert sentence in markdown([run])
    assert sentence in page([run])


def test_a_centralised_run_has_no_server_to_speak_of(popular: Run) -> None:
    assert not any("secure aggregation" in line.lower() for line in notes(popular))


def test_sums_that_reveal_histories_are_not_called_nothing(popular: Run) -> None:
    revealed = with_result(popular, in_the_clear=[], in_sums=["an item gives a history away"])
    lines = [line for line in notes(revealed) if "nothing" in line or "histories" in line]
    assert lines == [
        "It does not hide histories here: an item gives a history away (docs/privacy.md)."
    ]
    sums = with_result(popular, in_the_clear=[], in_sums=[])
    condition = "only sums over clients, as long as its protocol's assumptions hold"
    assert any(condition in line for line in notes(sums))
    seen = with_result(popular, in_the_clear=["its own row"], in_sums=[])
    assert any("still received of every client: its own row." in line for line in notes(seen))


def test_a_report_says_what_the_protocol_withstands() -> None:
    pytest.importorskip("cryptography")
    secagg = {"secure_aggregation": "secagg", "colluders": 1, "holders": 8}
    run = coterie.run("fcf", rounds=1, participation=0.5, **secagg, **DATA)
    sentence = (
        "Protocol secagg: groups of up to 100 clients; each shares its secrets among up to 8 "
        "others, of whom 1 may collude with the server."
    )
    assert sentence in notes(run)
    assert sentence in markdown([run])
