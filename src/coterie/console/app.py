"""The console as an HTTP application: pages, static files, and checks around them."""

from __future__ import annotations

from coterie.errors import MissingExtra

try:
    from fastapi import FastAPI, Request
    from starlette.responses import Response
except ImportError:
    raise MissingExtra("coterie console", "web,report") from None

from coterie.console.following import RunFollowers
from coterie.console.guard import Guard
from coterie.console.pages.clusters import clusters_page
from coterie.console.pages.live import live_page
from coterie.console.pages.papers import papers_page
from coterie.console.pages.runs import runs_page
from coterie.console.pages.session import session_page
from coterie.console.pages.start import start_page
from coterie.console.pages.user import user_page
from coterie.console.session import Session
from coterie.console.static_files import static_files
from coterie.console.workspace import Workspace
from coterie.core.page_files import PageFile
from coterie.serving.app import add_error_replies, failure
from coterie.version import __version__

INDEX = "index.html"


def make_console(workspace: Workspace, session: Session, followers: RunFollowers) -> Guard:
    """The pages, behind the guard."""
    app = FastAPI(title="Coterie console", version=__version__, docs_url=None, redoc_url=None)
    for router in (
        session_page(session),
        runs_page(workspace),
        live_page(workspace, followers),
        clusters_page(workspace),
        user_page(workspace),
        start_page(workspace),
        papers_page(workspace),
    ):
        app.include_router(router)
    add_static_files(app, static_files())
    add_error_replies(app)
    return Guard(app, session)


def add_static_files(app: FastAPI, files: dict[str, PageFile]) -> None:
    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return file_reply(request, files[INDEX])

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(request: Request, name: str) -> Response:
        found = files.get(name)
        if found is None:
            return failure(404, f"there is no file {name[:80]!r} of the console. Check the path.")
        return file_reply(request, found)


def file_reply(request: Request, file: PageFile) -> Response:
    """The file, or nothing if the browser has it."""
    headers = {"etag": file.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
