"""The session: whether this browser may write, and how it gets permission."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from coterie.console.pages.replies import as_reply
from coterie.console.session import Session
from coterie.serving.app import failure

WRONG_TOKEN_SECONDS = 0.5
"""A wrong token is answered after this long."""


class TokenRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, Field(max_length=512)]


def session_page(session: Session) -> APIRouter:
    router = APIRouter()

    @router.get("/api/session")
    async def about_the_session(request: Request) -> Response:
        """Whether this browser may write, and what it must send to do so."""
        known = session.knows(request.headers.get("cookie", "").encode("latin-1"))
        return as_reply({"may_write": known, "csrf": session.csrf if known else ""})

    @router.post("/api/session")
    async def enter_token(asked: TokenRequest) -> Response:
        """Give this browser its cookie."""
        if not session.accepts(asked.token):
            await asyncio.sleep(WRONG_TOKEN_SECONDS)
            return failure(
                403,
                "the token is wrong; expected the one that `coterie console` printed last. Copy it "
                "from the terminal.",
            )
        reply = as_reply({"may_write": True, "csrf": session.csrf})
        reply.headers["set-cookie"] = session.set_cookie()
        return reply

    return router
