"""The files in deploy/ and the page about operations: commands parse, units are hardened."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
import yaml

from coterie import errors
from coterie.cli.main import app
from coterie.deployment.signals import exit_on_sigterm

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "operations.md"
UNITS = sorted(DEPLOY.glob("*.service"))
HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "CapabilityBoundingSet": "",
    "SystemCallFilter": "@system-service",
    "UMask": "0077",
}


def parse(arguments: list[str]) -> click.Context:
    """Parse a command as `coterie` does, without running it."""
    command: click.Command = typer.main.get_command(app)
    rest = list(arguments)
    name = "coterie"
    while isinstance(command, click.Group):
        name = rest.pop(0)
        assert name in command.commands, f"coterie has no command {name}"
        command = command.commands[name]
    return command.make_context(name, rest)


@pytest.mark.parametrize(
    "wrong", ["serve --confg x.yaml", "join --server a:1", "federation nothing", "serve"]
)
def test_the_check_of_commands_can_fail(wrong: str):
    with pytest.raises((click.UsageError, AssertionError)):
        parse(shlex.split(wrong))


def compose() -> dict:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def unit(path: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read(path)
    return found


def values(path: Path, key: str) -> list[str]:
    """All values of a key that a unit gives more than once."""
    return re.findall(rf"^{key}=(.*)$", path.read_text(), re.MULTILINE)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where a command is given, and its arguments."""
    for name, service in compose()["services"].items():
        if service["image"] == "coterie":
            yield f"compose {name}", shlex.split(service["command"])
    for path in UNITS:
        for line in values(path, "ExecStart"):
            program, *arguments = shlex.split(line)
            assert program == "/opt/coterie/bin/coterie"
            yield path.name, arguments
    text = PAGE.read_text().replace("\\\n", " ")
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in re.findall(r"^(?:\S*/)?coterie (.*)$", block, re.MULTILINE):
            yield "page", shlex.split(line)


def test_commands_are_found():
    where = [place for place, _ in commands()]
    assert where.count("page") >= 10
    assert {"compose server", "compose ann", "compose bob"} <= set(where)
    assert {"coterie-server.service", "coterie-node.service"} <= set(where)


@pytest.mark.parametrize(("where", "arguments"), list(commands()))
def test_every_command_parses(where: str, arguments: list[str]):
    context = parse(arguments)
    if where.startswith("compose") and context.info_name == "serve":
        assert str(context.params["server"]).startswith("0.0.0.0:")


def test_the_image_starts_the_command():
    text = (DEPLOY / "Containerfile").read_text()
    assert 'ENTRYPOINT ["coterie"]' in text
    assert re.search(r"^USER [1-9]", text, re.MULTILINE)
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for source in line.split():
            assert (ROOT / source).exists(), source


def images() -> Iterator[str]:
    for service in compose()["services"].values():
        yield service["image"]
    text = (DEPLOY / "Containerfile").read_text()
    yield from re.findall(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    yield from (name for name in re.findall(r"^FROM (\S+)", text, re.MULTILINE) if "$" not in name)


@pytest.mark.parametrize("image", list(images()))
def test_no_image_names_a_registry(image: str):
    """Its host would come first: registry.example/name or localhost:5000/name."""
    first, slash, _ = image.partition("/")
    assert not slash or not re.search(r"[.:]|^localhost$", first)


def test_no_file_names_a_host_of_images():
    for path in DEPLOY.iterdir():
        assert not re.search(
            r"docker\.io|ghcr\.io|quay\.io|gcr\.io|https?://(?!127\.0\.0\.1)", path.read_text()
        )


def test_containers_are_confined():
    for name, service in compose()["services"].items():
        if service["image"] != "coterie":
            continue
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        mounts = [volume.split(":") for volume in service["volumes"]]
        writable = [target for _, target, *mode in mounts if mode != ["ro"]]
        assert writable == ["/state"], name
        assert not any(source.endswith("ca.key") for source, *_ in mounts), name


def test_prometheus_scrapes_the_server():
    scraped = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["scrape_configs"]
    (job,) = scraped
    assert job["metrics_path"] == "/metrics"
    assert job["static_configs"] == [{"targets": ["127.0.0.1:9100"]}]
    services = compose()["services"]
    assert "--metrics 9100" in services["server"]["command"]
    assert services["prometheus"]["network_mode"] == "service:server"
    assert any("./prometheus.yaml:" in volume for volume in services["prometheus"]["volumes"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_are_hardened_and_restart(path: Path):
    service = unit(path)["Service"]
    assert {key: service.get(key) for key in HARDENED} == HARDENED
    assert service["User"] != "root"
    state = service["StateDirectory"]
    assert f"%S/{state}/" in service["ExecStart"]
    assert service["Restart"] == "on-failure"
    assert int(service["RestartPreventExitStatus"]) == errors.UserError.exit_code
    assert unit(path)["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_know_the_exit_code_of_sigterm(path: Path, monkeypatch: pytest.MonkeyPatch):
    handlers = {}
    monkeypatch.setattr("signal.signal", handlers.__setitem__)
    exit_on_sigterm()
    ((number, handler),) = handlers.items()
    with pytest.raises(SystemExit) as ended:
        handler(number, None)
    successes = set(map(int, unit(path)["Service"]["SuccessExitStatus"].split()))
    stopped = {errors.BudgetSpent.exit_code} if "server" in path.name else set()
    assert successes == {ended.value.code} | stopped


def test_the_page_lists_every_exit_code():
    rows = re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    classes = [
        found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, errors.CoterieError)
    ]
    codes = {found.exit_code for found in classes} | {0, 143}
    assert {int(row) for row in rows} == codes
    assert len(rows) == len(codes)
