"""Call the API without a network: one request to the gate, as the HTTP server passes it on."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import urlencode

from coterie.deployment.address import Address
from coterie.serving.access import Access
from coterie.serving.app import make_app
from coterie.serving.gate import ApiGate
from coterie.serving.watcher import ModelWatcher

LOCAL = Access(Address("127.0.0.1", 8080))


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The text of a failure, which has nothing else."""
        assert self.status >= 400, self
        assert list(self.data) == ["error"], self
        return str(self.data["error"])


class Caller:
    """Sends requests to an app behind the gate."""

    def __init__(self, app: Any, access: Access = LOCAL) -> None:
        self.logged: list[str] = []
        self.gate = ApiGate(app, access, self.logged.append)

    @classmethod
    def of(cls, watcher: ModelWatcher, access: Access = LOCAL) -> Caller:
        return cls(make_app(watcher), access)

    def get(self, path: str, headers: dict[str, str] | None = None, **query: object) -> Answer:
        return asyncio.run(self.ask("GET", path, headers, query=urlencode(query)))

    def post(self, path: str, body: object, headers: dict[str, str] | None = None) -> Answer:
        """`body` is bytes, or what is sent as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return asyncio.run(self.ask("POST", path, headers, [content]))

    async def ask(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        parts: list[bytes] | None = None,
        query: str = "",
        announced: bool = True,
    ) -> Answer:
        sent = {"host": "localhost", "content-type": "application/json"} | (headers or {})
        if parts is not None and announced:
            sent = {"content-length": str(sum(map(len, parts)))} | sent
        elif parts is not None:
            sent["transfer-encoding"] = "chunked"
        events = [
            {"type": "http.request", "body": part, "more_body": k + 1 < len(parts)}
            for k, part in enumerate(parts or [])
        ]
        replies: list[Any] = []

        async def receive() -> Any:
            return events.pop(0) if events else await asyncio.sleep(3600)

        async def send(event: Any) -> None:
            replies.append(event)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
            "query_string": query.encode(),
            "headers": [(key.encode(), value.encode()) for key, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8080),
        }
        await self.gate(scope, receive, send)
        body = b"".join(event.get("body", b"") for event in replies[1:])
        return Answer(replies[0]["status"], dict(replies[0]["headers"]), body)
