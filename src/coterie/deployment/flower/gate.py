"""Gates: one before a SuperLink, which lets nodes' calls pass and nothing else, and one before a SuperNode, which lets no program in.

A SuperLink answers nodes and whoever commands it at one address, and asks the latter for nothing: who reaches it can hand it a program to
run. So it listens on loopback alone, and what others reach is this: TLS, the dozen calls of a node, and bodies of bounded size.
A SuperNode runs whatever program a server hands to it. So it asks a gate of its own, which trusts a server that the federation's
authority vouches for, and passes on no program but ours: a name, and not a line of code.

    python -m coterie.deployment.flower.gate server|node HOST:PORT LINK_URL [CA [CERTIFICATE KEY]]
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from zipfile import BadZipFile, ZipFile

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coterie.deployment.flower.processes import CLIENT, Address

CALLS = re.compile(
    r"/v1/fleet/(register-node|activate-node|deactivate-node|unregister-node|send-node-heartbeat|pull-messages|push-messages|get-run|get-fab"
    r"|push-object|pull-object|confirm-message-received)"
)
PROGRAM = "/v1/fleet/get-fab"
FILES = [".info/CONTENT", "pyproject.toml"]
MOST_BYTES = 1 << 28
"""Of one call, there and back; Flower cuts what is larger into several."""
MOST_TEXT = 1 << 16
NOT_PASSED_ON = {
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


class TooLarge(Exception):
    pass


def app(
    link: str, ca: str | None, programs: Callable[[bytes], bool] = lambda data: True
) -> Starlette:
    """`programs`: whether one that comes from the other side may pass."""
    client = httpx.AsyncClient(base_url=link, verify=ca or False, timeout=60)

    async def forward(request: Request) -> Response:
        path = request.scope["path"]  # as it came, with nothing left out
        if not CALLS.fullmatch(path):
            return Response(status_code=404)
        try:
            body = await bounded(request.headers.get("content-length"), request.stream())
            headers = {
                name: value for name, value in request.headers.items() if name not in NOT_PASSED_ON
            }
            async with client.stream("POST", path, content=body, headers=headers) as said:
                content = await bounded(said.headers.get("content-length"), said.aiter_bytes())
        except TooLarge:
            return Response(status_code=413)
        except httpx.HTTPError:
            return Response(status_code=503)
        if path == PROGRAM and said.is_success and not programs(content):
            return Response(status_code=403)
        return Response(
            content,
            said.status_code,
            {name: value for name, value in said.headers.items() if name not in NOT_PASSED_ON},
        )

    return Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])])


async def bounded(announced: str | None, parts: AsyncIterator[bytes]) -> bytes:
    """A body, refused as soon as it says that it is too large, or is."""
    if announced is not None and (not announced.isdecimal() or int(announced) > MOST_BYTES):
        raise TooLarge
    found: list[bytes] = []
    async for part in parts:
        found.append(part)
        if sum(map(len, found)) > MOST_BYTES:
            raise TooLarge
    return b"".join(found)


def is_ours(data: bytes) -> bool:
    """Whether a program is only the name of ours: no file that could be run, and nothing to install."""
    from flwr.proto.fab_pb2 import GetFabResponse
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        with ZipFile(BytesIO(GetFabResponse.FromString(data).fab.content)) as packed:
            if sorted(packed.namelist()) != FILES or any(
                each.file_size > MOST_TEXT for each in packed.infolist()
            ):
                return False
            about = tomllib.loads(packed.read("pyproject.toml").decode())
        components = about["tool"]["flwr"]["app"]["components"]
        return bool(components["clientapp"] == CLIENT and not about["project"].get("dependencies"))
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
    side: str, server: str, link: str, ca: str = "", certificate: str = "", key: str = ""
) -> None:
    import uvicorn

    address = Address.of(server)
    programs = is_ours if side == "node" else lambda data: True
    uvicorn.run(
        app(link, ca or None, programs),
        host=address.host,
        port=address.port,
        ssl_certfile=certificate or None,
        ssl_keyfile=key or None,
        log_level="warning",
        access_log=False,
        limit_concurrency=1000,
        timeout_keep_alive=30,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
