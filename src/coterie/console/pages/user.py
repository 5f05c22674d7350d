"""Page 4: one user of a simulation."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from coterie.console.folders import FoundFolder
from coterie.console.inspecting import inspect_user
from coterie.console.pages.clusters import recording_state
from coterie.console.pages.live import RunId
from coterie.console.pages.replies import as_reply
from coterie.console.plain_json import finite
from coterie.console.workspace import Workspace
from coterie.core.printable import one_line
from coterie.errors import RunError
from coterie.experiments import run_folder
from coterie.serving.model import UnknownId
from coterie.types import JsonObject

MOST_LISTED = 60
UserIndex = Annotated[int, Query(ge=0, lt=2**31)]
SearchText = Annotated[str, Query(max_length=200)]
DEPLOYMENT = (
    "The users of a deployment cannot be inspected. Their histories and recommendations are on "
    "their own devices and nodes, and the console has no means to ask for them. A simulation has "
    "them, because its data is in one place."
)


def user_page(workspace: Workspace) -> APIRouter:
    router = APIRouter()

    @router.get("/api/users")
    async def users(run: RunId, search: SearchText = "") -> Response:
        """Users whose id has a text in it."""
        return as_reply(await run_in_threadpool(found_users, workspace, run, search))

    @router.get("/api/user")
    async def one_user(run: RunId, user: UserIndex) -> Response:
        """History, recommendations, and what the server had of a user."""
        return as_reply(await run_in_threadpool(about_user, workspace, run, user))

    return router


def found_users(workspace: Workspace, run: str, search: str) -> JsonObject:
    folder = _simulation(workspace, run)
    catalogue = run_folder.read_catalogue(folder.path)
    wanted = search.strip().casefold()
    counts = catalogue.seen.counts
    found = [n for n, name in enumerate(catalogue.user_ids) if wanted in str(name).casefold()]
    # An id that is all of the text comes first.
    found.sort(key=lambda n: str(catalogue.user_ids[n]).casefold() != wanted)
    listed = [
        {"index": n, "id": one_line(catalogue.user_ids[n]), "items": int(counts[n])}
        for n in found[:MOST_LISTED]
    ]
    return recording_state(workspace, folder) | {"users": listed, "n_found": len(found)}


def about_user(workspace: Workspace, run: str, user: int) -> JsonObject:
    folder = _simulation(workspace, run)
    about = recording_state(workspace, folder)
    model = workspace.models.of(folder.path)
    n_users = len(model.catalogue.user_ids)
    if user >= n_users:
        raise UnknownId(
            f"user index is {user}; expected one below {n_users:,}, the users of the run. "
            "Search for the user."
        )
    recording = workspace.recordings.of(folder.path) if about["is_recorded"] else None
    if recording is not None:
        about |= {"n_rounds": recording.n_rounds, "is_open": recording.received is not None}
    return finite(about | {"user": inspect_user(model, recording, user)})


def _simulation(workspace: Workspace, run: str) -> FoundFolder:
    folder = workspace.folder(run)
    if folder.kind == "federation":
        raise RunError(f"{folder.name} is a federation. {DEPLOYMENT}")
    return folder
