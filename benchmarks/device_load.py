"""Many devices of one gateway: how long a round takes, and what the server needs. Prints JSON.

    python benchmarks/device_load.py --devices 100

The server is `coterie serve --devices` on loopback, with as many items as a dataset has. Devices
are threads of this process that speak the protocol of docs/device.md, each with its own key and
connection. They do not train: an update has random items and small rows, as many as triples and
likes of a round. Devices are enrolled in the gateway's store, since an address may enrol one in
two seconds. `requests` are messages and updates; refused ones would be an error.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import coterie
from coterie import kernels
from coterie.deployment.devices.store import DeviceStore
from coterie.federated.wire import decode, encode
from coterie.types import Updates

PORT = 18431
"""Of the server; the gateway listens at the next one."""
ROWS = 40
WAIT_SECONDS = 20
STARTED = re.compile(r"(\S+): devices enrol at http://127\.0\.0\.1:(\d+)/")


@dataclass
class StandInDevice:
    """A device that sends valid updates, and counts what it calls."""

    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    id: str = ""
    last_time: int = 0
    requests: int = 0
    times: dict[int, float] = field(default_factory=dict)
    """Round -> when its update was received."""
    error: str = ""

    def run(self, port: int, seed: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        rng = np.random.default_rng(seed)
        try:
            while not self._take_part(connection, rng):
                pass
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            connection.close()

    def _take_part(self, connection: http.client.HTTPConnection, rng: np.random.Generator) -> bool:
        """One message, and the update to it; returns whether training is over."""
        headers, body = self._call(connection, "GET", f"/device/message?wait={WAIT_SECONDS}", b"")
        if not body:
            if headers["coterie-state"] != "finished":
                return False
            self._call(connection, "GET", "/device/model", b"")
            return True
        update = update_to(body, rng)
        names = ("coterie-run", "coterie-round", "coterie-attempt")
        place = {name: headers[name] for name in names}
        self._call(connection, "POST", "/device/update", update, place)
        self.times[int(place["coterie-round"])] = time.monotonic()
        return False

    def _call(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes,
        more: dict[str, str] | None = None,
    ) -> tuple[dict[str, str], bytes]:
        # A time that was used before would be a repeated request.
        self.last_time = max(time.time_ns() // 1_000_000, self.last_time + 1)
        now = str(self.last_time)
        text = "\n".join([method, target, now, hashlib.sha256(body).hexdigest()])
        signed = {
            "Coterie-Device": self.id,
            "Coterie-Time": now,
            "Coterie-Signature": base64url(self.key.sign(text.encode())),
        }
        connection.request(method, target, body or None, signed | (more or {}))
        response = connection.getresponse()
        content = response.read()
        self.requests += 1
        if response.status >= 400:
            raise RuntimeError(f"{method} {target} was refused: {content[:300]!r}")
        return {name.lower(): value for name, value in response.getheaders()}, content


def update_to(body: bytes, rng: np.random.Generator) -> bytes:
    message = decode(body)
    n_items, size = message.common["item_rows"].shape
    items = np.sort(rng.choice(n_items, min(ROWS, n_items), replace=False)).astype(np.int32)
    rows = rng.integers(-999, 1000, (len(items), size + 1)).astype(np.int32)
    made = Updates.of_item_rows(message.arrays["users"], [items], [rows])
    return encode(message.round, made.columns())


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@contextmanager
def serving(folder: Path, given: argparse.Namespace) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server that waits for its devices, and the port of its gateway."""
    ids = [str(item) for item in range(coterie.load(given.dataset).n_items)]
    (folder / "items.csv").write_text("\n".join(["item_id", *ids]))
    config = {
        "algorithm": "pfpl+",
        "epochs": given.rounds,
        "rounds_an_epoch": 1,
        "triples": ROWS // 2,
        "items": str(folder / "items.csv"),
        "least_nodes": 1,
        "least_devices": given.devices,
        "round_seconds": 300,
    }
    (folder / "federation.json").write_text(json.dumps(config))
    command = [
        *(sys.executable, "-c", "from coterie.cli.main import main; main()", "serve"),
        *("--config", str(folder / "federation.json"), "--insecure", "--devices"),
        *("--server", f"127.0.0.1:{PORT}", "--out", str(folder / "run")),
    ]
    log = (folder / "serve.log").open("w+")
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True)
    try:
        yield process, port_of(process, folder / "serve.log")
    finally:
        process.terminate()
        process.wait(60)
        log.close()


def port_of(process: subprocess.Popen[str], log: Path) -> int:
    while process.poll() is None:
        found = STARTED.search(log.read_text())
        if found:
            return int(found[2])
        time.sleep(0.2)
    raise RuntimeError(f"the server stopped: {log.read_text()[-2000:]}")


def enrol(folder: Path, n: int) -> list[StandInDevice]:
    store = DeviceStore.make(folder)
    devices = [StandInDevice() for _ in range(n)]
    for k, device in enumerate(devices):
        public = device.key.public_key().public_bytes_raw()
        device.id = store.enrol(store.add_code(), public, f"device {k}", n).id
    return devices


def peak_mb(process: subprocess.Popen[str]) -> float:
    """The largest memory of the server so far."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return round(int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1e3, 1)


def measure(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    with serving(folder, given) as (process, port):
        alone = peak_mb(process)
        devices = enrol(folder / "run", given.devices)
        threads = [
            threading.Thread(target=device.run, args=(port, k), daemon=True)
            for k, device in enumerate(devices)
        ]
        for thread in threads:
            thread.start()
        peak = alone
        while any(thread.is_alive() for thread in threads) and process.poll() is None:
            peak = max(peak, peak_mb(process))
            time.sleep(0.1)
    errors = [device.error for device in devices if device.error]
    if errors:
        raise RuntimeError(f"{len(errors)} devices failed: {errors[0]}")
    ends = [max(device.times[t] for device in devices) for t in range(given.rounds)]
    # Round 1 also has the start of training.
    seconds = np.diff(ends).tolist()
    requests = sum(device.requests for device in devices)
    return {
        "devices": given.devices,
        "dataset": given.dataset,
        "rounds": given.rounds,
        "seconds_a_round": round(statistics.median(seconds), 3),
        "slowest_round_seconds": round(max(seconds), 3),
        "requests": requests,
        # A message and an update of each device in a round
        "requests_a_second": round(2 * given.devices / statistics.median(seconds), 1),
        "server_mb_before_devices": alone,
        "server_mb_at_most": peak,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    for name in ("fpl", "samples", "sums", "clusters"):
        # The server would compile them in its first round.
        kernels.load(name)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), given), indent=2))


if __name__ == "__main__":
    main()
