"""The nodes of a server together with the gateway, which is one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from coterie.deployment.devices.gateway import Gateway
from coterie.deployment.devices.store import GATEWAY
from coterie.deployment.traffic import Nodes


@dataclass(frozen=True, slots=True)
class NodesWithDevices:
    others: Nodes
    gateway: Gateway
    deadline: float
    """Seconds after which a device has dropped out of a round."""

    @property
    def keyed(self) -> bool:
        return self.others.keyed

    @property
    def refused(self) -> Mapping[str, int]:
        of_devices = {f"device: {why}": n for why, n in self.gateway.refused.items()}
        return {**self.others.refused, **of_devices}

    @property
    def last_refused(self) -> Mapping[str, str]:
        of_devices = {f"device: {why}": who for why, who in self.gateway.last_refused.items()}
        return {**self.others.last_refused, **of_devices}

    def fingerprint(self, name: str) -> str:
        return "" if name == GATEWAY else self.others.fingerprint(name)

    def limit_replies(self, kind: str, most_bytes: Mapping[str, int]) -> None:
        self.others.limit_replies(kind, most_bytes)

    def signed(self, name: str, text: str, signature: str) -> bool:
        return name != GATEWAY and self.others.signed(name, text, signature)

    def joined(self) -> dict[str, int]:
        """The gateway is there while it has devices. No other node can have its name."""
        found = {name: n for name, n in self.others.joined().items() if name != GATEWAY}
        number = self.gateway.connection()
        return found if number is None else found | {GATEWAY: number}

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        """Send to the gateway and to the others at the same time."""
        to_others = {name: data for name, data in out.items() if name != GATEWAY}
        if GATEWAY not in out:
            return dict(self.others.send(kind, to_others, seconds))
        limit = self.deadline if seconds is None else min(seconds, self.deadline)
        until = time.monotonic() + limit
        replies: dict[str, bytes] = {}
        failures: list[BaseException] = []

        def answer() -> None:
            try:
                reply = self.gateway.answer(kind, out[GATEWAY], until)
            except BaseException as error:  # raised below, in the server's thread
                failures.append(error)
                return
            if reply is not None:
                replies[GATEWAY] = reply

        thread = threading.Thread(target=answer, name="gateway", daemon=True)
        thread.start()
        found = dict(self.others.send(kind, to_others, seconds)) if to_others else {}
        thread.join()
        if failures:
            raise failures[0]
        return found | replies
