"""What monitoring reads of a server: `/healthz` and `/metrics`, on a port of loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from coterie.deployment.address import LOOPBACK
from coterie.deployment.traffic import read_status
from coterie.errors import ConfigError, MissingExtra
from coterie.types import JsonObject

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
except ImportError:
    raise MissingExtra("--metrics", "federation") from None

HEALTHY = ("starting", "waiting", "training", "finished")
NUMBERS = {
    "round": "The last round that was committed.",
    "rounds": "The rounds of the federation.",
    "seconds_per_round": "The median duration of recent rounds.",
    "nodes": "The nodes that are connected.",
    "epsilon": "The privacy budget of the run.",
    "epsilon_spent": "What is spent of the privacy budget.",
}
TOTALS = {
    "updates": "Updates that were accepted.",
    "dropped": "Selected users without an update.",
    "unanswered": "Messages without a reply.",
    "bytes_up": "Bytes of updates.",
    "bytes_down": "Bytes of messages to nodes.",
    "bytes_control": "Bytes of all other messages.",
}


def collect(status: JsonObject) -> Iterator[Metric]:
    """A server's status as metrics."""
    for name, text in NUMBERS.items():
        if isinstance(status.get(name), int | float):
            yield GaugeMetricFamily(f"coterie_{name}", text, value=status[name])
    for name, text in TOTALS.items():
        yield CounterMetricFamily(f"coterie_{name}", text, value=status.get(name, 0))
    yield GaugeMetricFamily(
        "coterie_silent_nodes",
        "Connected nodes that do not answer.",
        value=len(status.get("silent", ())),
    )
    yield _nodes_by_state(status)
    phases = CounterMetricFamily(
        "coterie_phase_seconds", "Time of the server, by phase.", labels=["phase"]
    )
    for phase, seconds in status.get("seconds_by_phase", {}).items():
        phases.add_metric([phase], seconds)
    yield phases
    states = GaugeMetricFamily("coterie_state", "1 for the server's state.", labels=["state"])
    states.add_metric([str(status.get("state", "starting"))], 1)
    yield states
    refused = CounterMetricFamily("coterie_refused", "Refusals by reason.", labels=["reason"])
    for reason, count in status.get("refused", {}).items():
        refused.add_metric([reason], count)
    yield refused
    alarms = CounterMetricFamily("coterie_alarms", "Alarms that were raised.", labels=["kind"])
    for kind, count in status.get("alarms_raised", {}).items():
        alarms.add_metric([kind], count)
    yield alarms
    memory = resident_bytes()
    if memory is not None:
        text = "Memory of the server's process."
        yield GaugeMetricFamily("coterie_resident_memory_bytes", text, value=memory)


def _nodes_by_state(status: JsonObject) -> Metric:
    """A node is connected; then enrolled, or silent if it does not answer, or neither yet."""
    nodes = GaugeMetricFamily("coterie_nodes_by_state", "Nodes by state.", labels=["state"])
    counts = {
        "connected": status.get("nodes", 0),
        "enrolled": status.get("enrolled", 0),
        "silent": len(status.get("silent", ())),
    }
    for state, count in counts.items():
        nodes.add_metric([state], count)
    return nodes


def resident_bytes() -> int | None:
    try:
        fields = Path("/proc/self/statm").read_text().split()
    except OSError:
        return None
    import resource

    return int(fields[1]) * resource.getpagesize()


class StatusCollector:
    """Reads the status anew for every scrape."""

    def __init__(self, status: Callable[[], JsonObject]) -> None:
        self.status = status

    def collect(self) -> Iterator[Metric]:
        return collect(self.status())


@contextmanager
def monitoring(folder: Path, port: int) -> Iterator[None]:
    """Answer monitoring while the body runs."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: read_status(folder)))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self.reply(200, generate_latest(registry), "text/plain; version=0.0.4")
            elif self.path == "/healthz":
                state = str(read_status(folder).get("state", "starting"))
                self.reply(200 if state in HEALTHY else 503, state.encode() + b"\n")
            else:
                self.reply(404, b"expected /healthz or /metrics\n")

        def reply(self, code: int, body: bytes, kind: str = "text/plain") -> None:
            self.send_response(code)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Scrapes are not logged."""

    try:
        server = ThreadingHTTPServer((LOOPBACK[0], port), Handler)
    except OSError as error:
        raise ConfigError(
            f"--metrics is {port}, which cannot be used ({error.strerror}); "
            "expected a free port of loopback. Choose another."
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
