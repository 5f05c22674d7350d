"""The remedy for a missing file names a similar one of its folder, if there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.core.missing_files import refuse_missing, remedy_for
from coterie.data.small import small_table
from coterie.errors import DataError


def test_a_similar_name_is_suggested(tmp_path: Path):
    (tmp_path / "federation.yaml").touch()
    (tmp_path / "items.csv").touch()
    assert remedy_for(tmp_path / "federatoin.yaml") == "Did you mean 'federation.yaml'?"


def test_without_a_similar_name(tmp_path: Path):
    (tmp_path / "items.csv").touch()
    assert remedy_for(tmp_path / "zzz.key") == "Check the path."
    assert remedy_for(tmp_path / "zzz.key", "Ask its owner.") == "Ask its owner."
    assert remedy_for(tmp_path / "nowhere" / "items.csv") == "Check the path."


def test_missing_data_is_refused_with_that_remedy(tmp_path: Path):
    refuse_missing(tmp_path)
    (tmp_path / "items.csv").touch()
    with pytest.raises(DataError, match=r"item.csv: does not exist. Did you mean 'items.csv'\?"):
        refuse_missing(tmp_path / "item.csv")
    with pytest.raises(DataError, match=r"does not exist. Did you mean 'items.csv'\?"):
        small_table(tmp_path / "item.csv", ("item_id",), "item_id")
    with pytest.raises(DataError, match=r"x.csv: does not exist. Look elsewhere."):
        refuse_missing(tmp_path / "x.csv", "Look elsewhere.")
