"""Page 4: one user of a simulation."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from coterie.console.commands import disclosure_options, recommend_options, shown_command
from coterie.console.folders import FoundFolder
from coterie.console.inspecting import inspect_user
from coterie.console.pages.clusters import recording_state
from coterie.console.pages.live import RunId
from coterie.console.pages.replies import as_reply
from coterie.console.plain_json import finite
from coterie.console.recordings.recording import Recording
from coterie.console.workspace import Workspace
from coterie.core.printable import one_line
from coterie.errors import RunError
from coterie.experiments import run_folder
from coterie.experiments.finished_run import Run
from coterie.models.item_based import ItemBased
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
    about["commands"] = _commands(folder, model, recording, user)
    return finite(about | {"user": inspect_user(model, recording, user)})


def _commands(
    folder: FoundFolder, run: Run, recording: Recording | None, user: int
) -> list[JsonObject]:
    """The command lines that make what the page shows, apart from the recording."""
    user_id = str(run.catalogue.user_ids[user])
    commands: list[JsonObject] = []
    # An id with control characters is not put into a line that is pasted into a terminal.
    if one_line(user_id) == user_id:
        has_reasons = isinstance(run.model, ItemBased)
        options = recommend_options(folder.path, user_id, has_reasons)
        commands.append(_titled("The recommendations on the command line", options))
    if recording is not None and recording.inferred is not None:
        after = int(recording.inferred.after[-1])
        options = disclosure_options(folder.path, after)
        commands.append(_titled("What attackers infer of all users, on the command line", options))
    return commands


def _titled(title: str, options: list[str]) -> JsonObject:
    return {"title": title, "command": shown_command(options)}


def _simulation(workspace: Workspace, run: str) -> FoundFolder:
    folder = workspace.folder(run)
    if folder.kind == "federation":
        raise RunError(f"{folder.name} is a federation. {DEPLOYMENT}")
    return folder
