"""`coterie device`: codes, the list, revoking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")

from coterie.cli.main import app
from coterie.deployment.devices.store import DeviceStore
from coterie.errors import RunError, UnknownName


@pytest.fixture
def run(tmp_path: Path) -> Path:
    DeviceStore.make(tmp_path).put_url("http://127.0.0.1:8001/device/")
    return tmp_path


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["device", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_codes_a_list_and_revoking(run: Path) -> None:
    assert "has no devices" in call("list", str(run))
    lines = call("code", str(run), "--count", "3").splitlines()
    codes = [line.split()[0] for line in lines]
    assert len(set(codes)) == 3
    for line, code in zip(lines, codes, strict=True):
        assert line.split()[1] == f"http://127.0.0.1:8001/device/#code={code}"
    store = DeviceStore.open(run)
    device = store.enrol(codes[0], bytes(32), "Ann's \x1b[31mphone", 5)
    shown = call("list", str(run))
    assert shown.split()[:3] == [device.id, "-", "enrolled"]
    assert "\x1b" not in shown
    store.put_numbers({device.user: 7}, [])
    (listed,) = json.loads(call("list", str(run), "--json"))
    assert (listed["user"], listed["state"], listed["name"]) == (7, "enrolled", device.name)
    assert f"Revoked {device.id}" in call("revoke", str(run), device.id)
    assert call("list", str(run)).split()[:3] == [device.id, "7", "revoked"]
    with pytest.raises(UnknownName, match="device 'x'"):
        call("revoke", str(run), "x")
    with pytest.raises(RunError, match="revoked already"):
        call("revoke", str(run), device.id)


def test_a_finished_federation_has_no_codes(run: Path) -> None:
    (run / "status.json").write_text('{"state": "training"}')
    assert call("code", str(run))
    (run / "status.json").write_text('{"state": "finished"}')
    with pytest.raises(RunError, match=r"finished federation.*Begin another"):
        call("code", str(run))


def test_a_code_for_a_phone(run: Path) -> None:
    pytest.importorskip("segno")
    lines = call("code", str(run), "--qr").splitlines()
    assert set("".join(lines[1:])) == set("█▀▄ ")


def test_a_run_without_devices(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="--devices"):
        call("code", str(tmp_path))
