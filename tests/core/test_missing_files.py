"""The remedy for a missing file names a similar one of its folder, if there is one."""

from __future__ import annotations

from pathlib import Path

from coterie.core.missing_files import remedy_for


def test_a_similar_name_is_suggested(tmp_path: Path):
    (tmp_path / "federation.yaml").touch()
    (tmp_path / "items.csv").touch()
    assert remedy_for(tmp_path / "federatoin.yaml") == "Did you mean 'federation.yaml'?"


def test_without_a_similar_name(tmp_path: Path):
    (tmp_path / "items.csv").touch()
    assert remedy_for(tmp_path / "zzz.key") == "Check the path."
    assert remedy_for(tmp_path / "zzz.key", "Ask its owner.") == "Ask its owner."
    assert remedy_for(tmp_path / "nowhere" / "items.csv") == "Check the path."
