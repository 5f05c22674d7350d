"""`coterie api` as a command: over real connections, with TLS, and to its end."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from coterie import Run

pytestmark = pytest.mark.slow
TOKEN = "0123456789abcdef0123456789abcdef"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "coterie.cli.main", "api", *map(str, arguments)]


@contextmanager
def serving(source: Path, *options: object) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The server once it listens, and its port."""
    port = free_port()
    with subprocess.Popen(
        command(source, "--address", f"127.0.0.1:{port}", "--check-every", 0.1, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as server:
        try:
            assert server.stdout is not None
            assert "Stop with Ctrl-C" in server.stdout.readline()
            yield server, port
        finally:
            server.kill()


def get(port: int, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        return ask(connection, path, headers)


def ask(
    connection: http.client.HTTPConnection, path: str, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    connection.request("GET", path, headers=headers or {})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_from_start_to_end(number: int, fedals: Path) -> None:
    with serving(fedals) as (server, port):
        status, found = get(port, "/recommendations?user=7&n=3")
        assert status == 200
        expected = Run.load(fedals).recommend("7", 3)
        assert [one["item"] for one in found["items"]] == [one.item for one in expected]
        assert get(port, "/recommendations?user=7&n=3&history=99")[0] == 422
        server.send_signal(number)
        out, _ = server.communicate(timeout=20)
        assert server.returncode == 0
        assert out.splitlines() == ["Stopped."]


def test_a_reload_under_load_fails_no_request(fedals: Path, trained: Callable[..., Path]) -> None:
    other = trained("fedals", seed=2)
    with serving(fedals) as (_, port):
        versions: set[str] = set()
        failures: list[object] = []
        stop = threading.Event()

        def send() -> None:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
                while not stop.is_set():
                    status, found = ask(connection, "/recommendations?user=7")
                    versions.add(found.get("version", ""))
                    if status != 200:
                        failures.append(found)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for name in ("devices.npz", "model.npz"):
            shutil.copyfile(other / name, fedals / f".{name}")
            (fedals / f".{name}").replace(fedals / name)
        end = time.monotonic() + 20
        while len(versions) < 2 and time.monotonic() < end:
            time.sleep(0.1)
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(versions) == 2
        assert get(port, "/health")[1]["status"] == "ok"


def raw(port: int, request: bytes) -> bytes:
    """What the server replies to bytes; empty if it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(1 << 16)
        except OSError:
            return b""


def test_hostile_connections(fedals: Path) -> None:
    head = b"POST /recommendations HTTP/1.1\r\nHost: localhost\r\n"
    with serving(fedals) as (server, port):
        assert get(port, "/health")[0] == 200
        large = head + b"Content-Length: 2000000\r\n\r\n"
        assert b" 413 " in raw(port, large).splitlines()[0]
        chunks = b"80000\r\n" + b"x" * 0x80000 + b"\r\n"
        reply = raw(port, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks * 3)
        # The server closes the connection before it has read all, which may reset it.
        assert reply == b"" or b" 413 " in reply
        assert b" 421 " in raw(port, b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        for broken in (
            b"\x00\x01\x02\r\n\r\n",
            b"GET\r\n\r\n",
            head + b"Content-Length: x\r\n\r\n",
        ):
            assert b" 200 " not in raw(port, broken)[:20]
        endless = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 3_000_000
        assert b" 200 " not in raw(port, endless)[:20]
        assert get(port, "/health")[0] == 200
        server.send_signal(signal.SIGTERM)
        out, _ = server.communicate(timeout=20)
        assert "Traceback" not in out


def test_a_token(fedals: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    with serving(fedals, "--token-file", token) as (_, port):
        assert get(port, "/health")[0] == 401
        assert get(port, "/health", {"Authorization": f"Bearer {TOKEN}"})[0] == 200
        assert get(port, "/health", {"Authorization": f"Bearer {TOKEN[:-1]}0"})[0] == 401


def test_tls_with_client_certificates(fedals: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from coterie.deployment import certificates

    keys = tmp_path / "keys"
    certificates.init(keys, ["127.0.0.1"])
    options = ("--certificate", keys / "server.pem", "--key", keys / "server.key")
    with serving(fedals, *options, "--client-ca", keys / "ca.pem") as (_, port):
        known = ssl.create_default_context(cafile=str(keys / "ca.pem"))
        known.load_cert_chain(keys / "server.pem", keys / "server.key")
        anonymous = ssl.create_default_context(cafile=str(keys / "ca.pem"))
        with closing(secure(port, known)) as connection:
            assert ask(connection, "/health")[0] == 200
        with (
            closing(secure(port, anonymous)) as connection,
            pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)),
        ):
            ask(connection, "/health")


def secure(port: int, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)


def refused(*arguments: object) -> str:
    """The one line of a command that does not start."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done
    (line,) = done.stderr.splitlines()
    return line


def test_servers_that_must_not_start(fedals: Path, tmp_path: Path) -> None:
    assert "neither token nor certificate" in refused(fedals, "--address", "0.0.0.0:8080")
    assert "does not exist" in refused(tmp_path / "nothing")
    assert "expected HOST:PORT" in refused(fedals, "--address", "8080")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot listen at {address}" in refused(fedals, "--address", address)
