"""Two reverse proxies: one protects a SuperLink from the network, one a SuperNode from its server.

A SuperLink serves nodes and its operator at one address and does not authenticate the operator:
whoever reaches it can make it run a program. So it listens on loopback only, and others reach the
server gate: TLS, a node's twelve calls, and bodies of bounded size.
A SuperNode runs any program that a server sends. So it connects to the node gate, which verifies
the server with the federation's authority and passes on only our program: a name without code.

    python -m coterie.deployment.flower.gate server|node HOST:PORT LINK_URL [CA [CERTIFICATE KEY]]
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Iterable
from io import BytesIO
from zipfile import BadZipFile, ZipFile

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coterie.deployment.flower.processes import CLIENT, Address

CALLS = re.compile(
    r"/v1/fleet/(register-node|activate-node|deactivate-node|unregister-node"
    r"|send-node-heartbeat|pull-messages|push-messages|get-run|get-fab"
    r"|push-object|pull-object|confirm-message-received)"
)
PROGRAM = "/v1/fleet/get-fab"
FILES = [".info/CONTENT", "pyproject.toml"]
MAX_BYTES = 1 << 28
"""Largest body of a request or reply; Flower splits larger ones."""
MAX_FILE_BYTES = 1 << 16
"""Largest file in our program's archive."""
DROPPED_HEADERS = {
    "host",
    "connection",
    "transfer-encoding",
    "keep-alive",
    "upgrade",
    "te",
    "trailer",
    "content-length",
    "content-encoding",
}
"""Headers of one connection, which a proxy must not forward."""


class BodyTooLarge(Exception):
    pass


def app(
    link: str, ca: str | None, allows_program: Callable[[bytes], bool] = lambda data: True
) -> Starlette:
    """A proxy to the SuperLink at `link`; `allows_program` decides about programs it returns."""
    client = httpx.AsyncClient(base_url=link, verify=ca or False, timeout=60)

    async def forward(request: Request) -> Response:
        # The full path, not the route's parameter, which lacks the leading slash.
        path = request.scope["path"]
        if not CALLS.fullmatch(path):
            return Response(status_code=404)
        try:
            body = await read_bounded(request.headers.get("content-length"), request.stream())
            headers = _forwarded(request.headers.items())
            async with client.stream("POST", path, content=body, headers=headers) as reply:
                length = reply.headers.get("content-length")
                content = await read_bounded(length, reply.aiter_bytes())
        except BodyTooLarge:
            return Response(status_code=413)
        except httpx.HTTPError:
            return Response(status_code=503)
        if path == PROGRAM and reply.is_success and not allows_program(content):
            return Response(status_code=403)
        return Response(content, reply.status_code, _forwarded(reply.headers.items()))

    return Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])])


def _forwarded(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in headers if name not in DROPPED_HEADERS}


async def read_bounded(length: str | None, parts: AsyncIterator[bytes]) -> bytes:
    """Read a body; refuse it as soon as its announced or actual size is too large."""
    if length is not None and (not length.isdecimal() or int(length) > MAX_BYTES):
        raise BodyTooLarge
    received: list[bytes] = []
    async for part in parts:
        received.append(part)
        if sum(map(len, received)) > MAX_BYTES:
            raise BodyTooLarge
    return b"".join(received)


def is_our_program(data: bytes) -> bool:
    """Whether a program only names our app, without code and without dependencies."""
    from flwr.proto.fab_pb2 import GetFabResponse
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        with ZipFile(BytesIO(GetFabResponse.FromString(data).fab.content)) as archive:
            if sorted(archive.namelist()) != FILES:
                return False
            if any(file.file_size > MAX_FILE_BYTES for file in archive.infolist()):
                return False
            project = tomllib.loads(archive.read("pyproject.toml").decode())
        components = project["tool"]["flwr"]["app"]["components"]
        has_dependencies = bool(project["project"].get("dependencies"))
        return bool(components["clientapp"] == CLIENT and not has_dependencies)
    except (
        DecodeError,
        BadZipFile,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        OSError,
        NotImplementedError,
        RuntimeError,
    ):
        return False


def main(
    side: str, address: str, link: str, ca: str = "", certificate: str = "", key: str = ""
) -> None:
    import uvicorn

    listen = Address.of(address)
    allows_program = is_our_program if side == "node" else lambda data: True
    uvicorn.run(
        app(link, ca or None, allows_program),
        host=listen.host,
        port=listen.port,
        ssl_certfile=certificate or None,
        ssl_keyfile=key or None,
        log_level="warning",
        access_log=False,
        limit_concurrency=1000,
        timeout_keep_alive=30,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
