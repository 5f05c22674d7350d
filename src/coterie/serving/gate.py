"""The outermost layer of the API: who calls, how large a body is, and no failure without a reply.

Everything is decided before a body is parsed. Histories are neither logged nor repeated in errors.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from coterie.core.http_body import BodyTooLarge, ConnectionBroke, check_length, read_body

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1 << 20
"""Largest body of a request."""
BODY_SECONDS = 20.0
"""Time in which a body must arrive."""


class CallerCheck(Protocol):
    """Who may call."""

    @property
    def other_names(self) -> str:
        """What the server needs to be reached by other names than those of this machine."""

    def accepts(self, authorization: bytes) -> bool:
        """Whether a request with this Authorization header may pass."""

    def accepts_host(self, host: bytes) -> bool:
        """Whether a request to this Host may pass."""


class TurnedAway(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


@dataclass(slots=True)
class ApiGate:
    app: ASGIApp
    access: CallerCheck
    log: Callable[[str], None] = lambda line: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def observed(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            body = await self._admitted(scope, receive)
            await self.app(scope, receive if body is None else replaying(body, receive), observed)
        except TurnedAway as refused:
            await reply(send, refused.status, str(refused))
        except Exception as error:  # a bug: the caller gets a reply, the operator a place to look
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.log(f"{type(error).__name__} at {place.filename}:{place.lineno}")
            if not started:
                await reply(send, 500, "internal error. Look for it in the server's output.")

    async def _admitted(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body, or None if there is none; TurnedAway if the request must not be read."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"")
        if not self.access.accepts_host(host):
            raise TurnedAway(
                421,
                f"the Host is {host[:80].decode('latin-1')!r}; expected localhost or 127.0.0.1. "
                f"To be reached by another name, the server needs {self.access.other_names}.",
            )
        if not self.access.accepts(headers.get(b"authorization", b"")):
            raise TurnedAway(
                401,
                "the token is missing or wrong; expected the header "
                "Authorization: Bearer TOKEN. Send the token of the server's --token-file.",
            )
        length = headers.get(b"content-length")
        if length is None and b"transfer-encoding" not in headers:
            return None
        try:
            check_length(None if length is None else length.decode("latin-1"), MOST_BYTES)
            return await asyncio.wait_for(read_body(receive, MOST_BYTES), BODY_SECONDS)
        except BodyTooLarge:
            raise TurnedAway(
                413,
                f"the body has more than {MOST_BYTES:,} bytes; expected fewer. "
                "Send smaller batches.",
            ) from None
        except ConnectionBroke:
            raise TurnedAway(400, "the connection broke") from None
        except TimeoutError:
            raise TurnedAway(
                408, f"the body did not arrive in {BODY_SECONDS:.0f} s. Send it again."
            ) from None


def replaying(body: bytes, receive: Receive) -> Receive:
    """What the app receives: the body that was read, then what follows it."""
    unread = [body]

    async def replay() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replay


def as_error(error: str) -> bytes:
    """The body of every failure. ASCII, because a text from a request may not be valid Unicode."""
    return json.dumps({"error": error}).encode()


async def reply(send: Send, status: int, error: str) -> None:
    """Reply to a request that goes no further, and close: its body may not have been read."""
    body = as_error(error)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
