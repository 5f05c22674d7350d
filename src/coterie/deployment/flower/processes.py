"""Flower's programs as child processes, without telemetry and on chosen addresses."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coterie.errors import ConfigError, MissingExtra, RunError
from coterie.types import JsonObject

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
CLIENT = "coterie.deployment.flower.client:app"
APP = """[project]
name = "coterie-federation"
version = "1.0.0"
description = "A federation of recommenders"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "coterie"

[tool.flwr.app.components]
serverapp = "coterie.deployment.flower.server:app"
clientapp = "{client}"

[tool.flwr.app.config]
folder = {folder}
keyed = {keyed}
"""
CONNECTION = "local"
"""The name under which Flower's commands know the SuperLink."""
CONNECTIONS = """[superlink]
default = "{name}"

[superlink.{name}]
address = "{address}"
{trust}
"""
PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>: the signal that a process gets when its parent dies."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"the address is {text!r}; expected HOST:PORT, such as 127.0.0.1:8000. Change it."
            )
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def url(self, secured: bool) -> str:
        return f"{'https' if secured else 'http'}://{self}"

    def refuse_plaintext(self, insecure: bool, certificates: str) -> None:
        """Require TLS; --insecure is allowed on loopback only."""
        if not insecure:
            raise ConfigError(
                f"no certificates are named for {self}; expected {certificates} "
                "(coterie federation init makes them). "
                "Name them, or try it on loopback with --insecure."
            )
        if self.host not in LOOPBACK:
            raise ConfigError(
                f"--insecure is given with {self}, where traffic could be read and changed on the "
                "way; expected TLS, or a loopback address. "
                f"Leave --insecure out and name {certificates}."
            )


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's programs, with a home folder of its own.

    Flower's programs start each other by name, so this environment's come first in PATH.
    """
    return os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": _path()}


def _path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def find_program(name: str) -> str:
    """The path of one of Flower's programs."""
    found = shutil.which(name, path=_path())
    if found is None:
        raise MissingExtra("a federation", "federation")
    return found


@contextmanager
def running(command: Sequence[str], log: Path, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child process with a log. It ends with this process, on Linux even after a SIGKILL."""
    home.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600), "ab") as out:
        child = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env=environment(home),
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        try:
            yield child
        finally:
            stop(child)


def _end_with_parent() -> None:
    """Ask the kernel to send this process SIGTERM when its parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def exit_on_sigterm() -> None:
    """Exit on SIGTERM as on Ctrl-C, so that child processes are stopped."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def stop(child: subprocess.Popen[bytes], seconds: float = 10) -> None:
    """Stop a child and its own children: first with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(seconds)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
    child.wait()


def wait_until_free(address: Address, seconds: float = 30) -> None:
    """Wait until the port is free. The port of a killed server stays in use for a while."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address.host, address.port))
            except OSError as error:
                fault = error.strerror
                time.sleep(0.3)
            else:
                return
    raise ConfigError(
        f"{address} cannot be used ({fault}); expected a free port of this machine. "
        "Name another with --server."
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(
    address: Address, child: subprocess.Popen[bytes], log: Path, seconds: float = 60
) -> None:
    """Wait until the child listens at the address."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if child.poll() is not None:
            break
        try:
            socket.create_connection((address.host, address.port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RunError(
        f"nothing listens at {address} after {seconds:g} seconds; expected a process of Flower. "
        f"See {log}, and check that the port is free."
    )


def gate_command(side: str, address: Address, link: str, *files: Path) -> list[str]:
    """The command line of a gate."""
    return [
        sys.executable,
        "-m",
        "coterie.deployment.flower.gate",
        side,
        str(address),
        link,
        *map(str, files),
    ]


def submit(folder: Path, home: Path, keyed: bool) -> None:
    """Submit our two apps to a SuperLink."""
    app = home / "app"
    app.mkdir(parents=True, exist_ok=True)
    (app / "pyproject.toml").write_text(
        APP.format(client=CLIENT, folder=json.dumps(str(folder.resolve())), keyed=json.dumps(keyed))
    )
    flwr(home, "run", str(app), CONNECTION)


def write_connection(home: Path, address: Address, ca: Path | None) -> None:
    """Tell Flower's commands where the SuperLink is and which authority to trust."""
    trust = "insecure = true"
    if ca is not None:
        trust = f"root-certificates = {json.dumps(str(ca.resolve()))}"
    home.mkdir(parents=True, exist_ok=True)
    text = CONNECTIONS.format(name=CONNECTION, address=address, trust=trust)
    (home / "config.toml").write_text(text)


def flwr(home: Path, *command: str, tolerate: str = "") -> JsonObject:
    """Run one of Flower's commands and return its JSON output.

    Flower exits with 0 even if a command fails, so only the output counts. A failure whose output
    contains `tolerate` is ignored.
    """
    name = f"flwr {' '.join(command[:2])}"
    try:
        done = subprocess.run(
            [find_program("flwr"), *command, "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
            env=environment(home),
            timeout=120,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{name} did not end within two minutes; expected seconds.") from None
    text = done.stdout[done.stdout.find("{") :]
    try:
        output: JsonObject = json.loads(text)
        succeeded = bool(output["success"])
    except (ValueError, KeyError):
        output = {}
        succeeded = False
    if not succeeded and not (tolerate and tolerate in text + done.stderr):
        raise RunError(f"{name} failed: {(text or done.stderr).strip()[:300]}")
    return output
