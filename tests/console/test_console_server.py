"""The real server over real connections: who may read, who may write, and how much."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from consoles import Console, free_port, serving, write_run

from coterie.console.folders import id_of
from coterie.deployment import certificates

pytest.importorskip("fastapi")
pytest.importorskip("plotly")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served") / "runs"
    write_run(root / "one")
    write_run(root.parent / "secret" / "other")
    return root


@pytest.fixture(scope="module")
def console(folder: Path) -> Iterator[Console]:
    with serving(folder) as found:
        yield found


# ---- reading


def test_pages_need_no_token_on_loopback(console: Console) -> None:
    assert console.get("/").status == 200
    (run,) = console.get("/api/runs").data["runs"]
    assert run["name"] == "one"
    assert console.get(f"/api/run?run={run['id']}").data["summary"]["value"] == 0.25


def test_every_reply_forbids_inline_and_remote_content(console: Console) -> None:
    for path in ("/", "/static/app.mjs", "/api/runs", "/nothing", "/api/run?run=x"):
        headers = console.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert console.get("/api/runs").headers["cache-control"] == "no-store"


def test_the_page_has_no_inline_script_or_style(console: Console) -> None:
    text = console.get("/").body.decode()
    whole = re.findall(r'<script type="module" src="/static/\w+\.mjs"(?: async)?></script>', text)
    assert len(whole) == text.count("<script") == 2
    assert "style=" not in text
    assert "<style" not in text
    assert "//" not in text.replace("<!doctype", "")


def test_static_files_are_those_of_the_package(console: Console) -> None:
    module = console.get("/static/pages/runs.mjs")
    assert module.headers["content-type"].startswith("text/javascript")
    again = console.get("/static/pages/runs.mjs", {"if-none-match": module.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert b"plotly.js" in console.get("/static/plotly.js").body[:4000]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/../../etc/passwd",
        "/api/run?run=../secret/other",
        "/api/run?run=%2Fetc%2Fpasswd",
        "/api/events?run=..%2Fsecret",
        "/api/compare?run=../secret/other",
        "/api/form?algorithm=popular&dataset=%2Fetc%2Fpasswd",
    ],
)
def test_no_path_leads_outside(console: Console, path: str) -> None:
    reply = console.get(path)
    assert reply.status in (404, 422), reply.body
    assert b"root:" not in reply.body


def test_the_id_of_a_folder_elsewhere_is_unknown(console: Console, folder: Path) -> None:
    other = id_of(folder.parent / "secret" / "other")
    assert console.get(f"/api/run?run={other}").status == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_foreign_host_header_is_refused(console: Console, host: str) -> None:
    reply = console.get("/api/runs", {"host": host})
    assert reply.status in (400, 421)
    assert b"one" not in reply.body


def test_other_sites_get_no_data(console: Console) -> None:
    for site in ("cross-site", "same-site"):
        assert console.get("/api/runs", {"sec-fetch-site": site}).status == 403
    assert console.get("/api/runs", {"sec-fetch-site": "same-origin"}).status == 200


# ---- writing

WRITES = ["/api/stop", "/api/resume", "/api/start", "/api/check", "/api/preview"]


@pytest.mark.parametrize("path", WRITES)
def test_writes_need_cookie_and_header(console: Console, path: str) -> None:
    console.write("/api/check", {})
    given = console.headers
    for headers in (
        {},
        {"cookie": given["cookie"]},
        {"x-coterie-csrf": given["x-coterie-csrf"]},
        {**given, "cookie": given["cookie"][:-1] + "x"},
        {**given, "x-coterie-csrf": "0" * 64},
        {**given, "origin": "http://evil.example"},
        {**given, "origin": "null"},
        {**given, "sec-fetch-site": "cross-site"},
    ):
        reply = console.post(path, {}, headers)
        assert reply.status == 403, headers
    assert console.post(path, {}, given).status == 422


def test_other_methods_are_writes_as_well(console: Console) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert console.ask(method, "/api/runs").status == 403


def test_the_cookie_is_for_this_site_and_not_for_scripts(console: Console) -> None:
    reply = console.post("/api/session", {"token": console.token})
    cookie = reply.headers["set-cookie"]
    assert "SameSite=Strict" in cookie
    assert "HttpOnly" in cookie
    assert console.token not in cookie
    assert console.token not in reply.body.decode()


def test_a_wrong_token_takes_a_while_and_gets_nothing(console: Console) -> None:
    began = time.monotonic()
    reply = console.post("/api/session", {"token": console.token[:-1]})
    assert reply.status == 403
    assert reply.headers["set-cookie"] is None
    assert time.monotonic() - began > 0.4
    assert console.get("/api/session").data == {"may_write": False, "csrf": ""}
    foreign = console.post(
        "/api/session", {"token": console.token}, {"origin": "http://evil.example"}
    )
    assert foreign.status == 403


@pytest.mark.parametrize("length", [(1 << 20) + 1, 1 << 40])
def test_large_bodies_are_refused(console: Console, length: int) -> None:
    """By their declared length, before anything of them is read."""
    with closing(http.client.HTTPConnection("127.0.0.1", console.port, timeout=30)) as connection:
        connection.putrequest("POST", "/api/session")
        connection.putheader("content-length", str(length))
        connection.endheaders()
        assert connection.getresponse().status == 413


@pytest.mark.long
def test_slow_bodies_are_refused(console: Console) -> None:
    """The server waits 20 seconds for a body, whoever sends it, and answers others meanwhile."""
    with socket.create_connection(("127.0.0.1", console.port), timeout=40) as slow:
        slow.sendall(
            b"POST /api/session HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n"
            b"content-type: application/json\r\n\r\n{"
        )
        assert console.get("/api/runs").status == 200
        assert b" 408 " in slow.recv(4096).split(b"\r\n")[0]


# ---- runs


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def state_of(console: Console, run: str) -> str:
    found = console.get("/api/runs").data["runs"]
    return str(next((one["state"] for one in found if one["id"] == run), "absent"))


def begins(folder: Path) -> list[int]:
    """After which rounds training began."""
    text = (folder / "rounds.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line["after"] for line in lines if "begin" in line]


REQUEST = {
    "algorithm": "fedavg",
    "dataset": "synthetic",
    "settings": {
        "rounds": "100000",
        "n_users": "60",
        "n_items": "40",
        "n_groups": "2",
        "evaluate_every": "500",
    },
}


@pytest.mark.long
def test_a_run_is_started_stopped_and_resumed(tmp_path: Path) -> None:
    """Also by a console that was started after the run, and knows the process by its lock."""
    with serving(tmp_path) as console:
        reply = console.write("/api/start", REQUEST)
        assert reply.status == 200, reply.body
        run = reply.data["run"]
        wait_for(lambda: state_of(console, run) == "running")
    with serving(tmp_path) as console:
        assert state_of(console, run) == "running"
        (folder,) = tmp_path.iterdir()
        assert id_of(folder) == run
        wait_for((folder / "checkpoint.npz").exists)
        assert console.write("/api/resume", {"run": run}).status == 422
        assert console.write("/api/stop", {"run": run}).status == 200
        wait_for(lambda: state_of(console, run) == "stopped")
        assert console.write("/api/resume", {"run": run}).status == 200
        wait_for(lambda: len(begins(folder)) == 2)
        assert begins(folder)[0] == 0 < begins(folder)[1]
        assert state_of(console, run) == "running"
        assert console.write("/api/stop", {"run": run}).status == 200
        wait_for(lambda: state_of(console, run) == "stopped")
        wait_for(lambda: "known" in console.write("/api/stop", {"run": run}).data.get("error", ""))


@pytest.mark.long
def test_a_run_that_fails_shows_its_error(tmp_path: Path) -> None:
    """The settings are right, and the data is not."""
    (tmp_path / "mine.csv").write_text("user_id,item_id\n1,1\n")
    with serving(tmp_path) as console:
        asked = {"algorithm": "fedavg", "dataset": str(tmp_path / "mine.csv")}
        run = console.write("/api/start", asked).data["run"]
        wait_for(lambda: console.get(f"/api/run?run={run}").data["error"])
        error = console.get(f"/api/run?run={run}").data["error"]
        done = subprocess.run(
            [sys.executable, "-m", "coterie.cli.main", "run", "fedavg", "-d", asked["dataset"]],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert f"error: {error}" in done.stderr.splitlines()
        assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_a_lock_that_names_another_process_stops_nothing(tmp_path: Path) -> None:
    """The file could name any process: only one that has the lock open is interrupted."""
    folder = write_run(tmp_path / "one")
    (folder / "result.json").rename(folder / "config.yaml")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as bystander:
        program = (
            "import fcntl, sys, time\n"
            "lock = open(sys.argv[1], 'w')\n"
            "fcntl.flock(lock, fcntl.LOCK_EX)\n"
            f"lock.write('{bystander.pid}'); lock.flush(); print('held', flush=True)\n"
            "time.sleep(60)"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", program, str(folder / ".lock")], stdout=subprocess.PIPE
        )
        try:
            with holder, serving(tmp_path) as console:
                assert holder.stdout is not None
                holder.stdout.readline()
                reply = console.write("/api/stop", {"run": id_of(folder)})
                assert reply.status == 422
                assert "no process of this machine that is known" in reply.data["error"]
                assert bystander.poll() is None
                holder.kill()
        finally:
            bystander.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_server_ends_while_a_page_follows(folder: Path, number: int) -> None:
    with serving(folder) as console:
        (run,) = console.get("/api/runs").data["runs"]
        with closing(http.client.HTTPConnection("127.0.0.1", console.port, timeout=20)) as viewer:
            viewer.request("GET", f"/api/events?run={run['id']}")
            stream = viewer.getresponse()
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert stream.readline().startswith(b"retry")
            began = time.monotonic()
            console.process.send_signal(number)
            assert console.process.wait(timeout=10) == 0
            assert time.monotonic() - began < 5


# ---- beyond loopback


def test_other_machines_need_tls(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "coterie.cli.main", "console", str(folder), "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--host is '0.0.0.0', which other machines can reach, and there is no TLS" in done.stderr


def test_beyond_loopback_reading_needs_the_token(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    keys = tmp_path / "keys"
    certificates.init(keys, ["127.0.0.1"])
    port = free_port()
    command = [sys.executable, "-m", "coterie.cli.main", "console", str(folder)]
    command += ["--host", "0.0.0.0", "--port", str(port)]
    command += ["--certificate", str(keys / "server.pem"), "--key", str(keys / "server.key")]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("warning: other machines can reach")
            process.stdout.readline()
            token = process.stdout.readline().partition("#token=")[2].strip()
            known = ssl.create_default_context(cafile=keys / "ca.pem")

            def ask(method: str, path: str, body: str | None, headers: dict[str, str]) -> tuple:
                connection = http.client.HTTPSConnection("127.0.0.1", port, context=known)
                with closing(connection):
                    connection.request(method, path, body, headers)
                    reply = connection.getresponse()
                    return reply.status, reply.headers, reply.read()

            assert ask("GET", "/api/runs", None, {})[0] == 403
            assert ask("GET", "/", None, {})[0] == 200
            json_type = {"content-type": "application/json"}
            status, headers, _ = ask(
                "POST", "/api/session", json.dumps({"token": token}), json_type
            )
            assert status == 200
            assert "; Secure" in headers["set-cookie"]
            cookie = headers["set-cookie"].partition(";")[0]
            assert ask("GET", "/api/runs", None, {"cookie": cookie})[0] == 200
        finally:
            process.kill()
