"""An experiment as a page sends it: settings as texts, read as `--set` reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from coterie.console.folders import Folders
from coterie.data.datasets import names
from coterie.data.options import ReadOptions
from coterie.errors import ConfigError
from coterie.experiments.config import NAMING_FILES, Experiment, parse_assignments

Text = Annotated[str, Field(max_length=4096)]


class FileRequest(BaseModel):
    """A dataset by name or path, and how its file is read."""

    model_config = ConfigDict(extra="forbid")

    dataset: Text
    columns: Annotated[dict[Text, Text], Field(max_length=20)] = {}
    skip_bad_rows: bool = False
    encoding: Text | None = None
    delimiter: Text | None = None
    header: bool = True

    def options(self) -> ReadOptions:
        return ReadOptions(
            columns=dict(self.columns),
            skip_bad_rows=self.skip_bad_rows,
            encoding=self.encoding or None,
            delimiter=self.delimiter or None,
            header=self.header,
        )

    @property
    def is_named(self) -> bool:
        """Whether it is a dataset with a name, not a file."""
        return self.dataset in names()


class ExperimentRequest(FileRequest):
    algorithm: Text
    protocol: Text | None = None
    seed: Text = ""
    settings: Annotated[dict[Text, Text], Field(max_length=300)] = {}
    """Setting -> its text, as after `--set KEY=`."""

    def experiment(self, folders: Folders) -> Experiment:
        """The experiment, or the error of the command line."""
        refuse_outside(self, folders)
        options = self.options()
        values: dict[str, object] = {
            "algorithm": self.algorithm,
            "dataset": self.dataset,
            "protocol": self.protocol or None,
            "seed": parse_assignments([f"seed={self.seed}"])["seed"] or 0,
            "columns": options.columns or None,
            "skip_bad_rows": options.skip_bad_rows or None,
            "encoding": options.encoding,
            "delimiter": options.delimiter,
            "header": None if options.header else False,
        }
        values = {key: value for key, value in values.items() if value is not None}
        values |= parse_assignments([f"{key}={text}" for key, text in self.settings.items()])
        experiment = Experiment.of(values)
        _refuse_other_files(experiment, folders)
        return experiment


def refuse_outside(request: FileRequest, folders: Folders) -> None:
    """A file must be in a folder that the console was given."""
    if not (request.is_named or folders.holds(Path(request.dataset))):
        raise ConfigError(_outside("dataset", request.dataset))


def _refuse_other_files(experiment: Experiment, folders: Folders) -> None:
    flat = experiment.flat()
    for key in NAMING_FILES:
        if flat.get(key) and not folders.holds(Path(flat[key])):
            raise ConfigError(_outside(key, flat[key]))


def _outside(key: str, path: str) -> str:
    return (
        f"setting {key!r} is {path!r}, which is outside the folders of the console; expected a "
        "path inside them. Start the console with its folder, too: coterie console FOLDER FOLDER"
    )
