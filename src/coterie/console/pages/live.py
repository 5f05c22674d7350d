"""Page 2: one run or federation, while it trains and afterwards."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from coterie.console.details import details
from coterie.console.following import MOST_VIEWERS, RunFollowers
from coterie.console.pages.replies import as_reply
from coterie.console.workspace import Workspace
from coterie.serving.app import failure
from coterie.types import JsonObject

RunId = Annotated[str, Field(max_length=64)]


class RunRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    run: RunId


def live_page(workspace: Workspace, followers: RunFollowers) -> APIRouter:
    router = APIRouter()

    @router.get("/api/run")
    async def about_a_run(run: RunId) -> Response:
        """The result, settings and curve of a run."""
        return as_reply(await run_in_threadpool(read, workspace, run))

    @router.get("/api/events")
    async def events(
        request: Request, run: RunId, after: Annotated[int, Query(ge=0, lt=2**53)] = 0
    ) -> Response:
        """The rounds of a run as they come, from a byte of its log on (server-sent events)."""
        if followers.is_full:
            return failure(
                503, f"{MOST_VIEWERS} pages follow runs; expected fewer. Close some of them."
            )
        look_up = await run_in_threadpool(workspace.look_up, run)
        last = request.headers.get("last-event-id", "")
        start = int(last) if last.isdecimal() and len(last) < 17 else after
        stream = followers.events(run, look_up, start)
        return StreamingResponse(stream, media_type="text/event-stream")

    @router.post("/api/stop")
    async def stop(asked: RunRequest) -> Response:
        """Interrupt a run; it saves a checkpoint."""
        await run_in_threadpool(stop_run, workspace, asked.run)
        return as_reply({"run": asked.run})

    @router.post("/api/resume")
    async def resume(asked: RunRequest) -> Response:
        """Resume a stopped run as a process of its own."""
        folder = workspace.folder(asked.run)
        await run_in_threadpool(workspace.jobs.resume, folder.path)
        return as_reply({"run": asked.run})

    return router


def read(workspace: Workspace, run: str) -> JsonObject:
    folder, summary, error = workspace.look_up(run)()
    if folder is None:
        return {"summary": None, "error": error}
    return details(folder, summary) | {"error": error}


def stop_run(workspace: Workspace, run: str) -> None:
    job = workspace.jobs.by_id.get(run)
    workspace.jobs.stop(workspace.folder(run).path if job is None else job.folder)
