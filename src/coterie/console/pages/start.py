"""Page 6: start an experiment."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from coterie.console.commands import run_options, shown_command
from coterie.console.experiment_request import ExperimentRequest, FileRequest, refuse_outside
from coterie.console.form import choices, form
from coterie.console.pages.replies import as_reply
from coterie.console.preview import preview
from coterie.console.workspace import Workspace
from coterie.types import JsonObject

Name = Annotated[str, Field(max_length=4096)]


def start_page(workspace: Workspace) -> APIRouter:
    router = APIRouter()

    @router.get("/api/choices")
    async def what_to_choose() -> Response:
        """Algorithms, datasets, files and protocols."""
        return as_reply(await run_in_threadpool(everything, workspace))

    @router.get("/api/form")
    async def settings_form(algorithm: Name, dataset: Name) -> Response:
        """The settings of an algorithm with their defaults on a dataset."""
        refuse_outside(FileRequest(dataset=dataset), workspace.folders)
        return as_reply(await run_in_threadpool(form, algorithm, dataset))

    @router.post("/api/preview")
    async def look_at_data(asked: FileRequest) -> Response:
        """The first rows of a file, and what a run would read."""
        return as_reply(await run_in_threadpool(preview, asked, workspace.folders))

    @router.post("/api/check")
    async def check(asked: ExperimentRequest) -> Response:
        """The command line of an experiment, or what is wrong with it."""
        return as_reply(await run_in_threadpool(command_of, workspace, asked))

    @router.post("/api/start")
    async def start(asked: ExperimentRequest) -> Response:
        """Start the experiment as a process of its own."""
        return as_reply(await run_in_threadpool(begin, workspace, asked))

    return router


def everything(workspace: Workspace) -> JsonObject:
    files = [str(path) for path in workspace.folders.data_files()]
    return choices() | {"files": files, "out": str(workspace.jobs.out)}


def command_of(workspace: Workspace, asked: ExperimentRequest) -> JsonObject:
    experiment = asked.experiment(workspace.folders)
    return {"command": shown_command(["run", *run_options(experiment)])}


def begin(workspace: Workspace, asked: ExperimentRequest) -> JsonObject:
    experiment = asked.experiment(workspace.folders)
    return {"run": workspace.jobs.start(experiment)}
