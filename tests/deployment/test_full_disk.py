"""A server whose disk is full stops with an error, and resumes as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment.test_federation import PFPL, Site, site  # noqa: F401  a fixture
from deployment.test_server import InProcessNodes, new_federation, same, served, simulated

from coterie.core.progress import SILENT
from coterie.deployment.server_config import prepare_folder
from coterie.deployment.server_status import is_served
from coterie.errors import RunError
from coterie.experiments import run_folder

MEGABYTE = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes, where this user may mount one."""
    folder = tmp_path / "run"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if sys.platform != "linux" or os.geteuid() or subprocess.run(command).returncode:
        pytest.skip("this user cannot mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no space."""
    with (folder / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(MEGABYTE // 256))
        except OSError:
            return


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
def test_a_commit_without_space(name: str, people, tmp_path: Path, small_disk: Path):
    """The round does not count; with space again, the model is that of an undisturbed run."""

    def full_at_five(kind: str, node: int, call: int) -> bool:
        if call == 5 and node == 0:
            fill(small_disk)
        return False

    terms, paths = new_federation(name, people, tmp_path, 2)
    with pytest.raises(RunError, match=r"No space left on device\). Free some space and resume"):
        served(small_disk, terms, InProcessNodes(paths, full_at_five))
    (small_disk / "filler").unlink()
    point = served(small_disk, terms, InProcessNodes(paths))
    assert same(point.state, simulated(terms, people))


def test_a_checkpoint_that_cannot_be_replaced(people, tmp_path: Path):
    (tmp_path / "checkpoint.npz").mkdir()
    terms, paths = new_federation("fedfast", people, tmp_path, 2)
    with pytest.raises(RunError, match=r"checkpoint.npz cannot be "):
        served(tmp_path, terms, InProcessNodes(paths))


def test_a_server_starts_without_space(tmp_path: Path, small_disk: Path):
    config = tmp_path / "federation.yaml"
    (tmp_path / "items.csv").write_text("item_id\nx\ny\n")
    config.write_text(f"algorithm: fedfast\nitems: {tmp_path / 'items.csv'}\n")
    prepare_folder(config, small_disk / "new", SILENT)
    fill(small_disk)
    with pytest.raises(RunError, match=r"service\.json cannot be written .* Free some space"):
        prepare_folder(config, small_disk / "new", SILENT)


def test_a_lock_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(RunError, match=r"\.lock cannot be written \(Not a directory\)"),
        run_folder.locked(tmp_path / "file"),
    ):
        pass


def test_whoever_asks_whether_a_server_runs_need_not_write(tmp_path: Path):
    assert not is_served(tmp_path)
    assert not (tmp_path / ".lock").exists()
    with run_folder.locked(tmp_path):
        assert is_served(tmp_path)
    assert not is_served(tmp_path)


@pytest.mark.long
def test_a_whole_federation_without_space(site: Site, small_disk: Path):  # noqa: F811
    """Exit code 2 and one line; the nodes wait, and the next server resumes."""
    site.files(2, PFPL.replace("rounds_an_epoch: 2", "rounds_an_epoch: 100"))
    server = site.start(
        *("serve", "--config", "fed.yaml", "--out", "run/of", "--server", site.server, "--insecure")
    )
    site.wait(lambda: "serving at" in site.log(server), 60)
    for node in range(2):
        site.join(node, "--insecure")
    checkpoint = small_disk / "of" / "checkpoint.npz"
    site.wait(checkpoint.exists, 60)
    fill(small_disk)
    site.wait(lambda: server.poll() is not None, 60)
    assert server.returncode == 2
    assert "No space left on device" in site.log(server)
    assert "Traceback" not in site.log(server)
    (small_disk / "filler").unlink()
    again = site.start(
        *("serve", "--config", "fed.yaml", "--out", "run/of", "--server", site.server, "--insecure")
    )
    site.wait(lambda: again.poll() is not None, 120)
    assert again.returncode == 0, site.log(again)
