"""`coterie run --rounds N --device D` set the settings of those names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from calling import SMALL, settings

from coterie.cli.main import main


@pytest.fixture
def coterie(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """The entry point, called in an empty folder and without matplotlib."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["coterie", *arguments])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return call


def test_rounds_and_device_are_settings(coterie):
    code, out, err = coterie(
        "run", "fedfast", *SMALL, "--rounds", "3", "--device", "cpu", "--out", "run", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["rounds"] == 3
    text = Path("run/config.yaml").read_text()
    assert "rounds: 3\n" in text
    assert "device: cpu\n" in text


def test_set_accepts_what_has_an_option(coterie):
    changes = settings(rounds=2, batch_size=5, optimizer="adam")
    code, out, err = coterie("run", "fedavg", *SMALL, *changes, "--json")
    assert code == 0, err
    assert json.loads(out)["rounds"] == 2


def test_an_unknown_device_is_refused(coterie):
    code, _, err = coterie("run", "fedfast", "--device", "tpu")
    assert code == 2
    assert err.startswith("error: setting 'device' is 'tpu'; ")
    assert "'cpu' or 'cuda'" in err


@pytest.mark.parametrize(
    ("key", "value"), [("batch_size", "0"), ("optimizer", "adamw"), ("rounds", "0")]
)
def test_values_out_of_range_are_refused(coterie, key, value):
    code, _, err = coterie("run", "fedfast", "--set", f"{key}={value}")
    assert code == 2
    assert f"setting {key!r} is " in err


def test_a_missing_gpu_is_reported_before_training(coterie, monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch (the extra 'neural') is not installed")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, _, err = coterie("run", "fedfast", *SMALL, "--device", "cuda", "--quiet")
    assert code == 2
    assert err.splitlines()[-1].startswith(
        "error: setting 'device' is 'cuda', but PyTorch finds no GPU here"
    )


def test_a_centralised_algorithm_has_no_rounds(coterie):
    code, _, err = coterie("run", "bpr", "--rounds", "3")
    assert code == 2
    assert "unknown setting 'rounds'" in err
