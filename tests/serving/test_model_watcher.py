"""A new model replaces the old one without a failed request; a broken one does not."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from asking import Caller

from coterie.errors import RunError
from coterie.serving import sources, watcher
from coterie.serving.sources import RunFolder, source_of
from coterie.serving.watcher import ModelWatcher


@pytest.fixture(autouse=True)
def _quick_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "REST_SECONDS", 0.01)


def replace_link(link: Path, target: Path) -> None:
    fresh = link.with_name("fresh")
    fresh.symlink_to(target)
    fresh.replace(link)


def copy_over(folder: Path, other: Path) -> None:
    """Replace the files of a run one by one, each at once, as a run writes them."""
    for file in other.iterdir():
        if file.is_file():
            fresh = folder / f".{file.name}.1"
            shutil.copyfile(file, fresh)
            fresh.replace(folder / file.name)


def test_a_changed_run_replaces_the_model(fedals: Path, trained: Callable[..., Path]) -> None:
    lines: list[str] = []
    watching = ModelWatcher(RunFolder(fedals), lines.append)
    first = watching.current
    watching.check()
    assert watching.current is first
    copy_over(fedals, trained("fedals", seed=2))
    watching.check()
    assert watching.current.version != first.version
    assert watching.current.version == RunFolder(trained("fedals", seed=2)).load().version
    assert lines == [f"{fedals}: version {watching.current.version} replaces {first.version}."]


def test_a_link_to_another_run_replaces_the_model(
    trained: Callable[..., Path], tmp_path: Path
) -> None:
    link = tmp_path / "served"
    link.symlink_to(trained("fedals"))
    watching = ModelWatcher(source_of(link))
    replace_link(link, trained("ease"))
    watching.check()
    assert watching.current.algorithm == "ease"


BREAKAGES: dict[str, Callable[[Path], object]] = {
    "cut short": lambda run: (run / "model.npz").write_bytes(b"PK\x03\x04"),
    "removed": lambda run: (run / "model.npz").unlink(),
    "other kind": lambda run: (run / "model.json").write_text('{"kind": "nothing"}'),
    "not JSON": lambda run: (run / "result.json").write_text("{"),
    "folder gone": shutil.rmtree,
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_failed_load_keeps_the_model_and_is_reported(
    breakage: str, fedals: Path, trained: Callable[..., Path]
) -> None:
    watching = ModelWatcher(RunFolder(fedals))
    api = Caller.of(watching)
    before = api.get("/recommendations", user="7").data
    BREAKAGES[breakage](fedals)
    watching.check()
    health = api.get("/health").data
    assert health["status"] == "outdated"
    assert str(fedals) in health["failed_load"]["error"]
    assert api.get("/recommendations", user="7").data == before
    shutil.rmtree(fedals, ignore_errors=True)
    shutil.copytree(trained("fedals", seed=2), fedals)
    watching.check()
    assert api.get("/health").data["status"] == "ok"
    assert api.get("/recommendations", user="7").data["version"] != before["version"]


def test_a_failed_load_is_tried_again_later(fedals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "RETRY_SECONDS", 0.0)
    watching = ModelWatcher(RunFolder(fedals))
    content = (fedals / "model.npz").read_bytes()
    (fedals / "model.npz").write_bytes(b"")
    watching.check()
    assert watching.failed is not None
    # The same stamp as the broken file: only the time that passed makes it try again.
    (fedals / "model.npz").write_bytes(content)
    watching.tried = watching.source.stamp()
    watching.check()
    assert watching.failed is None


def test_files_of_two_models_are_never_mixed(
    fedals: Path, trained: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is written while it is read: the load starts again."""
    other = trained("fedals", n_users=50, n_items=60)
    loads: list[Path] = []
    peek = sources.Run.peek

    def peek_while_written(folder: Path) -> object:
        loads.append(folder)
        run = peek(folder)
        if len(loads) == 2:
            copy_over(fedals, other)
        return run

    monkeypatch.setattr(sources.Run, "peek", peek_while_written)
    watching = ModelWatcher(RunFolder(fedals))
    (fedals / "model.npz").touch()
    watching.check()
    assert len(loads) == 3
    assert watching.current.version == RunFolder(other).load().version


def test_a_folder_that_never_rests_is_an_error(
    fedals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "TRIES", 3)
    monkeypatch.setattr(sources.time, "sleep", lambda _: (fedals / "model.npz").touch())
    with pytest.raises(RunError, match="changed 3 times while it was read"):
        RunFolder(fedals).load()


def test_requests_during_reloads_all_succeed(trained: Callable[..., Path], tmp_path: Path) -> None:
    """Users of the two models differ in number, so that a mixed answer would fail."""
    runs = [trained("fedals"), trained("fedals", seed=2, n_items=60)]
    link = tmp_path / "served"
    link.symlink_to(runs[0])
    watching = ModelWatcher(source_of(link))
    api = Caller.of(watching)
    lists = {}
    for run in runs:
        model = RunFolder(run).load()
        lists[model.version] = model.for_user(int(model.users(["7"])[0]), 10, exclude_seen=True)
    watching.start(0.01)
    answers = []
    stop = threading.Event()

    def replace_often() -> None:
        for k in range(6):
            replace_link(link, runs[(k + 1) % 2])
            stop.wait(0.15)
        stop.set()

    thread = threading.Thread(target=replace_often)
    thread.start()
    while not stop.is_set():
        answers.append(api.get("/recommendations", user="7"))
    thread.join()
    watching.stop()
    assert {answer.status for answer in answers} == {200}
    assert {answer.data["version"] for answer in answers} == set(lists)
    for answer in answers:
        version = answer.data["version"]
        assert f'"items": {lists[version]}, "version": "{version}"'.encode() in answer.body


def test_a_path_that_is_neither(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist; expected a run folder or a node's store"):
        source_of(tmp_path / "nothing")
    (tmp_path / "file").write_text("text")
    with pytest.raises(RunError, match="is not a node's store"):
        ModelWatcher(source_of(tmp_path / "file"))
    with pytest.raises(RunError, match="Name the folder that"):
        ModelWatcher(source_of(tmp_path))
