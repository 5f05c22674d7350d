"""Doctor: each way in which a connection fails is found, and the server is not disturbed."""

from __future__ import annotations

import json
import shutil
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from deployment.test_certificates import listening as one_handshake
from deployment.test_certificates import made_days_ago

pytest.importorskip("flwr")
from deployment.test_fleet import free_port, served
from node_keys import key_of, make_keys, replace_key

from coterie.cli.main import app
from coterie.deployment import certificates, issuing
from coterie.deployment.address import Address
from coterie.deployment.fleet.client import FleetClient, HttpAnswer, KeyRejected
from coterie.deployment.fleet.doctor import CHECKS, ConnectionCheck, examine
from coterie.deployment.fleet.keys import NodeKey
from coterie.errors import ConfigError

ALL_OK = dict.fromkeys(CHECKS, "ok")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["127.0.0.1"], ["ann", "bob"])
    return tmp_path / "keys"


@pytest.fixture
def others(tmp_path: Path) -> Path:
    make_keys(tmp_path / "others", ["127.0.0.1"], ["eve"])
    return tmp_path / "others"


def found(
    address: Address, key: Path | None = None, ca: Path | None = None
) -> dict[str, ConnectionCheck]:
    checks = {check.name: check for check in examine(address, key, ca)}
    assert tuple(checks) == CHECKS
    return checks


def states(checks: dict[str, ConnectionCheck]) -> dict[str, str]:
    return {name: check.state for name, check in checks.items()}


def ann_of(keys: Path) -> tuple[Path, Path]:
    return key_of(keys, "ann"), keys / "ca.pem"


@pytest.mark.slow
def test_a_good_connection_passes_and_the_server_is_not_disturbed(keys: Path):
    """Also while a node with the same key is connected: it stays, and answers."""
    with served(keys) as server:
        assert states(found(server.address, *ann_of(keys))) == ALL_OK
        assert server.nodes.joined() == {}
        server.start(name="ann")
        server.wait_for(1)
        before = server.nodes.joined()
        checks = found(server.address, *ann_of(keys))
        assert states(checks) == ALL_OK
        assert "824 days left" in checks["certificate"].detail
        assert server.nodes.joined() == before == {"ann": 1}
        assert server.nodes.send("train", {"ann": b"1"}) == {"ann": b"train 1"}
        assert server.gate.refused == Counter()


@pytest.mark.slow
def test_a_key_that_is_unknown_or_revoked(keys: Path, others: Path, tmp_path: Path):
    with served(keys) as server:
        checks = found(server.address, key_of(others, "eve"), keys / "ca.pem")
        assert states(checks) == ALL_OK | {"key": "failed"}
        assert "unknown, expired or revoked" in checks["key"].detail
        bob = key_of(keys, "bob")
        assert states(found(server.address, bob, keys / "ca.pem")) == ALL_OK
        certificates.revoke(keys, "bob")
        server.nodes.registry.looked = 0.0
        server.nodes.joined()
        assert states(found(server.address, bob, keys / "ca.pem")) == ALL_OK | {"key": "failed"}


@pytest.mark.slow
def test_a_rotated_key_keeps_the_name_and_the_old_key_is_refused(keys: Path, tmp_path: Path):
    with served(keys) as server:
        old = tmp_path / "old.key"
        shutil.copy(key_of(keys, "ann"), old)
        running = FleetClient.to(server.address, old, keys / "ca.pem")
        server.clients.append(running)
        running.activate()
        assert server.wait_for(1) == ["ann"]
        replace_key(keys, "ann")
        server.nodes.registry.looked = 0.0
        assert server.nodes.joined() == {}
        with pytest.raises(KeyRejected):
            running.activate()
        assert states(found(server.address, old, keys / "ca.pem"))["key"] == "failed"
        assert states(found(server.address, *ann_of(keys))) == ALL_OK
        server.start(name="ann")
        assert server.wait_for(1) == ["ann"]


@pytest.mark.slow
def test_a_key_that_expires_while_the_server_runs(keys: Path):
    with served(keys) as server:
        path = keys / "nodes" / "ann.pub"
        end = (datetime.now(UTC) - timedelta(seconds=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
        path.write_text(" ".join([*path.read_text().split()[:2], f"expires={end}"]) + "\n")
        server.nodes.registry.looked = 0.0
        server.nodes.joined()
        assert states(found(server.address, *ann_of(keys))) == ALL_OK | {"key": "failed"}


@pytest.mark.slow
def test_a_server_of_another_authority_receives_nothing(keys: Path, others: Path):
    with served(others) as server:
        checks = found(server.address, *ann_of(keys))
        expected = {"tls": "failed", "fleet api": "skipped", "clock": "skipped", "key": "skipped"}
        assert states(checks) == ALL_OK | expected
        assert "Compare the fingerprint of the invitation's certificate" in checks["tls"].remedy
        assert server.gate.refused == Counter()


@pytest.mark.slow
def test_another_name_than_those_of_the_certificate(keys: Path):
    with served(keys) as server:
        checks = found(Address("localhost", server.address.port), *ann_of(keys))
        assert checks["tls"].state == "failed"
        assert checks["tls"].remedy == (
            "Connect to 127.0.0.1, or run on the server: "
            "coterie federation renew FOLDER --host localhost"
        )


@pytest.mark.slow
@pytest.mark.parametrize("left", [-1.0, 10.5])
def test_a_certificate_that_ended_or_ends_soon(left: float, tmp_path: Path, monkeypatch):
    folder = made_days_ago(tmp_path / "old", issuing.SERVER_DAYS - left, monkeypatch)
    with served(folder) as server:
        checks = found(server.address, *ann_of(folder))
    assert "coterie federation renew FOLDER" in checks["certificate"].remedy
    if left > 0:
        assert states(checks) == ALL_OK
        assert "10 days left" in checks["certificate"].detail
    else:
        assert (checks["tls"].state, checks["certificate"].state) == ("failed", "failed")
        assert "renew" in checks["tls"].remedy


@pytest.mark.slow
def test_without_a_key_or_an_authority(keys: Path):
    with served(keys) as server:
        only_ca = found(server.address, None, keys / "ca.pem")
        assert states(only_ca) == ALL_OK | {"key": "skipped"}
        nothing = found(server.address)
        assert states(nothing) == ALL_OK | {"tls": "skipped", "key": "skipped"}
        assert server.nodes.joined() == {}
        with pytest.raises(ConfigError, match="--key is given without --invitation or --ca"):
            found(server.address, key_of(keys, "ann"))


@pytest.mark.slow
def test_a_server_without_tls(keys: Path):
    with served() as server:
        plain = found(server.address)
        assert states(plain) == ALL_OK | {"certificate": "skipped", "key": "skipped"}
        assert "--insecure" in plain["tls"].detail
        assert server.nodes.joined() == {}
        secured = found(server.address, *ann_of(keys))
        assert secured["tls"].state == "failed"
        assert "does not use TLS" in secured["tls"].detail


@pytest.mark.slow
def test_a_wrong_clock_does_not_hide_that_the_key_is_accepted(keys: Path, monkeypatch):
    """This machine's clock is an hour behind: what it signs is too old until corrected."""
    sign = NodeKey.headers
    monkeypatch.setattr(NodeKey, "headers", lambda key, offset: sign(key, offset - 3600))
    monkeypatch.setattr(HttpAnswer, "clock_offset", property(lambda answer: 3600.0))
    with served(keys) as server:
        checks = found(server.address, *ann_of(keys))
    assert states(checks) == ALL_OK | {"clock": "failed"}
    assert "3600 seconds behind the server's" in checks["clock"].detail


def test_nobody_listens_or_the_name_is_unknown(keys: Path):
    port = found(Address("127.0.0.1", free_port()), *ann_of(keys))
    assert list(states(port).values()) == ["ok", "failed", *["skipped"] * 5]
    assert "Check that coterie serve runs" in port["port"].remedy
    name = found(Address("no-such-host.invalid", 8000), *ann_of(keys))
    assert list(states(name).values()) == ["failed", *["skipped"] * 6]


@contextmanager
def something_else(keys: Path, status: int, ahead: timedelta = timedelta()) -> Iterator[Address]:
    """A web server with the federation's certificate that is not Coterie's."""

    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response_only(status)
            self.send_header("date", format_datetime(datetime.now(UTC) + ahead, usegmt=True))
            self.send_header("content-length", "0")
            self.end_headers()

    class Quiet(HTTPServer):
        def handle_error(self, *peer: object) -> None:
            """Connections without a request end in the middle of TLS."""

    server = Quiet(("127.0.0.1", 0), Other)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Address("127.0.0.1", server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("status", [200, 404, 500])
def test_another_program_at_the_port(status: int, keys: Path):
    with something_else(keys, status) as address:
        checks = found(address, *ann_of(keys))
    assert states(checks) == ALL_OK | {"fleet api": "failed", "clock": "skipped", "key": "skipped"}
    assert f"answers with status {status}" in checks["fleet api"].detail


@pytest.mark.parametrize(("seconds", "which"), [(3600, "behind"), (-3600, "ahead of"), (0, "")])
def test_the_clock_is_compared(seconds: int, which: str, keys: Path):
    with something_else(keys, 401, timedelta(seconds=seconds)) as address:
        clock = found(address, *ann_of(keys))["clock"]
    assert clock.state == ("failed" if seconds else "ok")
    if which:
        assert f"seconds {which} the server's" in clock.detail
        assert "NTP" in clock.remedy


def test_a_peer_that_closes_the_connection(keys: Path):
    """Only the first connection is served: the check of the port."""
    checks = found(one_handshake(keys), *ann_of(keys))
    assert list(states(checks).values())[:3] == ["ok", "ok", "failed"]


def test_the_command_prints_lines_or_json_and_exits_with_2(keys: Path):
    from typer.testing import CliRunner

    port = free_port()
    call = ["federation", "doctor", "--server", f"127.0.0.1:{port}"]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 2
    assert len(done.output.splitlines()) == len(CHECKS)
    assert done.output.splitlines()[1].split()[:2] == ["port", "failed"]
    done = CliRunner().invoke(app, [*call, "--json"])
    assert done.exit_code == 2
    result = json.loads(done.output)
    assert (result["ok"], result["server"]) == (False, f"127.0.0.1:{port}")
    assert result["checks"][1]["remedy"]


@pytest.mark.slow
def test_the_command_exits_with_0_if_all_is_well(keys: Path):
    from typer.testing import CliRunner

    with served(keys) as server:
        call = ["federation", "doctor", "--server", str(server.address)]
        key, ca = ann_of(keys)
        done = CliRunner().invoke(app, [*call, "--key", str(key), "--ca", str(ca), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["ok"]
