"""Page 1: the table of runs, and the comparison of a selection."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from coterie.console.commands import report_options, shown_command
from coterie.console.comparing import MOST_RUNS, compare_runs
from coterie.console.pages.replies import as_reply
from coterie.console.workspace import Workspace
from coterie.types import JsonObject

RunIds = Annotated[list[str], Query(alias="run", max_length=MOST_RUNS)]


def runs_page(workspace: Workspace) -> APIRouter:
    router = APIRouter()

    @router.get("/api/runs")
    async def list_runs() -> Response:
        """Every run and federation in the folders."""
        return as_reply(await run_in_threadpool(all_runs, workspace))

    @router.get("/api/compare")
    async def compare(run: RunIds) -> Response:
        """A selection of finished runs side by side."""
        return as_reply(await run_in_threadpool(selection, workspace, run))

    return router


def all_runs(workspace: Workspace) -> JsonObject:
    runs = workspace.runs()
    return {
        "folders": [str(root) for root in workspace.folders.roots],
        "runs": [summary.as_json() for summary in runs],
    }


def selection(workspace: Workspace, runs: list[str]) -> JsonObject:
    folders = [workspace.folder(run) for run in dict.fromkeys(runs)]
    report = shown_command(report_options([folder.path for folder in folders]))
    return compare_runs(folders) | {"report": report}
