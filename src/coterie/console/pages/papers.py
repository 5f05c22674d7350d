"""Page 5: reproductions of papers with their scoreboards."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from coterie.console.pages.replies import as_reply
from coterie.console.papers import read_papers
from coterie.console.workspace import Workspace
from coterie.types import JsonObject


def papers_page(workspace: Workspace) -> APIRouter:
    router = APIRouter()

    @router.get("/api/papers")
    async def papers() -> Response:
        """Every reproduction in the folders."""
        return as_reply(await run_in_threadpool(all_papers, workspace))

    return router


def all_papers(workspace: Workspace) -> list[JsonObject]:
    return read_papers(workspace.papers())
