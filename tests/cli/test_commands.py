"""Every command through the entry point: what it prints and what it writes."""

from __future__ import annotations

import csv
import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from calling import SMALL, Done

from coterie import __version__
from coterie.algorithms.registry import ALGORITHMS
from coterie.cli.algorithms import DISTRIBUTIONS, EXTRAS
from coterie.data.datasets import DATASETS

Command = Callable[..., Done]
COMMANDS = [
    "run",
    "resume",
    "compare",
    "tune",
    "evaluate",
    "recommend",
    "similar-items",
    "disclosure",
    "attack",
    "report",
    "data",
    "algorithms",
    "doctor",
]
PATHS = [(), *((c,) for c in COMMANDS), ("data", "list"), ("data", "fetch"), ("data", "describe")]
# The description of each command's argument.
ARGUMENTS = {
    "run": "Algorithm (see coterie algorithms) or experiment file",
    "resume": "Run folder",
    "compare": "Algorithms or experiment files",
    "tune": "Algorithm (see coterie algorithms)",
    "evaluate": "Run folder",
    "recommend": "Run folder",
    "similar-items": "Item id, as in the data",
    "disclosure": "Run folder",
    "attack": "Run folder",
    "report": "One or more run folders",
    "algorithms": "Algorithm whose settings are shown",
}


def result_of(done: Done) -> dict:
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert isinstance(result, dict)
    return result


def rows_of(text: str) -> list[list[str]]:
    """The cells of a printed table."""
    drawn = [line for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in drawn]


# ---- help and version


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_command_has_a_help_text(coterie: Command, path: tuple[str, ...]) -> None:
    done = coterie(*path, "--help")
    assert done.code == 0
    assert done.err == ""
    assert done.out.strip().startswith("Usage: ")
    assert " ".join(("coterie", *path)) in done.out
    assert "\\[" not in done.out, "square brackets are printed without a backslash"


@pytest.mark.parametrize("command", ARGUMENTS)
def test_help_explains_the_argument(coterie: Command, command: str) -> None:
    assert ARGUMENTS[command] in coterie(command, "--help").out


def test_help_lists_every_command(coterie: Command) -> None:
    text = coterie("--help").out
    assert all(re.search(rf"\n\W*{command} ", text) for command in COMMANDS)


def test_version(coterie: Command) -> None:
    assert coterie("--version") == Done(0, f"{__version__}\n", "")


# ---- run


def test_run_shows_result_and_folder_on_standard_output_and_progress_on_standard_error(
    coterie: Command, tmp_path: Path
) -> None:
    done = coterie("run", "popular", *SMALL, "--out", "here")
    result = json.loads((tmp_path / "here" / "result.json").read_text())
    cells = {row[0]: row[1:] for row in rows_of(done.out)}
    assert cells["HR@10"] == [f"{result['metrics']['HR@10']:.4f}", f"{result['full']['HR@10']:.4f}"]
    assert "here/report.html" in done.out
    assert "Global-time leakage" in done.out
    assert "Training popular" in done.err
    assert "Training" not in done.out


def test_quiet_run_prints_the_table_and_nothing_else(coterie: Command) -> None:
    done = coterie("run", "popular", *SMALL, "--quiet")
    assert done.err == ""
    assert "HR@10" in done.out
    assert "Global-time" not in done.out
    assert "Training" not in done.out


def test_default_folders_count_up(coterie: Command, tmp_path: Path) -> None:
    for _ in range(3):
        coterie("run", "random", *SMALL, "--quiet")
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == [
        f"random-synthetic-{n}" for n in (1, 2, 3)
    ]


def test_an_earlier_run_of_the_same_settings_is_named(coterie: Command, tmp_path: Path) -> None:
    arguments = ["run", "popular", *SMALL]
    assert "same settings" not in coterie(*arguments).err
    done = coterie(*arguments)
    assert "runs/popular-synthetic-1 is a finished run of the same settings" in done.err
    (tmp_path / "runs" / "popular-synthetic-1" / "result.json").unlink()
    unfinished = (
        "runs/popular-synthetic-1 has the same settings and is unfinished: "
        "resume it with coterie resume runs/popular-synthetic-1"
    )
    assert unfinished in coterie(*arguments).err
    assert "same settings" not in coterie(*arguments, "--seed", "1").err
    assert coterie(*arguments, "--quiet").err == ""


def test_steps_have_a_comma(coterie: Command) -> None:
    done = coterie("run", "bpr", *SMALL, "--set", "epochs=1200")
    assert "trained 1,200 epochs in " in done.out


def test_second_run_into_the_same_folder_is_refused_and_leaves_it_alone(
    coterie: Command, tmp_path: Path
) -> None:
    coterie("run", "random", *SMALL, "--out", "taken", "--quiet")
    before = {p.name: p.read_bytes() for p in (tmp_path / "taken").iterdir()}
    line = coterie("run", "popular", *SMALL, "--out", "taken").error
    assert line.startswith("taken exists")
    assert "--out" in line
    assert {p.name: p.read_bytes() for p in (tmp_path / "taken").iterdir()} == before


def test_run_from_a_file_with_changes_on_top(coterie: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "algorithm: bpr\nepochs: 9\nseed: 5\nn_users: 60\nn_items: 90\n"
    )
    result = result_of(coterie("run", "mine.yaml", "--set", "epochs=2", "--seed", "7", "--json"))
    shown = [result[key] for key in ("algorithm", "rounds", "seed", "users")]
    assert shown == ["bpr", 2, 7, 60]
    flat = yaml.safe_load((tmp_path / result["run"] / "config.yaml").read_text())
    assert (flat["epochs"], flat["seed"], flat["n_items"]) == (2, 7, 90)


def test_run_on_a_file_of_interactions(coterie: Command, tmp_path: Path) -> None:
    write_square(tmp_path / "likes.csv", "who,what,when")
    columns = "user_id=who,item_id=what,timestamp=when"
    result = result_of(
        coterie("run", "popular", "--dataset", "likes.csv", "--columns", columns, "--json")
    )
    assert (result["dataset"], result["protocol"]) == ("likes.csv", "full")
    counts = ("users", "items", "training_interactions", "tested_users")
    assert [result[key] for key in counts] == [4, 4, 8, 4]
    assert result["run"] == "runs/popular-likes-1"


def test_seed_changes_the_model(coterie: Command) -> None:
    def metrics(seed: int) -> dict:
        return result_of(coterie("run", "random", *SMALL, "--seed", str(seed), "--json"))["full"]

    assert metrics(1) == metrics(1)
    assert metrics(1) != metrics(2)


def test_protocol_of_choice(coterie: Command) -> None:
    result = result_of(coterie("run", "popular", *SMALL, "--protocol", "holdout", "--json"))
    assert result["protocol"] == "holdout"
    assert result["metrics"] == result["full"], "holdout ranks all items"
    shown = {
        row[0] for row in rows_of(coterie("run", "popular", *SMALL, "-p", "holdout", "-q").out)
    }
    assert {"P@10", "R@10", "IC@10", "Gini@10"} <= shown


def test_headline_setting_chooses_what_is_shown(coterie: Command) -> None:
    done = coterie("run", "popular", *SMALL, "--set", "headline=[R, P]", "--quiet")
    assert done.code == 0, done.err
    assert {row[0] for row in rows_of(done.out)} == {"R@10", "P@10"}


def test_run_on_a_real_dataset_by_name(coterie: Command, real_data: Callable[..., None]) -> None:
    real_data("ml-100k", "u.data", "ml-100k.inter")
    result = result_of(coterie("run", "popular", "--dataset", "ml-100k", "--json"))
    names = [result[key] for key in ("dataset", "protocol", "run")]
    assert names == ["ml-100k", "loo-50", "runs/popular-ml-100k-1"]
    counts = ("users", "items", "training_interactions", "tested_users")
    assert [result[key] for key in counts] == [943, 1682, 100_000 - 943, 943]


def write_square(path: Path, header: str) -> None:
    """Four users and four items; user k has every item but item k, at increasing times."""
    pairs = [(u, i) for u in range(4) for i in range(4) if u != i]
    rows = [f"u{u},i{i},{1_000_000 + n}" for n, (u, i) in enumerate(pairs)]
    path.write_text("\n".join([header, *rows]) + "\n")


# ---- recommend


def test_recommend_gives_the_one_item_that_is_left(coterie: Command, tmp_path: Path) -> None:
    write_square(tmp_path / "likes.csv", "user_id,item_id,timestamp")
    coterie("run", "popular", "--dataset", "likes.csv", "--out", "r", "--quiet")
    answer = result_of(coterie("recommend", "r", "--user", "u0", "-n", "9", "--json"))
    assert answer["user"] == "u0"
    # u0 never had i0. Its newest item, i3, is held out for testing and does not count as seen.
    assert {row["item"] for row in answer["items"]} == {"i0", "i3"}
    scores = [row["score"] for row in answer["items"]]
    assert scores == sorted(scores, reverse=True)
    everything = result_of(coterie("recommend", "r", "-u", "u0", "--include-seen", "--json"))
    assert {row["item"] for row in everything["items"]} == {"i0", "i1", "i2", "i3"}


def test_recommend_draws_a_table_that_agrees_with_json(coterie: Command, bpr_run: Path) -> None:
    answer = result_of(coterie("recommend", bpr_run, "--user", "3", "-n", "4", "--json"))
    rows = rows_of(coterie("recommend", bpr_run, "--user", "3", "-n", "4").out)
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert [(row[1], row[2], row[3]) for row in rows] == [
        (str(a["item"]), a["text"], f"{a['score']:.4f}") for a in answer["items"]
    ]


def test_recommend_has_no_column_of_texts_without_texts(coterie: Command, tmp_path: Path) -> None:
    write_square(tmp_path / "likes.csv", "user_id,item_id,timestamp")
    coterie("run", "popular", "--dataset", "likes.csv", "--out", "r", "--quiet")
    shown = coterie("recommend", "r", "--user", "u0").out
    assert "text" not in shown
    assert [len(row) for row in rows_of(shown)] == [3, 3]


def test_recommend_to_a_new_user_with_titles_from_a_file(coterie: Command, bpr_run: Path) -> None:
    """The same items as without the file; their titles are the file's."""
    plain = result_of(coterie("recommend", bpr_run, "--history", "3,8", "-n", "3", "--json"))
    rows = [f"{each['item']};title of {each['item']}" for each in plain["items"]]
    Path("items.csv").write_text("\n".join(["number;what", *rows]))
    answer = result_of(
        coterie(
            "recommend", bpr_run, "--history", "3,8", "-n", "3", "--items", "items.csv", "--json"
        )
    )
    assert [each["text"] for each in answer["items"]] == [
        f"title of {each['item']}" for each in plain["items"]
    ]


def test_recommend_to_all_writes_a_file(coterie: Command, bpr_run: Path) -> None:
    done = coterie("recommend", bpr_run, "--all", "--out", "lists.csv", "-n", "2")
    assert done.out.strip() == "120 recommendations for 60 users: lists.csv"
    lines = Path("lists.csv").read_text().splitlines()
    assert lines[0] == "user_id,rank,item_id,score,title"
    answer = result_of(coterie("recommend", bpr_run, "--user", "3", "-n", "2", "--json"))
    mine = [line.split(",")[2] for line in lines if line.startswith("3,")]
    assert mine == [str(each["item"]) for each in answer["items"]]


@pytest.fixture
def square_run(coterie: Command, tmp_path: Path) -> str:
    """Item-kNN on the square. Without the newest items, i0 has the users u1, u2 and u3, i1 has u0,
    u2 and u3, and i2 has u0 and u1: cos(i0, i1) = 2/3 and cos(i0, i2) = 1 / sqrt(6).
    """
    write_square(tmp_path / "likes.csv", "user_id,item_id,timestamp")
    coterie("run", "itemknn", "--dataset", "likes.csv", "--out", "r", "--quiet")
    return "r"


WHY_I0 = [("i1", 2 / 3, "62%"), ("i2", 6**-0.5, "38%")]
"""The reasons of i0 for someone with i1 and i2: contributions, and shares of 1.0749."""


@pytest.mark.parametrize("whose", [["--user", "u0"], ["--history", "i2,i1"]], ids=" ".join)
def test_why_names_the_items_of_the_history(
    coterie: Command, square_run: str, whose: list[str]
) -> None:
    """Below each recommendation; i3 has no user in training, so it has no reason."""
    answer = result_of(coterie("recommend", square_run, *whose, "--why", "--json"))
    first, second = answer["items"]
    assert first["score"] == pytest.approx(2 / 3 + 6**-0.5)
    assert [(each["item"], each["contribution"]) for each in first["why"]] == [
        (item, pytest.approx(contribution)) for item, contribution, _ in WHY_I0
    ]
    assert sum(each["share"] for each in first["why"]) == pytest.approx(1)
    assert second["why"] == []
    rows = rows_of(coterie("recommend", square_run, *whose, "--why").out)
    assert rows == [
        ["1", "i0", "1.0749", "100%"],
        *(["", f"because of {item}", f"{added:.4f}", share] for item, added, share in WHY_I0),
        ["2", "i3", "0.0000", ""],
    ]


def test_why_shows_titles_where_known(coterie: Command, square_run: str) -> None:
    Path("items.csv").write_text("id,title\ni0,Alien\ni1,Brazil\n")
    call = ["recommend", square_run, "--user", "u0", "--why", "--items", "items.csv", "-n", "1"]
    assert [row[1:3] for row in rows_of(coterie(*call).out)] == [
        ["i0", "Alien"],
        ["i1", "because of Brazil"],
        ["i2", "because of i2"],
    ]


def test_why_is_left_out_unless_wanted(coterie: Command, square_run: str) -> None:
    answer = result_of(coterie("recommend", square_run, "--user", "u0", "--json"))
    assert [list(each) for each in answer["items"]] == [["item", "score", "text"]] * 2
    assert "because" not in coterie("recommend", square_run, "--user", "u0").out


def test_why_is_a_column_of_the_lists_of_all_users(coterie: Command, square_run: str) -> None:
    coterie("recommend", square_run, "--all", "--out", "lists.csv", "--why", "-n", "1")
    with Path("lists.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["user_id", "rank", "item_id", "score", "why"]
    assert rows[0]["user_id"] == "u0"
    assert [each["item"] for each in json.loads(rows[0]["why"])] == ["i1", "i2"]


@pytest.mark.parametrize(
    "whose", [["--user", "3"], ["--history", "3,8"], ["--all", "--out", "a.csv"]], ids=" ".join
)
def test_why_is_refused_unless_item_based(
    coterie: Command, bpr_run: Path, whose: list[str]
) -> None:
    line = coterie("recommend", bpr_run, *whose, "--why").error
    assert line.startswith("the run's algorithm is bpr, which is not item-based")
    assert "ease, slim, itemknn" in line
    assert line.endswith("Train one of them.")
    assert not Path("a.csv").exists()


def test_similar_items_are_the_same_in_the_table_and_as_json(
    coterie: Command, bpr_run: Path
) -> None:
    answer = result_of(coterie("similar-items", bpr_run, "3", "-n", "4", "--json"))
    assert answer["item"] == "3"
    rows = rows_of(coterie("similar-items", bpr_run, "3", "-n", "4").out)
    assert [row[1] for row in rows] == [str(each["item"]) for each in answer["items"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--user", "3", "--all"], "--user and --all are given; expected one of --user, --history"),
        ([], "none of --user, --history, --all is given; expected one of"),
        (["--all"], "--all is given without --out; expected both or neither"),
        (["--user", "3", "--out", "a.csv"], "--out is given without --all"),
        (["--user", "3", "--title-column", "t"], "--title-column is 't' without --items"),
        (["--user", "3", "--items", "no.csv"], "no.csv: does not exist"),
        (["--history", "3", "--features", "age"], "--features is 'age'; expected NAME=VALUE"),
        (["--user", "3", "--features", "age=2"], "--features is 'age=2' without --history"),
        (["--all", "--out", "a.txt"], "a.txt: the ending is '.txt'; expected .csv or .parquet"),
    ],
)
def test_mistakes_of_recommend(
    coterie: Command, bpr_run: Path, arguments: list[str], message: str
) -> None:
    assert message in coterie("recommend", bpr_run, *arguments).error


# ---- evaluate


def test_evaluate_again_gives_the_same_figures(coterie: Command, bpr_run: Path) -> None:
    before = json.loads((bpr_run / "result.json").read_text())
    after = result_of(coterie("evaluate", bpr_run, "--json"))
    assert (after["metrics"], after["full"]) == (before["metrics"], before["full"])


def test_evaluate_at_other_cutoffs(coterie: Command, bpr_run: Path) -> None:
    before = json.loads((bpr_run / "result.json").read_text())
    after = result_of(coterie("evaluate", bpr_run, "--set", "cutoffs=3,10", "--json"))
    assert {name: after["metrics"][name] for name in before["metrics"]} == before["metrics"]
    assert after["metrics"]["HR@3"] <= after["metrics"]["HR@10"]
    shown = {row[0] for row in rows_of(coterie("evaluate", bpr_run, "--set", "cutoffs=3").out)}
    assert {"HR@3", "NDCG@3"} <= shown
    assert not any("@10" in name for name in shown)


def test_evaluate_by_full_ranking(coterie: Command, bpr_run: Path) -> None:
    before = json.loads((bpr_run / "result.json").read_text())
    after = result_of(coterie("evaluate", bpr_run, "--protocol", "full", "--json"))
    assert after["protocol"] == "full"
    assert after["metrics"] == after["full"] == before["full"]


def test_evaluate_with_other_candidates(coterie: Command, bpr_run: Path) -> None:
    before = json.loads((bpr_run / "result.json").read_text())
    after = result_of(coterie("evaluate", bpr_run, "--seed", "11", "--json"))
    assert after["full"] == before["full"]
    assert after["metrics"] != before["metrics"]


def test_evaluate_writes_nothing(coterie: Command, bpr_run: Path) -> None:
    before = {p.name: p.read_bytes() for p in bpr_run.iterdir()}
    coterie("evaluate", bpr_run, "--set", "cutoffs=5", "--json")
    assert {p.name: p.read_bytes() for p in bpr_run.iterdir()} == before


def test_evaluating_on_what_was_trained_on_is_refused(coterie: Command, bpr_run: Path) -> None:
    line = coterie("evaluate", bpr_run, "--protocol", "holdout").error
    assert "was trained or selected on interactions that this protocol tests" in line
    assert "split=leave-one-out" in line


def test_evaluate_refuses_what_would_change_the_model(coterie: Command, bpr_run: Path) -> None:
    line = coterie("evaluate", bpr_run, "--set", "epochs=9").error
    assert "'epochs'" in line
    assert "cutoffs" in line


def test_error_names_the_seed_where_the_seed_made_the_split(
    coterie: Command, tmp_path: Path
) -> None:
    """Without timestamps the seed decides what is held out; the error must name the seed."""
    write_square(tmp_path / "timed.csv", "user_id,item_id,timestamp")
    lines = (tmp_path / "timed.csv").read_text().splitlines()
    (tmp_path / "likes.csv").write_text("\n".join(line.rpartition(",")[0] for line in lines) + "\n")
    coterie("run", "popular", "--dataset", "likes.csv", "--out", "r", "--quiet")
    refused = [
        done
        for seed in range(1, 6)
        if (done := coterie("evaluate", "r", "--seed", str(seed), "--quiet")).code
    ]
    assert refused
    assert all("seed" in done.error for done in refused)


# ---- report


def test_report_puts_runs_side_by_side(
    coterie_with_figures: Command, bpr_run: Path, tmp_path: Path
) -> None:
    coterie_with_figures("run", "popular", *SMALL, "--out", "popular", "--quiet")
    done = coterie_with_figures("report", bpr_run, "popular", "--out", "pages/both.html")
    assert done.code == 0, done.err
    rows = [line for line in done.out.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[2:]] == ["| bpr", "| popular"]
    assert "page: pages/both.html" in done.out
    page = (tmp_path / "pages" / "both.html").read_text()
    assert "bpr, popular on synthetic" in page
    assert page.count("FIGURES.push(") == 2, "HR@10 and NDCG@10"


def test_without_the_report_extra_a_run_ends_well_and_its_page_has_static_curves(
    coterie: Command, tmp_path: Path
) -> None:
    done = coterie("run", "bpr", "--set", "epochs=2", *SMALL, "--out", "bare", "--quiet")
    assert done.code == 0, done.err
    page = (tmp_path / "bare" / "report.html").read_text()
    assert "<script" not in page
    for title in ("HR@10 by epochs", "HR@10 by seconds", "NDCG@10 by epochs"):
        assert f"<title>{title}</title>" in page


def test_report_of_several_runs_leaves_theirs_alone(coterie: Command, tmp_path: Path) -> None:
    coterie("run", "popular", *SMALL, "--out", "one", "--quiet")
    coterie("run", "random", *SMALL, "--out", "two", "--quiet")
    before = [(tmp_path / run / "report.html").read_bytes() for run in ("one", "two")]
    coterie("report", "one", "two")
    assert "popular, random" in (tmp_path / "report.html").read_text()
    assert [(tmp_path / run / "report.html").read_bytes() for run in ("one", "two")] == before


# ---- data


def test_data_list_names_every_dataset_and_says_where_it_is(coterie: Command) -> None:
    table = {row[0]: row[1] for row in rows_of(coterie("data", "list").out)}
    assert DATASETS.keys() <= table.keys()
    assert table["synthetic"] == "embedded"
    assert table["ml-100k"] == "fetch"
    assert table["foursquare-italy"] == "by hand"
    listed = json.loads(coterie("data", "list", "--json").out)
    assert [d["name"] for d in listed] == list(DATASETS)


def test_data_list_finds_a_dataset_that_lies_in_the_data_folder(
    coterie: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine" / "ml-100k").mkdir(parents=True)
    (tmp_path / "mine" / "ml-100k" / "u.data").write_text("1\t2\t3\t881250949\n")
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "mine"))
    table = {row[0]: row[1] for row in rows_of(coterie("data", "list").out)}
    assert table["ml-100k"] == "here"


def test_describe_counts(coterie: Command, tmp_path: Path) -> None:
    write_square(tmp_path / "likes.csv", "user_id,item_id,timestamp")
    facts = result_of(coterie("data", "describe", "likes.csv", "--json"))
    counts = [facts[key] for key in ("users", "items", "interactions", "density")]
    assert counts == [4, 4, 12, 0.75]
    assert facts["per_user"] == {"least": 3, "most": 3, "median": 3.0, "mean": 3.0}
    assert facts["first_day"] == facts["last_day"] == "1970-01-12"
    table = {row[0]: row[1] for row in rows_of(coterie("data", "describe", "likes.csv").out)}
    assert (table["users"], table["interactions"]) == ("4", "12")
    assert (table["density"], table["per user"]) == ("75.000%", "3 to 3, median 3")


def test_describe_with_filters_and_bad_rows(coterie: Command, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user_id,item_id,rating\na,x,5\na,y,1\nb,x,five\nb,y,4\n")
    facts = result_of(
        coterie("data", "describe", "r.csv", "--skip-bad-rows", "--set", "min_rating=4", "--json")
    )
    assert facts["interactions"] == 2
    assert any("1" in note and "bad" in note for note in facts["notes"]), facts["notes"]
    assert any("2 of 3" in note for note in facts["notes"]), facts["notes"]


def test_fetching_what_is_embedded_is_nothing_to_do(coterie: Command) -> None:
    assert coterie("data", "fetch", "synthetic").code == 0


def test_fetching_what_is_here_says_where_and_under_which_terms(
    coterie: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine" / "ml-100k").mkdir(parents=True)
    (tmp_path / "mine" / "ml-100k" / "u.data").write_text("1\t2\t3\t881250949\n")
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "mine"))
    done = coterie("data", "fetch", "ml-100k", "--quiet")
    assert done.code == 0, done.err
    assert str(tmp_path / "mine" / "ml-100k") in done.out
    assert "GroupLens" in done.out


def test_fetching_what_must_be_got_by_hand_says_how(coterie: Command, tmp_path: Path) -> None:
    line = coterie("data", "fetch", "foursquare-italy").error
    for part in ("'foursquare-italy'", str(tmp_path / "no data"), "Bologna", "COTERIE_DATA"):
        assert part in line


# ---- about the program


def test_algorithms_lists_all(coterie: Command) -> None:
    assert list(ALGORITHMS) == [row[0] for row in rows_of(coterie("algorithms").out) if row[0]]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithm_shows_every_setting_that_run_takes(coterie: Command, name: str) -> None:
    from coterie.experiments.config import Experiment

    shown = {row[0] for row in rows_of(coterie("algorithms", name).out)}
    # These are options of `coterie run`, not settings.
    options = {"algorithm", "dataset", "protocol", "seed", "columns", "skip_bad_rows"}
    options |= {"encoding", "delimiter", "header"}
    expected = Experiment.of({"algorithm": name, "dataset": "a.csv"}).flat().keys() - options
    assert expected <= shown


def test_settings_of_synthetic_data_are_documented(coterie: Command) -> None:
    """`--set n_users=60` works, so some command must show it."""
    assert "n_users" in coterie("algorithms", "gmf").out + coterie("data", "describe", "--help").out


def test_doctor_shows_versions_folders_and_extras(
    coterie: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shown = coterie("doctor").out
    rows = {row[0]: row[1] for row in rows_of(shown)}
    assert rows["coterie"] == __version__
    assert shown.splitlines()[1].split()[1] == "coterie", "no empty row of titles"
    assert rows["python"].startswith(sys.version.split()[0])
    assert "numpy " in rows["core"]
    assert rows["datasets available"] == "synthetic"
    # A long path is wrapped over several lines.
    unbroken = re.sub(r"[\s│]", "", shown)
    assert re.sub(r"\s", "", f"{tmp_path / 'no data'}") in unbroken
    assert "notcreatedyet" in unbroken


def test_doctor_says_how_to_add_what_is_missing(
    coterie: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    done = coterie("doctor")
    assert done.code == 0
    assert "no plotly" in done.out
    assert "coterie[report" in done.out


def test_doctor_lists_extras_that_exist_and_are_used() -> None:
    """Every extra is in pyproject.toml, installs the modules listed, and src uses them."""
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = project["optional-dependencies"]
    sources = [path.read_text() for path in (root / "src").rglob("*.py")]
    for name, extra in EXTRAS.items():
        requirements = " ".join(declared[name])
        if "coterie[secagg]" in requirements:
            requirements += " ".join(declared["secagg"])
        for module in extra.modules:
            distribution = DISTRIBUTIONS.get(module, module)
            assert re.search(rf"\b{distribution}\b", requirements), (name, module)
            use = rf"^\s*(import|from) {module}\b"
            assert any(re.search(use, source, re.MULTILINE) for source in sources), module
    assert set(declared["all"][0].removeprefix("coterie[").rstrip("]").split(",")) >= set(EXTRAS)


def test_no_command_shows_the_help(coterie: Command) -> None:
    done = coterie()
    assert "Usage: " in done.out + done.err
    assert "coterie run fedfast" in done.out + done.err
