"""Kernels compile once, log it, and load without a cache folder."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from coterie import kernels
from coterie.core.progress import Progress


class Listener(Progress):
    def __init__(self) -> None:
        self.labels: list[str] = []

    @contextmanager
    def task(self, label, total):
        self.labels.append(label)
        yield lambda steps=1, note="": None


def test_only_the_first_start_logs_that_it_compiles(tmp_path, monkeypatch):
    import numba

    monkeypatch.setattr(numba.config, "CACHE_DIR", numba.config.CACHE_DIR)
    monkeypatch.setattr(kernels, "cache_folder", lambda: tmp_path)
    first = Listener()
    second = Listener()
    for listener in (first, second):
        # As in a new process.
        monkeypatch.setattr(kernels, "_loaded", {})
        kernels.load("als", listener)
    assert first.labels == ["Compiling the als kernels (first start only)"]
    assert second.labels == []


def test_an_edited_kernel_gets_another_cache(tmp_path, monkeypatch):
    source = tmp_path / "kernels"
    source.mkdir()
    monkeypatch.setattr(kernels, "__file__", str(source / "__init__.py"))
    (source / "common.py").write_text("one = 1\n")
    before = kernels._folder()
    (source / "common.py").write_text("one = 2\n")
    assert kernels._folder() != before


@pytest.mark.skipif(sys.platform == "win32", reason="there is no /dev/null")
def test_kernels_load_where_nothing_can_be_cached():
    """A container with a read-only home can train."""
    done = subprocess.run(
        [sys.executable, "-c", "from coterie import kernels; kernels.load('als'); print('loaded')"],
        env=os.environ | {"XDG_CACHE_HOME": "/dev/null/nowhere", "HOME": "/dev/null/nowhere"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "loaded", done.stderr[-500:]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_processes_that_start_together_compile_once(tmp_path):
    code = (
        "from coterie import kernels; k = kernels.load('norms'); "
        "print(sum(k.squared.stats.cache_misses.values()))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    compiled = [process.communicate(timeout=120)[0].strip() for process in started]
    assert sorted(compiled) == ["0", "0", "1"]
