"""Runs that the console starts, stops and resumes: processes by the same command lines."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from coterie.console.commands import run_options
from coterie.console.folders import id_of
from coterie.console.summaries import LOCK
from coterie.core.printable import one_line
from coterie.errors import RunError
from coterie.experiments import run_folder
from coterie.experiments.config import Experiment

MOST_RUNNING = 4
"""Runs of the console at a time."""
MOST_REMEMBERED = 100
LAST_BYTES = 4096
PROGRAM = (sys.executable, "-m", "coterie.cli.main")


@dataclass(slots=True)
class Job:
    """A process that trains into a folder."""

    folder: Path
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    """What it prints. The file has no name: a process that goes on without the console keeps it."""
    experiment: Experiment | None = None
    """Of a new run, whose folder says nothing yet."""

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def failure(self) -> str:
        """The last line that it printed, if it failed."""
        if self.process.poll() in (None, 0):
            return ""
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, size - LAST_BYTES))
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"it ended with code {self.process.returncode}"
        return one_line(last.removeprefix("error: "))


@dataclass(slots=True)
class Jobs:
    out: Path
    """Where new runs go."""
    by_id: dict[str, Job] = field(default_factory=dict)
    recordings: dict[str, Job] = field(default_factory=dict)
    """Replays by the id of their run."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, experiment: Experiment) -> str:
        """Start a run in a folder of its own; returns the id of the run."""
        with self.lock:
            self._refuse_too_many()
            choice = experiment.choice
            name = f"{choice.algorithm}-{Path(choice.dataset).name.split('.')[0]}"
            folder = self._new_folder(name)
            command = ["run", *run_options(experiment), "--out", str(folder), "--quiet"]
            return self._remember(self.by_id, self._launch(folder, command, experiment))

    def resume(self, folder: Path) -> str:
        """Resume a run of one machine."""
        if (folder / "terms.json").exists():
            raise RunError(
                f"{folder} belongs to a federation, whose keys are not here; expected a run of one "
                f"machine. Resume it where it ran: coterie serve --config FILE --out {folder}"
            )
        if (folder / "result.json").exists():
            raise RunError(f"{folder} is finished; expected an unfinished run. Start a new one.")
        with self.lock:
            self._refuse_too_many()
            if run_folder.is_held(folder / LOCK):
                raise RunError(f"{folder} is running; expected a stopped run. Wait for it.")
            job = self._launch(folder, ["resume", str(folder), "--quiet"])
            return self._remember(self.by_id, job)

    def record(self, folder: Path) -> None:
        """Replay a finished run and record it beside the run."""
        with self.lock:
            earlier = self.recordings.get(id_of(folder))
            if earlier is not None and earlier.is_running:
                return
            self._refuse_too_many()
            job = self._launch(folder, ["record", str(folder), "--quiet"])
            self._remember(self.recordings, job)

    def stop(self, folder: Path) -> None:
        """Interrupt the process that trains, as Ctrl-C does: it saves a checkpoint."""
        job = self.by_id.get(id_of(folder))
        if job is not None and job.is_running:
            job.process.send_signal(signal.SIGINT)
            return
        number = run_folder.holder(folder / LOCK)
        if number is None or not _has_open(number, folder / LOCK):
            raise RunError(
                f"{folder} is written by no process of this machine that is known; expected a "
                "running one. Reload the page, or stop it where it runs with Ctrl-C."
            )
        try:
            os.kill(number, signal.SIGINT)
        except OSError as error:
            raise RunError(
                f"process {number}, which writes {folder}, cannot be stopped ({error.strerror}). "
                "Stop it where it runs with Ctrl-C."
            ) from None

    def failure(self, run: str) -> str:
        """Why a run that was started here failed; "" if it did not."""
        job = self.by_id.get(run)
        if job is None:
            return ""
        failure = job.failure
        if failure:
            # Of a run that failed before it began, an empty folder is left.
            with contextlib.suppress(OSError):
                job.folder.rmdir()
        return failure

    def _refuse_too_many(self) -> None:
        jobs = [*self.by_id.values(), *self.recordings.values()]
        running = [job for job in jobs if job.is_running]
        if len(running) >= MOST_RUNNING:
            raise RunError(
                f"{len(running)} runs of the console are running; expected fewer than "
                f"{MOST_RUNNING} before another one begins. Wait for one, or stop one."
            )

    def _new_folder(self, name: str) -> Path:
        for number in range(1, 1_000_000):
            folder = self.out / f"{name}-{number}"
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise run_folder.not_written(folder, error) from None
            return folder
        raise RunError(f"{self.out} holds a million runs of {name}. Name another folder.")

    def _launch(
        self, folder: Path, arguments: Sequence[str], experiment: Experiment | None = None
    ) -> Job:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 the process writes to it as long as it runs
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # Ctrl-C ends the console, not the runs that it started.
            start_new_session=True,
        )
        return Job(folder, process, errors, experiment)

    def _remember(self, jobs: dict[str, Job], job: Job) -> str:
        """Returns the id of the job's run."""
        run = id_of(job.folder)
        jobs[run] = job
        for old in list(jobs)[:-MOST_REMEMBERED]:
            if not jobs[old].is_running:
                jobs.pop(old).errors.close()
        return run


def _has_open(number: int, path: Path) -> bool:
    """Whether a process has a file open. Whoever can write the file could name any process."""
    if not sys.platform.startswith("linux"):
        return True
    try:
        files = [file.readlink() for file in Path(f"/proc/{number}/fd").iterdir()]
    except OSError:
        return False
    return path.resolve() in files
