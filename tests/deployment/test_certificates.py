"""Certificates and keys: verification, file modes, and what is refused."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path

import pytest

from coterie.core.progress import SILENT
from coterie.deployment import certificates
from coterie.deployment.flower.join import verify_server
from coterie.deployment.flower.processes import Address
from coterie.errors import ConfigError, RunError

pytest.importorskip("cryptography")


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / "keys"
    certificates.init(folder, ["127.0.0.1", "localhost"], ["ann"])
    return folder


def listening(keys: Path) -> Address:
    """A peer with the server's certificate that serves one handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    listener = socket.create_server(("127.0.0.1", 0))

    def shake() -> None:
        with listener, listener.accept()[0] as plain, contextlib.suppress(OSError):
            context.wrap_socket(plain, server_side=True).close()

    threading.Thread(target=shake, daemon=True).start()
    return Address("127.0.0.1", listener.getsockname()[1])


def test_a_node_trusts_its_own_federations_server(keys: Path):
    verify_server(listening(keys), keys / "ca.pem", SILENT)


def test_a_server_of_another_federation_is_refused(keys: Path, tmp_path: Path):
    certificates.init(tmp_path / "others", ["127.0.0.1"], [])
    with pytest.raises(ConfigError, match="is not trusted by"):
        verify_server(listening(keys), tmp_path / "others" / "ca.pem", SILENT)


def test_a_server_of_another_name_is_refused(tmp_path: Path):
    certificates.init(tmp_path / "elsewhere", ["10.0.0.5"], [])
    address = listening(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is not trusted by"):
        verify_server(Address("localhost", address.port), tmp_path / "elsewhere" / "ca.pem", SILENT)


def test_only_the_owner_reads_secrets(keys: Path):
    modes = {path.name: path.stat().st_mode & 0o777 for path in keys.rglob("*") if path.is_file()}
    assert modes == {
        "ca.key": 0o600,
        "ca.pem": 0o644,
        "server.key": 0o600,
        "server.pem": 0o644,
        "ann.key": 0o600,
        "ann.pub": 0o644,
    }


def test_nodes_are_added_and_revoked(keys: Path):
    key = certificates.add(keys, "bob").read_bytes()
    assert key.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    assert (keys / "nodes" / "bob.pub").read_bytes().startswith(b"ecdsa-sha2-nistp384 ")
    with pytest.raises(RunError, match="exists already"):
        certificates.add(keys, "bob")
    certificates.revoke(keys, "bob")
    with pytest.raises(RunError, match="expected an admitted node"):
        certificates.revoke(keys, "bob")


@pytest.mark.parametrize("name", ["", "a/b", ".hidden"])
def test_node_names_are_file_names(keys: Path, name: str):
    with pytest.raises(ConfigError, match="expected a valid file name"):
        certificates.add(keys, name)


def test_an_authority_is_not_overwritten(keys: Path, tmp_path: Path):
    with pytest.raises(RunError, match="has an authority already"):
        certificates.init(keys, ["127.0.0.1"], [])
    with pytest.raises(RunError, match="has no authority"):
        certificates.add(tmp_path, "ann")


@pytest.mark.parametrize("host", ["", "x" * 300, "two words", "a/b"])
def test_invalid_hosts_are_refused(host: str, tmp_path: Path):
    with pytest.raises(ConfigError, match="expected a name or address by which nodes reach"):
        certificates.init(tmp_path / "keys", [host], [])
    assert not (tmp_path / "keys").exists()


def test_a_revoked_name_can_be_used_again(tmp_path: Path):
    certificates.init(tmp_path / "keys", ["x" * 100 + ".example", "::1"], ["ann"])
    assert certificates.hosts_of(tmp_path / "keys" / "server.pem") == [
        "x" * 100 + ".example",
        "::1",
        "127.0.0.1",
    ]
    before = (tmp_path / "keys" / "nodes" / "ann.pub").read_text()
    certificates.revoke(tmp_path / "keys", "ann")
    certificates.add(tmp_path / "keys", "ann")
    assert (tmp_path / "keys" / "nodes" / "ann.pub").read_text() != before
