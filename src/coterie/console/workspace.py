"""What all pages share: the folders, the summaries of runs, and the runs that were started."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from coterie.console.folders import Folders, FoundFolder
from coterie.console.following import LookUp
from coterie.console.jobs import Jobs
from coterie.console.latest import Latest
from coterie.console.recordings.recording import NAME as RECORDING
from coterie.console.recordings.recording import Recording
from coterie.console.summaries import RESULT, RunSummaries, RunSummary
from coterie.core.printable import one_line
from coterie.experiments.finished_run import Run
from coterie.serving.model import UnknownId


@dataclass(slots=True)
class Workspace:
    folders: Folders
    jobs: Jobs
    summaries: RunSummaries = field(default_factory=RunSummaries)
    recordings: Latest[Recording] = field(default_factory=lambda: Latest(Recording.read, RECORDING))
    models: Latest[Run] = field(default_factory=lambda: Latest(Run.load, RESULT))

    @classmethod
    def of(cls, folders: Folders) -> Workspace:
        return cls(folders, Jobs(folders.roots[0]))

    def runs(self) -> list[RunSummary]:
        """All runs and federations, the newest first."""
        found = self.folders.found()
        summaries = [self.summaries.of(one) for one in found.values() if one.kind != "paper"]
        starting = [self._starting(run) for run in self.jobs.by_id if run not in found]
        every = [*(one for one in starting if one is not None), *summaries]
        return sorted(every, key=lambda summary: -summary.changed)

    def papers(self) -> list[FoundFolder]:
        return [one for one in self.folders.found().values() if one.kind == "paper"]

    def folder(self, run: str) -> FoundFolder:
        """The folder of a run, by its id."""
        found = self.folders.found().get(run)
        if found is None or found.kind == "paper":
            raise UnknownId(
                f"run {run[:40]!r} is not in the folders of the console; expected one that is. "
                "Reload the list of runs."
            )
        return found

    def look_up(self, run: str) -> LookUp:
        """What a follower asks for again and again; a run that is not known is an error now."""
        starting = self._starting(run)
        found = None if starting is not None else self.folder(run)

        def now() -> tuple[FoundFolder | None, RunSummary, str]:
            nonlocal found
            error = self.jobs.failure(run)
            if found is None:
                found = self.folders.found().get(run)
            folder = None if found is None else self.folders.again(found)
            if folder is not None:
                return folder, self.summaries.of(folder), error
            starting = self._starting(run)
            gone = RunSummary(run, "", "", "run", error="The folder was removed.")
            return None, starting or gone, error

        return now

    def _starting(self, run: str) -> RunSummary | None:
        """The summary of a run that was started here and has written nothing yet."""
        job = self.jobs.by_id.get(run)
        if job is None or job.experiment is None:
            return None
        choice = job.experiment.choice
        summary = RunSummary(
            id=run,
            name=one_line(job.folder.name),
            folder=one_line(job.folder),
            kind="run",
            state="starting" if job.is_running else "stopped",
            algorithm=choice.algorithm,
            dataset=one_line(choice.dataset),
            protocol=choice.protocol or "",
            seed=choice.seed,
        )
        return replace(summary, error=job.failure)
