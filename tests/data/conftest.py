"""Fixtures that write files and read their errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.errors import DataError


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """`write("a.csv", text)` writes a file, with its folders, and returns its path."""

    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


@pytest.fixture
def refused() -> Callable[..., str]:
    """`refused(path, skip_bad_rows=True)` returns the one-line error of reading the file."""

    def message(path: Path, **options: object) -> str:
        with pytest.raises(DataError) as caught:
            read(path, ReadOptions(**options))
        text = str(caught.value)
        assert "\n" not in text, "a message is one line"
        return text

    return message
