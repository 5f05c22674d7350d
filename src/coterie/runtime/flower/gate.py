"""The gate in front of a SuperLink: nodes' calls pass, and nothing else.

A SuperLink answers nodes and whoever commands it at one address, and asks the latter for nothing: who reaches it can hand it a program to
run. So it listens on loopback alone, and what others reach is this: TLS, the dozen calls of a node, and bodies of bounded size.

    python -m coterie.runtime.flower.gate HOST:PORT LINK_PORT [CERTIFICATE KEY CA]
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coterie.runtime.flower.processes import Address

CALLS = re.compile(
    r"/v1/fleet/(register-node|activate-node|deactivate-node|unregister-node|send-node-heartbeat|pull-messages|push-messages|get-run|get-fab"
    r"|push-object|pull-object|confirm-message-received)"
)
MOST_BYTES = 1 << 28
"""Of one call; Flower cuts what is larger into several."""
NOT_PASSED_ON = {"host", "connection", "transfer-encoding", "keep-alive", "upgrade", "te", "trailer"}


class TooLarge(Exception):
    pass


def app(link: str, ca: str | None) -> Starlette:
    client = httpx.AsyncClient(base_url=link, verify=ca or False, timeout=60)

    async def forward(request: Request) -> Response:
        path = request.scope["path"]  # as it came, with nothing left out
        if not CALLS.fullmatch(path):
            return Response(status_code=404)
        try:
            body = b"".join([part async for part in bounded(request)])
            headers = {name: value for name, value in request.headers.items() if name not in NOT_PASSED_ON}
            said = await client.post(path, content=body, headers=headers)
        except TooLarge:
            return Response(status_code=413)
        except httpx.HTTPError:
            return Response(status_code=503)
        kept = {
            name: value
            for name, value in said.headers.items()
            if name not in NOT_PASSED_ON | {"content-encoding", "content-length"}
        }
        return Response(said.content, said.status_code, kept)

    return Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])])


async def bounded(request: Request) -> AsyncIterator[bytes]:
    """A body, refused as soon as it says that it is too large, or is."""
    if (
        not request.headers.get("content-length", "0").isdecimal()
        or int(request.headers.get("content-length", "0")) > MOST_BYTES
    ):
        raise TooLarge
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise TooLarge
        yield part


def main(server: str, port: str, certificate: str | None = None, key: str | None = None, ca: str | None = None) -> None:
    import uvicorn

    address, scheme = Address.of(server), "https" if ca else "http"
    uvicorn.run(
        app(f"{scheme}://127.0.0.1:{port}", ca), host=address.host, port=address.port, ssl_certfile=certificate, ssl_keyfile=key,
        log_level="warning", access_log=False, limit_concurrency=1000, timeout_keep_alive=30,
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
