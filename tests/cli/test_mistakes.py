"""User mistakes: one line with the thing, value, rule and remedy; exit code 2; no traceback."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import SMALL, Done

Command = Callable[..., Done]

MEANT = [
    (["run", "gmff"], "algorithm", "gmff", "gmf"),
    (["run", "GMF"], "algorithm", "GMF", "gmf"),
    (["algorithms", "poplar"], "algorithm", "poplar", "popular"),
    (["run", "gmf", "--dataset", "ml100k"], "dataset", "ml100k", "ml-100k"),
    (["data", "fetch", "ml-10m"], "dataset", "ml-10m", "ml-1m"),
    (["data", "describe", "syntetic"], "dataset", "syntetic", "synthetic"),
    (["run", "gmf", "--protocol", "loo50"], "protocol", "loo50", "loo-50"),
    (["run", "gmf", "--set", "embeding_size=8"], "setting", "embeding_size", "embedding_size"),
    (["run", "gmf", "--set", "lerning_rate=0.1"], "setting", "lerning_rate", "learning_rate"),
    (["run", "gmf", "--set", "n_user=10"], "setting", "n_user", "n_users"),
    (["data", "describe", "synthetic", "--set", "cor=5"], "setting", "cor", "core"),
]


@pytest.mark.parametrize(
    ("arguments", "kind", "wrong", "right"), MEANT, ids=[" ".join(m[0]) for m in MEANT]
)
def test_unknown_name_gets_a_suggestion(
    coterie: Command, arguments: list[str], kind: str, wrong: str, right: str
) -> None:
    line = coterie(*arguments).error
    assert line.startswith(f"unknown {kind} {wrong!r}")
    assert line.endswith(f"Did you mean {right!r}?")


def test_name_unlike_all_others_gets_the_list_of_names(coterie: Command) -> None:
    line = coterie("run", "xyzzy").error
    assert all(name in line for name in ("fedavg", "fedfast", "pfpl+", "fedals", " more"))


def test_setting_of_another_algorithm_is_unknown(coterie: Command) -> None:
    assert coterie("run", "popular", "--set", "learning_rate=1").error.startswith(
        "unknown setting 'learning_rate'"
    )


def test_settings_of_synthetic_data_are_unknown_for_a_file(
    coterie: Command, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("user_id,item_id\n1,2\n")
    assert coterie("run", "popular", "-d", "a.csv", "--set", "n_users=9").error.startswith(
        "unknown setting 'n_users'"
    )


def test_unknown_user(coterie: Command, bpr_run: Path) -> None:
    line = coterie("recommend", bpr_run, "--user", "600").error
    assert line.startswith("unknown user '600'")
    assert "Did you mean '60'?" in line


RANGES = [
    ("embedding_size=0", "embedding_size", "0", "1"),
    ("learning_rate=-1", "learning_rate", "-1", "0"),
    ("fraction=1.5", "fraction", "1.5", "1"),
    ("epochs=many", "epochs", "'many'", "integer"),
    ("split=rand", "split", "'rand'", "'random'"),
    ("learning_rate=.nan", "learning_rate", "nan", "finite"),
    ("cutoffs=0", "cutoffs", "0", "at least 1"),
    ("cutoffs=5,x", "cutoffs", "'x'", "integer"),
    ("headline=[Fame]", "headline", "Fame", "HR"),
    ("headline=[]", "headline", "[]", "at least 1"),
]


@pytest.mark.parametrize(("assignment", "key", "value", "rule"), RANGES, ids=[r[0] for r in RANGES])
def test_impossible_value_names_setting_value_rule_and_remedy(
    coterie: Command, tmp_path: Path, assignment: str, key: str, value: str, rule: str
) -> None:
    line = coterie("run", "gmf", *SMALL, "--set", assignment).error
    for part in (f"'{key}'", value, rule, f"--set {key}="):
        assert part in line, line
    assert "value error" not in line.lower(), "the rule is in our words, not in pydantic's"
    assert not (tmp_path / "runs").exists(), "a run that cannot start leaves no folder"


@pytest.mark.parametrize("command", ["run", "tune", "compare"])
def test_errors_of_ratings_need_explicit_feedback(
    coterie: Command, tmp_path: Path, command: str
) -> None:
    line = coterie(command, "gmf", *SMALL, "--set", "headline=RMSE").error
    for part in ("'headline'", "'RMSE'", "expected feedback=explicit", "Set feedback=explicit"):
        assert part in line, line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("assignment", ["embedding_size", "=3", ""])
def test_set_without_an_assignment(coterie: Command, assignment: str) -> None:
    line = coterie("run", "gmf", "--set", assignment).error
    assert repr(assignment) in line
    assert "--set embedding_size=16" in line


@pytest.mark.parametrize("value", ["ring", "none"])
def test_secure_aggregation_of_a_centralised_algorithm(coterie: Command, value: str) -> None:
    line = coterie("run", "bpr", "--secure-aggregation", value).error
    for part in (
        "'secure_aggregation'",
        repr(value),
        "bpr is centralised",
        "Remove the setting",
    ):
        assert part in line, line


def test_a_hint_ends_with_its_sentence(coterie: Command) -> None:
    line = coterie("run", "sttfedrec-dssm", "--set", "requests=some").error
    assert "or by requesting all items (whole))" in line, line


def test_columns_that_are_not_pairs(coterie: Command) -> None:
    assert "--columns user_id=userId" in coterie("run", "gmf", "--columns", "userId").error


FILES = {
    "broken": "algorithm: [gmf\n",
    "text": "gmf\n",
    "empty": "",
    "nameless": "epochs: 3\n",
    "typo": "algorithm: gmf\nepoch: 3\n",
    "range": "algorithm: gmf\nepochs: 0\n",
}
COMPLAINTS = {
    "broken": "is not YAML",
    "text": "expected keys and values",
    "empty": "expected keys and values",
    "nameless": "expected a key 'algorithm'",
    "typo": "Did you mean 'epochs'?",
    "range": "setting 'epochs' is 0",
}


@pytest.mark.parametrize("name", FILES)
def test_wrong_experiment_file(coterie: Command, tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.yaml").write_text(FILES[name])
    assert COMPLAINTS[name] in coterie("run", f"{name}.yaml").error


def test_missing_experiment_file(coterie: Command) -> None:
    assert coterie("run", "none.yaml").error.startswith("none.yaml: does not exist")


def test_missing_files_of_a_federation(coterie: Command, tmp_path: Path) -> None:
    for name in ("federation.yaml", "ann.key", "invitation.txt", "ann.csv"):
        (tmp_path / name).touch()
    serving = coterie("serve", "--config", "federaton.yaml", "--insecure")
    assert serving.error == "federaton.yaml: does not exist. Did you mean 'federation.yaml'?"
    node = ("join", "--data", "ann.csv", "--store", "ann.db")
    for option, wrong, right in (
        ("--invitation", "invitaton.txt", "invitation.txt"),
        ("--policy", "federaton.yaml", "federation.yaml"),
        ("--ca", "invitaton.txt", "invitation.txt"),
    ):
        error = coterie(*node, "--key", "ann.key", option, wrong).error
        assert error.startswith(f"{wrong}"), error
        assert error.endswith(f"Did you mean {right!r}?"), error
    missing = coterie("join", "--data", "an.csv", "--store", "ann.db", "--insecure")
    assert missing.error == "an.csv: does not exist. Did you mean 'ann.csv'?"
    assert not (tmp_path / "ann.db").exists()


def test_folder_in_place_of_an_experiment_file(coterie: Command, tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    assert coterie("run", "folder.yaml").error.startswith("folder.yaml: ")


def test_experiment_file_that_is_not_text(coterie: Command, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    assert coterie("run", "b.yaml").error.startswith("b.yaml: ")


def test_missing_data_file(coterie: Command) -> None:
    assert coterie("run", "popular", "--dataset", "none.csv").error.startswith(
        "none.csv: does not exist"
    )
    assert coterie("data", "describe", "none.csv").error.startswith("none.csv: does not exist")


def test_bad_row_names_file_line_column_value_and_remedy(coterie: Command, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user_id,item_id,rating\na,x,5\nb,x,five\n")
    line = coterie("run", "popular", "--dataset", "r.csv").error
    for part in ("r.csv:3", "'rating'", "'five'", "number", "--skip-bad-rows"):
        assert part in line


def test_patience_without_validation(coterie: Command, tmp_path: Path) -> None:
    line = coterie("run", "bpr", *SMALL, "--set", "patience=2", "--quiet").error
    assert "validation=true" in line
    assert not (tmp_path / "runs").exists(), "a run that cannot start leaves no folder"


@pytest.mark.parametrize("algorithm", ["bpr", "gmf"])
def test_diverged_training_names_its_round(
    coterie: Command, tmp_path: Path, algorithm: str
) -> None:
    settings = ["--set", "learning_rate=1e30", "--set", "epochs=3"]
    done = coterie("run", algorithm, *SMALL, *settings, "-q", "-o", "diverged")
    assert "training diverged at round 1" in done.error
    assert "learning_rate" in done.error
    assert done.out == ""
    assert not (tmp_path / "diverged" / "result.json").exists()


def test_diverging_with_json_prints_nothing_on_standard_output(coterie: Command) -> None:
    done = coterie("run", "gmf", *SMALL, "--set", "learning_rate=1e30", "--json")
    assert "diverged" in done.error
    assert done.out == ""


# ---- run folders

NEED_A_RUN = [["recommend", "{}", "--user", "1"], ["evaluate", "{}"], ["report", "{}"]]


@pytest.mark.parametrize("command", NEED_A_RUN, ids=lambda c: c[0])
def test_missing_run_folder(coterie: Command, command: list[str]) -> None:
    line = coterie(*(part.format("nowhere") for part in command)).error
    assert line.startswith("nowhere is not a run folder: it does not exist")
    assert "coterie run" in line


@pytest.mark.parametrize("command", NEED_A_RUN, ids=lambda c: c[0])
def test_folder_that_holds_no_run(coterie: Command, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "other").mkdir()
    line = coterie(*(part.format("other") for part in command)).error
    assert "result.json" in line


@pytest.mark.parametrize("command", NEED_A_RUN, ids=lambda c: c[0])
def test_file_in_place_of_a_run_folder(
    coterie: Command, tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    line = coterie(*(part.format("file") for part in command)).error
    assert "file is not a run folder" in line
    assert "does not exist" not in line, "the file exists"


def test_run_without_its_config_cannot_be_evaluated_again(
    coterie: Command, bpr_run: Path, tmp_path: Path
) -> None:
    shutil.copytree(bpr_run, tmp_path / "copy")
    (tmp_path / "copy" / "config.yaml").unlink()
    line = coterie("evaluate", "copy").error
    assert "config.yaml" in line
    assert "coterie run copy/config.yaml" not in line, "the remedy must be possible"


def test_page_that_cannot_be_written(coterie: Command, bpr_run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file/page.html" in coterie("report", bpr_run, "--out", "file/page.html").error


def test_out_below_a_file(coterie: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "--out" in coterie("run", "random", *SMALL, "--out", "file/run").error


def test_out_that_is_a_file(coterie: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert coterie("run", "random", *SMALL, "--out", "file").error.startswith("file exists")
    assert (tmp_path / "file").read_text() == "mine"


def test_mistyped_command_gets_one_suggestion(coterie: Command) -> None:
    done = coterie("algorithm")
    assert done.code == 2
    assert done.err.count("Did you mean") == 1


def test_interrupt_before_training_is_reported(
    coterie: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coterie.experiments.preparation.load_data", interrupt)
    done = coterie("run", "gmf", *SMALL)
    assert done.code == 130
    assert "interrupted" in done.err
