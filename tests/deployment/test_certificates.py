"""Certificates and keys: verification, file modes, and what is refused."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from node_keys import add_node, key_of, make_keys, replace_key

from coterie.deployment import certificates, issuing
from coterie.deployment.address import Address
from coterie.deployment.key_dates import KeyDates
from coterie.deployment.validity import Validity, check_server_files, read_certificate
from coterie.errors import ConfigError, RunError

pytest.importorskip("cryptography")
from coterie.deployment.fleet.client import FleetClient, Unreachable
from coterie.deployment.fleet.keys import NodeKey, read_public_keys
from coterie.deployment.key_making import make_key


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / "keys"
    make_keys(folder, ["127.0.0.1", "localhost"], ["ann"])
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


def call(address: Address, keys: Path, ca: Path) -> None:
    FleetClient.to(address, key_of(keys, "ann"), ca).activate()


def test_a_node_trusts_its_own_federations_server(keys: Path):
    """The peer closes the connection after a handshake that succeeds."""
    with pytest.raises(Unreachable):
        call(listening(keys), keys, keys / "ca.pem")


def test_phones_accept_the_certificate(tmp_path: Path):
    """The rules of Apple for servers of authorities that users install: 825 days, and a purpose."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    certificates.init(tmp_path / "keys", ["10.0.0.5"])
    certificates.renew(tmp_path / "keys")
    found = read_certificate(tmp_path / "keys" / "server.pem")
    # The first and the last second are part of the validity.
    lasts = found.not_valid_after_utc - found.not_valid_before_utc + timedelta(seconds=1)
    assert timedelta(days=820) < lasts <= timedelta(days=825)
    purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert ExtendedKeyUsageOID.SERVER_AUTH in purposes


def test_a_server_of_another_federation_is_refused(keys: Path, tmp_path: Path):
    certificates.init(tmp_path / "others", ["127.0.0.1"])
    with pytest.raises(ConfigError, match="is not trusted by"):
        call(listening(keys), keys, tmp_path / "others" / "ca.pem")


def test_a_server_of_another_name_is_refused(keys: Path, tmp_path: Path):
    certificates.init(tmp_path / "elsewhere", ["10.0.0.5"])
    address = listening(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is not trusted by"):
        call(Address("localhost", address.port), keys, tmp_path / "elsewhere" / "ca.pem")


def test_a_server_without_tls_is_refused(keys: Path):
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listener, listener.accept()[0] as plain:
            plain.recv(100)
            plain.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    threading.Thread(target=answer, daemon=True).start()
    with pytest.raises(ConfigError, match="does not use TLS; expected a server with certificates"):
        call(Address("127.0.0.1", listener.getsockname()[1]), keys, keys / "ca.pem")


@pytest.mark.parametrize("name", ["ca.pem", "nodes/ann.pub", "nothing.key"])
def test_a_file_that_is_no_key(keys: Path, name: str):
    path = keys / name
    with pytest.raises(ConfigError, match="is not a node's key"):
        FleetClient.to(Address("127.0.0.1", 9), path, keys / "ca.pem")


def test_a_file_that_is_no_authority(keys: Path):
    with pytest.raises(ConfigError, match="is not a certificate"):
        FleetClient.to(Address("127.0.0.1", 9), key_of(keys, "ann"), keys / "ca.key")


def test_only_the_owner_reads_secrets(keys: Path):
    modes = {path.name: path.stat().st_mode & 0o777 for path in keys.rglob("*") if path.is_file()}
    assert modes == {
        "ca.key": 0o600,
        "ca.pem": 0o644,
        "server.key": 0o600,
        "server.pem": 0o644,
        "ann.pub": 0o644,
    }
    assert key_of(keys, "ann").stat().st_mode & 0o777 == 0o600


def test_nodes_are_added_and_revoked(keys: Path):
    path = add_node(keys, "bob")
    assert path.read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    assert (keys / "nodes" / "bob.pub").read_bytes().startswith(b"ecdsa-sha2-nistp384 ")
    with pytest.raises(RunError, match="exists already"):
        certificates.add(keys, "bob", path.with_suffix(".pub"))
    certificates.revoke(keys, "bob")
    with pytest.raises(RunError, match="expected an admitted node"):
        certificates.revoke(keys, "bob")


def test_a_key_with_a_name_of_earlier_rules_is_revoked(keys: Path, tmp_path: Path):
    make_key(tmp_path, "eve")
    certificates.add(keys, "eve", tmp_path / "eve.pub")
    earlier = (keys / "nodes" / "eve.pub").rename(keys / "nodes" / "eve of earlier.pub")
    certificates.revoke(keys, "eve of earlier")
    assert not earlier.exists()


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "../server", "a b", "''", "n" * 61])
def test_node_names_are_file_names(keys: Path, name: str):
    public_key = key_of(keys, "ann").with_suffix(".pub")
    for change in (certificates.add, certificates.rotate):
        with pytest.raises(ConfigError, match="expected 1 to 60 letters"):
            change(keys, name, public_key)
    with pytest.raises(ConfigError, match="expected 1 to 60 letters"):
        certificates.revoke(keys, name)
    with pytest.raises(ConfigError, match="expected 1 to 60 letters"):
        make_key(keys.parent, name)


def test_an_authority_is_not_overwritten(keys: Path, tmp_path: Path):
    with pytest.raises(RunError, match="has an authority already"):
        certificates.init(keys, ["127.0.0.1"])
    with pytest.raises(RunError, match="has no authority"):
        certificates.add(tmp_path, "ann", key_of(keys, "ann").with_suffix(".pub"))


@pytest.mark.parametrize("host", ["", "x" * 300, "two words", "a/b", "0.0.0.0", "::"])
def test_invalid_hosts_are_refused(host: str, tmp_path: Path):
    with pytest.raises(ConfigError, match="expected a name or address by which nodes reach"):
        certificates.init(tmp_path / "keys", [host])
    assert not (tmp_path / "keys").exists()


def test_a_revoked_name_can_be_used_again(tmp_path: Path):
    make_keys(tmp_path / "keys", ["x" * 100 + ".example", "::1"], ["ann"])
    assert certificates.hosts_of(tmp_path / "keys" / "server.pem") == [
        "x" * 100 + ".example",
        "::1",
        "127.0.0.1",
    ]
    before = (tmp_path / "keys" / "nodes" / "ann.pub").read_text()
    certificates.revoke(tmp_path / "keys", "ann")
    make_key(tmp_path, "ann")
    certificates.add(tmp_path / "keys", "ann", tmp_path / "ann.pub")
    assert (tmp_path / "keys" / "nodes" / "ann.pub").read_text() != before


def made_days_ago(folder: Path, days: float, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of certificates and keys that was made in the past."""
    past = datetime.now(UTC) - timedelta(days=days)
    with monkeypatch.context() as patch:
        patch.setattr(issuing, "_now", lambda: past)
        make_keys(folder, ["127.0.0.1"], ["ann"])
    return folder


def test_a_renewed_certificate_is_trusted_by_the_same_nodes(keys: Path, tmp_path: Path):
    """Nodes keep ca.pem, also under a name that the first certificate did not have."""
    make_keys(tmp_path / "keys", ["10.0.0.5"], ["ann"])
    folder = tmp_path / "keys"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    address = listening(folder)
    with pytest.raises(ConfigError, match="is not trusted by"):
        call(Address("localhost", address.port), folder, folder / "ca.pem")
    assert certificates.renew(folder, ["localhost"]) == ["10.0.0.5", "127.0.0.1", "localhost"]
    with pytest.raises(Unreachable):
        call(Address("localhost", listening(folder).port), folder, folder / "ca.pem")
    changed = {path.name for path, content in before.items() if path.read_bytes() != content}
    assert changed == {"server.key", "server.pem"}
    assert (folder / "server.key").stat().st_mode & 0o777 == 0o600
    assert check_server_files(folder) == []


def test_a_renewal_needs_the_authority(tmp_path: Path):
    folder = tmp_path / "keys"
    make_keys(folder, ["127.0.0.1"], ["ann"])
    certificates.init(tmp_path / "others", ["127.0.0.1"])
    offline = (folder / "ca.key").rename(tmp_path / "ca.key")
    with pytest.raises(RunError, match=r"holds no ca.key; expected the authority"):
        certificates.renew(folder)
    # Everything else works while ca.key is stored elsewhere.
    add_node(folder, "bob")
    replace_key(folder, "ann")
    assert check_server_files(folder) == []
    (folder / "ca.key").write_bytes((tmp_path / "others" / "ca.key").read_bytes())
    with pytest.raises(RunError, match="the key is not that of the certificate"):
        certificates.renew(folder)
    (folder / "ca.key").write_bytes(offline.read_bytes())
    certificates.renew(folder)


def test_an_expired_certificate_is_refused_until_it_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = made_days_ago(tmp_path / "keys", issuing.SERVER_DAYS + 1, monkeypatch)
    with pytest.raises(RunError, match=r"server.pem expired on .* coterie federation renew"):
        check_server_files(folder)
    certificates.renew(folder)
    assert check_server_files(folder) == []


@pytest.mark.parametrize(("left", "warned"), [(31.5, False), (29.5, True), (0.5, True)])
def test_the_last_thirty_days_are_announced(
    left: float, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = made_days_ago(tmp_path / "keys", issuing.SERVER_DAYS - left, monkeypatch)
    warnings = check_server_files(folder)
    assert len(warnings) == warned
    if warned:
        assert f"server.pem expires in {int(left)} days" in warnings[0]
        assert f"coterie federation renew {folder}" in warnings[0]


def test_an_authority_ends_and_no_certificate_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = made_days_ago(tmp_path / "keys", issuing.AUTHORITY_DAYS - 100, monkeypatch)
    certificates.renew(folder)
    ends = [Validity.of(read_certificate(folder / name)).ends for name in ("ca.pem", "server.pem")]
    assert ends[0] == ends[1]
    old = made_days_ago(tmp_path / "old", issuing.AUTHORITY_DAYS + 1, monkeypatch)
    with pytest.raises(RunError, match=r"ca.pem expired on .* give every node a new inv"):
        check_server_files(old)
    with pytest.raises(RunError, match=r"ca.pem expired on"):
        certificates.renew(old)


def test_a_certificate_of_tomorrow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = made_days_ago(tmp_path / "keys", -1, monkeypatch)
    with pytest.raises(RunError, match="Check this machine's clock"):
        check_server_files(folder)


@pytest.mark.parametrize(
    ("foreign", "message"),
    [
        (("server.pem", "server.key"), "is not signed by"),
        (("server.key",), "is not the key of server.pem"),
        (("ca.pem",), "is not signed by"),
    ],
)
def test_files_of_two_federations_are_refused(
    foreign: tuple[str, ...], message: str, keys: Path, tmp_path: Path
):
    certificates.init(tmp_path / "mixed", ["127.0.0.1"])
    for name in foreign:
        (tmp_path / "mixed" / name).write_bytes((keys / name).read_bytes())
    with pytest.raises(RunError, match=message):
        check_server_files(tmp_path / "mixed")


def test_a_rotated_key_replaces_the_old_one(tmp_path: Path):
    folder = tmp_path / "keys"
    make_keys(folder, ["127.0.0.1"], ["ann", "bob"])
    nodes = folder / "nodes"
    before = read_public_keys(nodes)
    path = replace_key(folder, "ann")
    after = read_public_keys(nodes)
    assert path.stat().st_mode & 0o777 == 0o600
    assert after["ann"] == NodeKey.read(path).public != before["ann"]
    assert after["bob"] == before["bob"]
    with pytest.raises(RunError, match=r"expected an admitted node \(ann, bob\)"):
        certificates.rotate(folder, "cem", path.with_suffix(".pub"))


def test_keys_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "keys"
    make_keys(folder, ["127.0.0.1"], ["ann"])
    add_node(folder, "bob", days=30)
    path = folder / "nodes" / "bob.pub"
    dates = certificates.read_dates(path)
    assert dates.expires is not None
    assert abs(dates.expires - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=1)
    assert read_public_keys(folder / "nodes").keys() == {"ann", "bob"}
    backdate(path, days=31)
    assert read_public_keys(folder / "nodes").keys() == {"ann"}
    # The new key is valid for as many days as the old one was, or for those that are given.
    replace_key(folder, "bob")
    assert certificates.read_dates(path).lifetime == timedelta(days=30)
    assert read_public_keys(folder / "nodes").keys() == {"ann", "bob"}
    replace_key(folder, "bob", days=7)
    assert certificates.read_dates(path).lifetime == timedelta(days=7)
    replace_key(folder, "ann")
    assert certificates.read_dates(folder / "nodes" / "ann.pub").expires is None


def backdate(path: Path, days: float) -> None:
    """Move the dates of a key into the past."""
    dates = KeyDates.of(path.read_text())
    assert dates.created is not None
    assert dates.expires is not None
    past = timedelta(days=days)
    moved = KeyDates(dates.created - past, dates.expires - past)
    path.write_text(" ".join([*path.read_text().split()[:2], moved.comment]) + "\n")


def test_keys_without_dates_are_valid_and_damaged_dates_are_not(tmp_path: Path):
    folder = tmp_path / "keys"
    make_keys(folder, ["127.0.0.1"], ["ann"])
    path = folder / "nodes" / "ann.pub"
    bare = " ".join(path.read_text().split()[:2])
    for comment, valid in [
        ("", True),
        (" ann@laptop", True),
        (" expires=2999-01-01T00:00:00Z", True),
        (" expires=tomorrow", False),
        (" expires=", False),
        (" expires=2999-01-01", False),
    ]:
        path.write_text(f"{bare}{comment}\n")
        assert ("ann" in read_public_keys(folder / "nodes")) == valid, comment
    with pytest.raises(RunError, match="has a date that cannot be read"):
        replace_key(folder, "ann")
