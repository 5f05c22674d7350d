"""What a server refuses before it listens, and what it warns about."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployment.test_certificates import made_days_ago

pytest.importorskip("flwr")
from coterie.deployment import certificates, issuing
from coterie.deployment.address import Address
from coterie.deployment.fleet.serve import check_certificates
from coterie.deployment.key_making import make_key
from coterie.errors import ConfigError, RunError


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / "keys"
    certificates.init(folder, ["fed.example"])
    return folder


def warnings(server: str, keys: Path | None, insecure: bool = False) -> list[str]:
    found: list[str] = []
    check_certificates(Address.of(server), keys, insecure, found.append)
    return found


@pytest.mark.parametrize("server", ["fed.example:8000", "127.0.0.1:8000"])
def test_an_address_of_the_certificate_is_used_in_silence(server: str, keys: Path):
    assert warnings(server, keys) == []


@pytest.mark.parametrize("server", ["0.0.0.0:8000", "[::]:8000", "172.17.0.2:8000", "box:8000"])
def test_a_server_binds_to_any_address(server: str, keys: Path):
    """Behind a router or in a container nodes connect to another address than it binds to."""
    (line,) = warnings(server, keys)
    assert "is for fed.example, 127.0.0.1: nodes must connect to one of those" in line
    assert f"coterie federation renew {keys} --host HOST" in line


def test_private_keys_of_nodes_are_announced(tmp_path: Path):
    """Earlier versions made them in the server's folder."""
    folder = tmp_path / "keys"
    certificates.init(folder, ["fed.example"])
    make_key(folder / "nodes", "ann")
    (line,) = warnings("fed.example:8000", folder)
    assert "holds private keys of nodes (ann.key)" in line
    assert "coterie node key NEW --replaces NAME.key" in line


def test_a_certificate_without_hosts_is_refused(tmp_path: Path):
    folder = tmp_path / "keys"
    certificates.init(folder, ["fed.example"])
    authority = issuing.Issuer.read(
        (folder / "ca.key").read_bytes(), (folder / "ca.pem").read_bytes()
    )
    key = issuing.new_key()
    (folder / "server.key").write_bytes(issuing.private_pem(key))
    (folder / "server.pem").write_bytes(issuing.pem(authority.issue(key, [])))
    with pytest.raises(RunError, match="is for no host; expected at least one"):
        warnings("127.0.0.1:8000", folder)


def test_an_expired_certificate_is_refused_and_an_ending_one_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    over = made_days_ago(tmp_path / "over", issuing.SERVER_DAYS + 1, monkeypatch)
    with pytest.raises(RunError, match=r"expired on .* coterie federation renew"):
        warnings("127.0.0.1:8000", over)
    ending = made_days_ago(tmp_path / "ending", issuing.SERVER_DAYS - 10.5, monkeypatch)
    (line,) = warnings("127.0.0.1:8000", ending)
    assert "expires in 10 days" in line


def test_plaintext_and_contradictions_are_refused(keys: Path, tmp_path: Path):
    assert warnings("127.0.0.1:8000", None, insecure=True) == []
    with pytest.raises(ConfigError, match="no certificates are named"):
        warnings("127.0.0.1:8000", None)
    with pytest.raises(ConfigError, match="could be read and changed on the way"):
        warnings("0.0.0.0:8000", None, insecure=True)
    with pytest.raises(ConfigError, match="--keys and --insecure are both given"):
        warnings("127.0.0.1:8000", keys, insecure=True)
    with pytest.raises(RunError, match=r"holds no ca.pem"):
        warnings("127.0.0.1:8000", tmp_path)
