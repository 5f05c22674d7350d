"""Page 3: users' embeddings in two dimensions, round by round, with selections and clusters."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from coterie.console.commands import shown_command
from coterie.console.folders import FoundFolder
from coterie.console.pages.live import RunId, RunRequest
from coterie.console.pages.replies import as_reply
from coterie.console.plain_json import finite
from coterie.console.recordability import why_not
from coterie.console.recordings.recording import NAME, Recording
from coterie.console.recordings.replay_progress import read_progress
from coterie.console.recordings.user_map import UserMap
from coterie.console.workspace import Workspace
from coterie.core.printable import one_line
from coterie.errors import RunError
from coterie.experiments import run_folder
from coterie.types import JsonObject

NO_EMBEDDINGS = (
    "This algorithm has no embedding of a user that lasts from round to round, so that there is "
    "nothing to draw."
)
LONGEST_ID = 80


def clusters_page(workspace: Workspace) -> APIRouter:
    router = APIRouter()

    @router.get("/api/map")
    async def about_the_map(run: RunId) -> Response:
        """What there is to draw of a run, and whether it is being recorded."""
        return as_reply(await run_in_threadpool(map_of, workspace, run))

    @router.get("/api/map/points")
    async def points(run: RunId) -> Response:
        """Places, clusters and selections of all rounds, as bytes."""
        content = await run_in_threadpool(points_of, workspace, run)
        return Response(content, media_type="application/octet-stream")

    @router.post("/api/record")
    async def record(asked: RunRequest) -> Response:
        """Replay and record a run, as a process of its own."""
        await run_in_threadpool(begin_recording, workspace, asked.run)
        return as_reply({"run": asked.run})

    return router


def begin_recording(workspace: Workspace, run: str) -> None:
    folder = workspace.folder(run)
    reason = why_not(folder, workspace.summaries.of(folder))
    if reason:
        raise RunError(f"{folder.name} cannot be recorded. {reason}")
    workspace.jobs.record(folder.path)


def recording_state(workspace: Workspace, folder: FoundFolder) -> JsonObject:
    """The part of a reply that says whether there is a recording, and how to get one."""
    summary = workspace.summaries.of(folder)
    job = workspace.jobs.recordings.get(folder.id)
    is_recording = job is not None and job.is_running
    played = read_progress(folder.path) if is_recording else None
    return {
        "name": folder.name,
        "run": folder.id,
        "algorithm": summary.algorithm,
        "dataset": summary.dataset,
        "is_recorded": folder.has(NAME),
        "is_recording": is_recording,
        "played": None if played is None else asdict(played),
        "error": "" if job is None else job.failure,
        "why_not": why_not(folder, summary),
        "command": shown_command(["record", str(folder.path)]),
        "rounds_of_the_run": summary.rounds,
        "seconds_of_the_run": summary.seconds,
    }


def map_of(workspace: Workspace, run: str) -> JsonObject:
    folder = workspace.folder(run)
    about = recording_state(workspace, folder)
    if not about["is_recorded"] or about["why_not"]:
        return about | {"map": None}
    recording = workspace.recordings.of(folder.path)
    if recording.user_map is None:
        return about | {"map": None, "why_not": NO_EMBEDDINGS}
    return finite(about | {"map": _described(folder, recording, recording.user_map)})


def _described(folder: FoundFolder, recording: Recording, found: UserMap) -> JsonObject:
    """What the page needs besides the bytes."""
    ids = run_folder.read_catalogue(folder.path).user_ids
    return {
        "rounds": found.rounds.tolist(),
        "users": [one_line(ids[user])[:LONGEST_ID] for user in found.users],
        "indices": found.users.tolist(),
        "all_users": len(ids),
        "clusters": int(found.clusters.max(initial=-1)) + 1,
        "centres": found.centres.tolist(),
        "explained": found.explained.tolist(),
        "difference": recording.difference,
        "seconds": recording.seconds,
    }


def points_of(workspace: Workspace, run: str) -> bytes:
    """uint16 places, then int16 clusters, then uint8 selections, frame by frame."""
    folder = workspace.folder(run)
    found = workspace.recordings.of(folder.path).user_map
    if found is None:
        raise RunError(f"{folder.name} has no map. {NO_EMBEDDINGS}")
    return b"".join(each.tobytes() for each in (found.places, found.clusters, found.selections))
