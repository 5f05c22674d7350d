"""The gate: tokens, host names and sizes are checked before a body is parsed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from asking import LOCAL, Caller

from coterie.deployment.address import Address
from coterie.errors import ConfigError
from coterie.serving import gate
from coterie.serving.access import Access, digest, read_token

TOKEN = "0123456789abcdef0123456789abcdef"
SECRET = Access(Address("10.0.0.5", 8080), token=digest(TOKEN.encode()))


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """An app that replies with the size of the body."""
    body = (await receive())["body"] if "content-length" in str(scope["headers"]) else b""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(len(body)).encode()})


async def broken(scope: Any, receive: Any, send: Any) -> None:
    raise KeyError("item 4711 of a history")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN}", 200),
        (TOKEN, 401),
        (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer ", 401),
        ("", 401),
    ],
)
def test_the_token_is_needed_for_every_path(header: str, status: int) -> None:
    caller = Caller(echo, SECRET)
    for path in ("/health", "/openapi.json", "/recommendations"):
        answer = caller.get(path, {"authorization": header})
        assert answer.status == status
        assert TOKEN not in answer.body.decode()
    assert status == 200 or answer.headers[b"www-authenticate"] == b"Bearer"


def test_without_a_token_only_names_of_this_machine_are_served() -> None:
    """A page in a browser could otherwise reach the API under a name of its own."""
    caller = Caller(echo)
    for host in ("localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST"):
        assert caller.get("/health", {"host": host}).status == 200, host
    for host in ("evil.example", "evil.example:8080", "localhost.evil.example", "", "127.0.0.1.x"):
        assert caller.get("/health", {"host": host}).status == 421, host
    authorization = f"Bearer {TOKEN}"
    named = {"host": "api.example", "authorization": authorization}
    assert Caller(echo, SECRET).get("/health", named).status == 200


def test_a_body_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MOST_BYTES", 100)
    caller = Caller(echo)
    assert caller.post("/x", b"y" * 100).body == b"100"
    answer = caller.post("/x", b"y" * 101)
    assert answer.status == 413
    assert answer.headers[b"connection"] == b"close"
    assert "more than 100 bytes" in answer.error


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 50, "", "0x10", "101"])
def test_a_body_is_not_read_if_its_length_is_wrong(
    length: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "MOST_BYTES", 100)
    assert Caller(echo).post("/x", b"", {"content-length": length}).status == 413


def test_an_unannounced_body_is_bounded_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MOST_BYTES", 100)
    parts = [b"y" * 40] * 3
    answer = asyncio.run(Caller(echo).ask("POST", "/x", parts=parts, announced=False))
    assert answer.status == 413


def test_a_slow_body_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "BODY_SECONDS", 0.05)
    asked = Caller(echo).ask("POST", "/x", {"content-length": "50"})
    assert asyncio.run(asked).status == 408


def test_a_bug_gets_a_reply_without_a_trace_or_a_history() -> None:
    caller = Caller(broken)
    answer = caller.post("/x", {"history": ["4711"]})
    assert answer.status == 500
    assert answer.error == "internal error. Look for it in the server's output."
    (line,) = caller.logged
    assert line.startswith("KeyError at ")
    assert "4711" not in line


# Who may call


def test_beyond_loopback_a_token_or_client_certificates_are_required(tmp_path: Path) -> None:
    for host in ("10.0.0.5", "0.0.0.0", "::"):
        with pytest.raises(ConfigError, match="neither token nor certificate; expected one of"):
            Access.of(Address(host, 8080), None, None, None, None)
        pem = tmp_path / "a.pem"
        with pytest.raises(ConfigError, match="neither token nor certificate"):
            Access.of(Address(host, 8080), None, pem, pem, None)
        assert Access.of(Address(host, 8080), None, pem, pem, pem).client_ca == pem
        assert Access.of(Address(host, 8080), token_file(tmp_path), None, None, None).token
    assert Access.of(LOCAL.address, None, None, None, None).token is None


def token_file(folder: Path, content: str = f"{TOKEN}\n", mode: int = 0o600) -> Path:
    path = folder / "token"
    path.unlink(missing_ok=True)
    path.write_text(content)
    path.chmod(mode)
    return path


def test_token_files(tmp_path: Path) -> None:
    assert read_token(token_file(tmp_path)) == TOKEN.encode()
    with pytest.raises(ConfigError, match=r"can be read by others \(mode 644\); expected 600"):
        read_token(token_file(tmp_path, mode=0o644))
    for content in ("", "short", "two words of a long enough text"):
        with pytest.raises(ConfigError, match="at least 16 characters"):
            read_token(token_file(tmp_path, content))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(tmp_path / "missing")


@pytest.mark.parametrize(
    "given", [(True, False, False), (False, True, False), (False, False, True)]
)
def test_tls_needs_all_its_files(given: tuple[bool, ...], tmp_path: Path) -> None:
    files = [tmp_path / "a.pem" if one else None for one in given]
    with pytest.raises(ConfigError, match="expected --certificate and --key together"):
        Access.of(LOCAL.address, None, *files)


def test_tls_with_files_that_are_no_certificates(tmp_path: Path) -> None:
    pem = tmp_path / "a.pem"
    pem.write_text("nothing")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        Access(LOCAL.address, certificate=pem, key=pem).tls()
