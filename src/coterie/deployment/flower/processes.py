"""Flower's own programs as child processes, quiet and on the addresses that we say."""

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
from typing import Any

from coterie.errors import ConfigError, MissingExtra, RunError

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
CLIENT = "coterie.deployment.flower.client:app"
APP = """[project]
name = "coterie-federation"
version = "1.0.0"
description = "A federation of Coterie's"
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
LINK = """[superlink]
default = "here"

[superlink.here]
address = "{address}"
{trust}
"""
PR_SET_PDEATHSIG = 1
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

    def refuse_in_the_clear(self, insecure: bool, certificates: str) -> None:
        """TLS, unless it is asked to do without, on loopback."""
        if not insecure:
            raise ConfigError(
                f"no certificates are named for {self}; expected {certificates} (coterie federation init makes them). "
                "Name them, or try it on loopback with --insecure."
            )
        if self.host not in LOOPBACK:
            raise ConfigError(
                f"--insecure with {self}: what travels could be read and changed on the way; expected TLS, or a loopback address. "
                f"Leave --insecure out and name {certificates}."
            )


def environment(home: Path) -> dict[str, str]:
    """Quiet, with a home of its own, and with this environment's programs: Flower's look for each other."""
    return os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": _path()}


def _path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def program(name: str) -> str:
    """One of Flower's programs, of this environment."""
    found = shutil.which(name, path=_path())
    if found is None:
        raise MissingExtra("a federation", "federation")
    return found


@contextmanager
def running(command: Sequence[str], log: Path, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child process with a log; it ends with us, on Linux also where we are killed."""
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
    """Asks the kernel for SIGTERM when whoever started this process is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def ended_by_signals() -> None:
    """SIGTERM ends us as Ctrl-C does, and our children with us."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def stop(child: subprocess.Popen[bytes], seconds: float = 10) -> None:
    """Ask, wait, insist: the child and what it started."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, how)
            child.wait(seconds)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
    child.wait()


def wait_until_free(address: Address, seconds: float = 30) -> None:
    """A server that was killed takes a while to let go of its port."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((address.host, address.port))
            except OSError as error:
                fault = error.strerror
                time.sleep(0.3)
            else:
                return
    raise ConfigError(
        f"{address} cannot be used ({fault}); expected a free port of this machine. Name another with --server."
    )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(
    address: Address, child: subprocess.Popen[bytes], log: Path, seconds: float = 60
) -> None:
    """Until somebody listens there."""
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
        f"nothing listens at {address} after {seconds:g} seconds; {log} says why. Is the port taken?"
    )


def gate(side: str, address: Address, link: str, *trust: Path) -> list[str]:
    """The command of a gate."""
    return [
        sys.executable,
        "-m",
        "coterie.deployment.flower.gate",
        side,
        str(address),
        link,
        *map(str, trust),
    ]


def submit(folder: Path, home: Path, keyed: bool) -> None:
    """Hand our two apps to a SuperLink."""
    app = home / "app"
    app.mkdir(parents=True, exist_ok=True)
    (app / "pyproject.toml").write_text(
        APP.format(client=CLIENT, folder=json.dumps(str(folder.resolve())), keyed=json.dumps(keyed))
    )
    flwr(home, "run", str(app), "here")


def name_link(home: Path, address: Address, ca: Path | None) -> None:
    """Where Flower's commands find the SuperLink, and whom they trust."""
    trust = (
        "insecure = true" if ca is None else f"root-certificates = {json.dumps(str(ca.resolve()))}"
    )
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(LINK.format(address=address, trust=trust))


def flwr(home: Path, *command: str, but: str = "") -> dict[str, Any]:
    """What one of Flower's commands says; it ends with 0 where it fails, so what it says counts. A failure that says `but` is none."""
    try:
        done = subprocess.run(
            [program("flwr"), *command, "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
            env=environment(home),
            timeout=120,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"flwr {' '.join(command[:2])} did not end within two minutes") from None
    text = done.stdout[done.stdout.find("{") :]
    try:
        said: dict[str, Any] = json.loads(text)
        fine = bool(said["success"])
    except (ValueError, KeyError):
        said = {}
        fine = False
    if not fine and not (but and but in text + done.stderr):
        raise RunError(
            f"flwr {' '.join(command[:2])} failed: {(text or done.stderr).strip()[:300]}"
        )
    return said
