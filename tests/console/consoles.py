"""The real server of the console as a process, and requests to it over real connections."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


@dataclass
class Console:
    port: int
    token: str
    process: subprocess.Popen[str]
    headers: dict[str, str] = field(default_factory=dict)
    """Of a browser that may write."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            content = None if body is None else json.dumps(body)
            sent = {"content-type": "application/json"} if content else {}
            connection.request(method, path, content, sent | (headers or {}))
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())

    def get(self, path: str, headers: dict[str, str] | None = None) -> Reply:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: object, headers: dict[str, str] | None = None) -> Reply:
        return self.ask("POST", path, body, headers)

    def write(self, path: str, body: object) -> Reply:
        """A change by a browser that has the token."""
        if not self.headers:
            reply = self.post("/api/session", {"token": self.token})
            cookie = str(reply.headers["set-cookie"]).partition(";")[0]
            self.headers = {"cookie": cookie, "x-coterie-csrf": reply.data["csrf"]}
        return self.post(path, body, self.headers)


@contextmanager
def serving(*arguments: object, port: int | None = None) -> Iterator[Console]:
    """The console over some folders, once it listens."""
    port = port or free_port()
    command = [sys.executable, "-m", "coterie.cli.main", "console", *map(str, arguments)]
    with subprocess.Popen(
        [*command, "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            found = re.search(r"#token=(\S+)", "".join(lines))
            assert found is not None, lines
            yield Console(port, found[1], process)
        finally:
            process.kill()


def write_run(folder: Path, **changes: object) -> Path:
    """A finished run with a result and nothing else, as far as the table of runs goes."""
    folder.mkdir(parents=True)
    result = {
        "algorithm": "fedavg",
        "dataset": "synthetic",
        "protocol": "loo-50",
        "seed": 0,
        "rounds": 20,
        "seconds": 1.5,
        "bytes_up": 1000,
        "bytes_down": 2000,
        "metrics": {"HR@10": 0.25},
        "full": {"HR@10": 0.02},
        "headline": ["HR@10"],
        "data": "0123",
    }
    (folder / "result.json").write_text(json.dumps(result | changes))
    return folder
