"""The list of certificates and keys: what it shows, and that other programs agree."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from deployment.test_certificates import backdate, made_days_ago
from node_keys import add_node, make_keys

pytest.importorskip("cryptography")
from coterie.deployment import issuing
from coterie.deployment.key_listing import list_folder
from coterie.errors import RunError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["fed.example"], ["ann"])
    add_node(tmp_path / "keys", "bob", days=30)
    add_node(tmp_path / "keys", "cem", days=30)
    backdate(tmp_path / "keys" / "nodes" / "cem.pub", days=32)
    (tmp_path / "keys" / "nodes" / "dan.pub").write_text("garbage\n")
    return tmp_path / "keys"


def test_every_key_is_listed_with_its_state(folder: Path):
    keys = {key.name: key for key in list_folder(folder).keys}
    assert {name: (key.state, key.days_left) for name, key in keys.items()} == {
        "ann": ("valid", None),
        "bob": ("valid", 29),
        "cem": ("expired", -3),
        "dan": ("unreadable", None),
    }
    assert keys["ann"].created is not None
    assert keys["ann"].expires is None


def test_certificates_are_listed_with_their_hosts(folder: Path, tmp_path: Path, monkeypatch):
    authority, server = list_folder(folder).certificates
    assert (authority.file, authority.hosts, authority.state) == ("ca.pem", [], "valid")
    assert (server.file, server.hosts) == ("server.pem", ["fed.example", "127.0.0.1"])
    assert server.days_left == issuing.SERVER_DAYS - 1
    old = made_days_ago(tmp_path / "old", issuing.SERVER_DAYS + 1, monkeypatch)
    assert [one.state for one in list_folder(old).certificates] == ["valid", "expired"]


def test_fingerprints_are_those_of_openssh_and_openssl(folder: Path):
    listing = list_folder(folder)
    if not shutil.which("ssh-keygen") or not shutil.which("openssl"):
        pytest.skip("ssh-keygen and openssl are not installed")
    shown = subprocess.run(
        ["ssh-keygen", "-lf", folder / "nodes" / "ann.pub"], capture_output=True, text=True
    )
    assert listing.keys[0].fingerprint in shown.stdout.split()
    shown = subprocess.run(
        ["openssl", "x509", "-in", folder / "ca.pem", "-noout", "-fingerprint", "-sha256"],
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip().endswith(f"={listing.certificates[0].fingerprint}")


def test_another_folder_is_refused(tmp_path: Path):
    with pytest.raises(RunError, match=r"holds no ca.pem; expected a folder of coterie federation"):
        list_folder(tmp_path)
