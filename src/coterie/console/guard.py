"""What every request and reply of the console passes: checks of the caller, and headers.

It stands before all pages, so that no page can forget it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coterie.console.session import CSRF_HEADER, WRITES, Session
from coterie.core.page_headers import page_headers
from coterie.serving.gate import reply

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/"
LOGIN = "/api/session"
READING = ("GET", "HEAD")
# Figures are saved as images by way of data: and blob: addresses.
HEADERS = page_headers(img="data: blob:")


@dataclass(slots=True)
class SecureHeaders:
    """Adds the headers to every reply, also to refusals."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), *HEADERS]
                if not any(name.lower() == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, with_headers)


@dataclass(slots=True)
class Guard:
    """Refuses requests of other sites, writes without the token, and unknown readers."""

    app: ASGIApp
    session: Session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal is not None:
                await reply(send, *refusal)
                return
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """(status, reason) of a request that goes no further."""
        headers = dict(scope["headers"])
        is_write = scope["method"] not in READING
        if not (is_write or scope["path"].startswith(API)):
            return None
        site = headers.get(b"sec-fetch-site", b"same-origin")
        if site not in (b"same-origin", b"none") or _is_foreign(headers, is_write):
            return 403, "the request comes from another site; expected the console's own pages."
        if scope["path"] == LOGIN:
            return None
        cookies = headers.get(b"cookie", b"")
        if is_write and not self.session.may_write(cookies, headers.get(CSRF_HEADER, b"")):
            return 403, f"the token is missing or wrong; expected it for every change. {WRITES}"
        if not self.session.readable_by_all and not self.session.knows(cookies):
            return 403, f"the token is missing or wrong; expected it beyond loopback. {WRITES}"
        return None


def _is_foreign(headers: dict[bytes, bytes], is_write: bool) -> bool:
    """Whether a write names another origin than the one it is sent to."""
    origin = headers.get(b"origin")
    if not is_write or origin is None:
        return False
    return origin.partition(b"://")[2] != headers.get(b"host", b"")
