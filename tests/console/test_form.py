"""The form of a new experiment follows the typed settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.algorithms.registry import algorithm
from coterie.console.experiment_request import ExperimentRequest, FileRequest
from coterie.console.folders import Folders
from coterie.console.form import choices, form, setting_input
from coterie.console.preview import preview
from coterie.errors import ConfigError, UserError
from coterie.experiments.config import Choice, Experiment
from coterie.federated.settings import FederationSettings


def keys(name: str, dataset: str = "synthetic") -> list[str]:
    return [one["key"] for group in form(name, dataset)["groups"] for one in group["inputs"]]


@pytest.mark.parametrize("name", ["fedfast", "pfpl+", "ease", "popular", "fedals"])
def test_every_setting_is_on_the_form_once(name: str) -> None:
    shown = keys(name)
    assert len(shown) == len(set(shown))
    elsewhere = {"algorithm", "dataset", "protocol", *Choice.model_fields}
    assert set(shown) == Experiment.of({"algorithm": name}).flat().keys() - elsewhere
    assert set(algorithm(name).settings.model_fields) <= set(shown)


def test_an_input_has_the_range_and_the_docstring() -> None:
    found = setting_input("client_dropout", FederationSettings, 0.0)
    assert (found.kind, found.least, found.below) == ("number", 0, 1)
    assert found.rule == "at least 0; below 1"
    assert found.help == "Share of a round's clients that drop out."
    choice = setting_input("secure_aggregation", FederationSettings, "none")
    assert choice.choices == ("none", "secagg", "ring")


def test_defaults_are_those_of_the_dataset() -> None:
    tuned = {
        one["key"]: one["value"]
        for group in form("fedfast", "synthetic")["groups"]
        for one in group["inputs"]
    }
    flat = Experiment.of({"algorithm": "fedfast"}).flat()
    assert tuned["learning_rate"] == flat["learning_rate"]
    assert "n_users" in tuned
    assert "n_users" not in keys("fedfast", "ml-100k")


def test_everything_can_be_chosen() -> None:
    found = choices()
    assert {"fedfast", "popular"} <= {one["name"] for one in found["algorithms"]}
    assert next(one for one in found["datasets"] if one["name"] == "synthetic")["here"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"rouns": "5"}}, "unknown setting 'rouns'"),
        ({"settings": {"rounds": "0"}}, "setting 'rounds' is 0"),
        ({"settings": {"rounds": "yes"}}, "yes or no"),
        ({"seed": "-1"}, "setting 'seed' is -1"),
        ({"algorithm": "fedfst"}, "Did you mean 'fedfast'"),
        ({"dataset": "/etc/passwd"}, "outside the folders of the console"),
        ({"dataset": "../x.csv"}, "outside the folders of the console"),
        ({"settings": {"start_from": "/etc"}}, "setting 'start_from' is '/etc', which is outside"),
        ({"settings": {"availability_file": "/etc/passwd"}}, "which is outside the folders"),
    ],
)
def test_errors_are_those_of_the_command_line(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    asked = ExperimentRequest(**{"algorithm": "fedfast", "dataset": "synthetic"} | changes)
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        asked.experiment(Folders.of([tmp_path]))


def test_texts_are_read_as_set_reads_them(tmp_path: Path) -> None:
    asked = ExperimentRequest(
        algorithm="fedfast",
        dataset="synthetic",
        seed="3",
        settings={"layers": "[8, 4]", "epsilon": "", "rounds": "7"},
    )
    flat = asked.experiment(Folders.of([tmp_path])).flat()
    assert (flat["seed"], flat["layers"], flat["rounds"]) == (3, [8, 4], 7)
    assert flat["epsilon"] is None


def test_a_file_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    rows = "".join(f"u{n % 5};<img src=x>{n};4\n" for n in range(20))
    path.write_text("who;movie;rating\n" + rows)
    folders = Folders.of([tmp_path])
    found = preview(FileRequest(dataset=str(path)), folders)
    assert "no column was recognised as user_id" in found["error"]
    assert found["names"] == ["who", "movie", "rating"]
    assert found["rows"][0] == ["u0", "<img src=x>0", "4"]
    mapped = preview(FileRequest(dataset=str(path), columns={"user_id": "who"}), folders)
    assert mapped["error"] == ""
    assert ["users", "5"] in mapped["facts"]
    assert mapped["columns"] == {"user_id": "who", "item_id": "movie", "rating": "rating"}


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("user_id,item_id,rating\n1,2,good\n1,3,4\n")
    folders = Folders.of([tmp_path])
    error = preview(FileRequest(dataset=str(path)), folders)["error"]
    assert f"{path}:2: column 'rating' is 'good'" in error
    assert preview(FileRequest(dataset=str(path), skip_bad_rows=True), folders)["error"] == ""


def test_no_other_file_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "linked.csv").symlink_to("/etc/passwd")
    folders = Folders.of([tmp_path / "data"])
    for path in ("/etc/passwd", str(tmp_path / "data" / "linked.csv"), "data/../../etc/passwd"):
        with pytest.raises(ConfigError, match="outside the folders"):
            preview(FileRequest(dataset=path), folders)
