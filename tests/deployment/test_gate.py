"""Gates: only nodes' calls of bounded size pass to a server, and only our program to a node."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from zipfile import ZipFile

import pytest

pytest.importorskip("flwr")
import httpx
from flwr.proto.fab_pb2 import Fab, GetFabResponse

from coterie.deployment.flower import gate
from coterie.deployment.flower.processes import APP, CLIENT


class Link(BaseHTTPRequestHandler):
    """A SuperLink that echoes its requests."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        echo = f"{self.path} {self.headers.get('x-proof')} ".encode() + body
        self.send_response(200)
        self.send_header("content-length", str(len(echo)))
        self.send_header("x-answer", "42")
        self.end_headers()
        self.wfile.write(echo)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def link() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Link)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def called(
    link: str,
    path: str,
    content: bytes | list[bytes] = b"",
    method: str = "POST",
    allows_program=lambda data: True,
    **headers: str,
) -> httpx.Response:
    async def parts() -> AsyncIterator[bytes]:
        for part in content:
            yield part  # type: ignore[misc]

    async def go() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(gate.app(link, None, allows_program)),
            base_url="http://gate",
        ) as client:
            body = content if isinstance(content, bytes) else parts()
            return await client.request(
                method,
                path,
                content=body,
                headers={k.replace("_", "-"): v for k, v in headers.items()},
            )

    return asyncio.run(go())


def test_calls_of_nodes_pass_unchanged(link: str):
    answer = called(link, "/v1/fleet/push-messages", b"\x00bytes\xff", x_proof="signed")
    assert (answer.status_code, answer.headers["x-answer"]) == (200, "42")
    assert answer.content == b"/v1/fleet/push-messages signed \x00bytes\xff"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/anything",
        "/v1/fleet/",
        "/v1/fleet/start-run",
        "/docs",
        "/v1/fleet/get-run/../../control/start-run",
        "/v1/fleet/get-run/more",
        "/v1//fleet/get-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/get-run%0a",
    ],
)
def test_other_calls_are_refused(link: str, path: str):
    assert called(link, path).status_code == 404
    assert called(link, path, method="GET").status_code == 405


def test_a_body_announced_as_gigabytes_is_refused_before_it_is_read(link: str):
    for length in (str(10 << 30), "-1"):
        reply = called(link, "/v1/fleet/push-object", b"few", content_length=length)
        assert reply.status_code == 413


def test_an_endless_body_is_refused(link: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gate, "MAX_BYTES", 1000)
    assert called(link, "/v1/fleet/push-object", [b"x" * 300] * 5).status_code == 413
    assert called(link, "/v1/fleet/push-object", b"x" * 900).status_code == 200


def test_an_unreachable_link():
    assert called("http://127.0.0.1:9", "/v1/fleet/get-run").status_code == 503


OURS = APP.format(client=CLIENT, folder='"/somewhere"', keyed="true")


def fab(files: dict[str, str]) -> bytes:
    packed = BytesIO()
    with ZipFile(packed, "w") as out:
        for name, text in files.items():
            out.writestr(name, text)
    return GetFabResponse(fab=Fab(hash_str="x", content=packed.getvalue())).SerializeToString()


def test_our_program_passes():
    assert gate.is_our_program(
        fab({"pyproject.toml": OURS, ".info/CONTENT": "pyproject.toml,abc,1"})
    )


@pytest.mark.parametrize(
    "data",
    [
        fab({"pyproject.toml": OURS, ".info/CONTENT": "", "evil.py": "import os"}),
        fab({"pyproject.toml": OURS, ".info/CONTENT": "", "coterie/__init__.py": ""}),
        fab({"pyproject.toml": OURS, ".info/../evil.py": ""}),
        fab({"pyproject.toml": OURS.replace(CLIENT, "os:system"), ".info/CONTENT": ""}),
        fab(
            {
                "pyproject.toml": OURS.replace("dependencies = []", 'dependencies = ["evil"]'),
                ".info/CONTENT": "",
            }
        ),
        fab({"pyproject.toml": OURS + "x" * (1 << 17), ".info/CONTENT": ""}),
        fab({"pyproject.toml": "project = 3", ".info/CONTENT": ""}),
        fab({"pyproject.toml": "[", ".info/CONTENT": ""}),
        fab({}),
        b"",
        b"garbage",
        GetFabResponse(fab=Fab(content=b"no archive")).SerializeToString(),
    ],
)
def test_other_programs_are_refused(data: bytes):
    assert not gate.is_our_program(data)


def test_another_program_never_reaches_a_node(link: str):
    def refuse(data: bytes) -> bool:
        return False

    program = called(link, "/v1/fleet/get-fab", b"a program", allows_program=refuse)
    other = called(link, "/v1/fleet/get-run", b"no program", allows_program=refuse)
    assert (program.status_code, other.status_code) == (403, 200)
