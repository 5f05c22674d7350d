"""What a gateway refuses over a real socket: each refusal names thing, value, rule and remedy."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from deployment.devices.conftest import Site, update_of
from deployment.devices.stand_in import Answer, Browser, Ecdsa, Ed25519, unpadded
from deployment.test_server import InProcessNodes
from federated.fuzzing import mangled

from coterie.deployment.devices import app, codes, freshness, store
from coterie.deployment.devices.app import DeviceGate
from coterie.deployment.devices.gateway import Gateway
from coterie.deployment.devices.nodes import NodesWithDevices
from coterie.deployment.devices.rates import RateLimit
from coterie.federated.wire import decode, encode

ORDER_OF_P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@pytest.fixture
def served(site: Site) -> Iterator[tuple[Site, Gateway, DeviceGate]]:
    with site.listening() as (gateway, gate):
        yield site, gateway, gate


def refused(answer: Answer, status: int, *parts: str) -> None:
    """The answer is a refusal with these parts, a rule and a remedy."""
    assert answer.status == status, (answer.status, answer.body)
    for part in (*parts, "expected"):
        assert part in answer.error
    rule, _, remedy = answer.error.rpartition(". ")
    assert rule
    assert remedy


# The page


def test_the_page_its_modules_and_nothing_else(served: Any) -> None:
    site, _, _ = served
    browser = Browser(site.url)
    page = browser.call("GET", "/device/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"a placeholder" in page.body
    module = browser.call("GET", "/device/a.mjs")
    assert module.headers["content-type"] == "text/javascript; charset=utf-8"
    for answer in (page, module, browser.call("GET", "/device/terms"), browser.message()):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert browser.call("GET", "/").headers["location"] == "/device/"
    for path in (
        "/device/secret.db",
        "/device/../run/gateway.db",
        "/device/..%2f..%2fgateway.db",
        "/device//etc/passwd",
        "/device/%2e%2e/x",
        "/etc/passwd",
        "/device/page/a.mjs",
        "/v1/fleet/pull-messages",
    ):
        refused(browser.call("GET", path), 404, path)
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        refused(browser.call(method, "/device/"), 404, method)


def test_terms_and_catalogue(served: Any) -> None:
    site, _, _ = served
    terms = Browser(site.url).read("/device/terms")
    assert (terms["run"], terms["algorithm"], terms["items"]) == ("a run", "pfpl+", 120)
    assert (terms["rounds"], terms["messages"]) == (6, "plain")
    # The paper's regularisation follows from the learning rate: a page need not know how.
    settings = terms["settings"]
    assert settings["learning_rate"] == 0.05
    assert settings["reg_user"] == settings["reg_positive"] == 0.05 / 20
    assert settings["reg_negative"] == 0.05 / 200
    assert (settings["triples"], settings["disclosure"]) == (8, 0.5)
    items = Browser(site.url).read("/device/catalogue")["items"]
    assert [item["id"] for item in items] == site.terms.items


def test_a_foreign_host_is_refused(served: Any) -> None:
    """A page of another site could reach this machine under a name of its own."""
    site, _, _ = served
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]:1"):
        answer = Browser(site.url).call("GET", "/device/terms", headers={"Host": host})
        refused(answer, 421, repr(host))
    for host in (f"localhost:{site.port}", "127.0.0.1"):
        assert Browser(site.url).call("GET", "/device/terms", headers={"Host": host}).status == 200


# Enrolment


def test_a_code_works_once(served: Any) -> None:
    site, gateway, _ = served
    code = gateway.store.add_code()
    first = Browser(site.url)
    assert json.loads(first.enrol(code, "Ann's phone").body) == {
        "device": first.device,
        "user": None,
    }
    refused(Browser(site.url).enrol(code), 403, first.device, "coterie device code")
    assert [(d.name, d.key) for d in gateway.store.devices()] == [("Ann's phone", first.key.public)]


def test_a_code_that_many_use_at_once_works_once(served: Any) -> None:
    site, gateway, _ = served
    code = gateway.store.add_code()
    answers: list[int] = []
    go = threading.Barrier(8)

    def try_it() -> None:
        browser = Browser(site.url)
        go.wait()
        answers.append(browser.enrol(code).status)

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] + [403] * 7
    assert len(gateway.store.devices()) == 1


def test_codes_as_people_type_them(served: Any) -> None:
    site, gateway, _ = served
    for change in (str.lower, lambda c: c.replace("-", " "), lambda c: c.replace("0", "o")):
        assert Browser(site.url).enrol(change(gateway.store.add_code())).status == 200


def test_unknown_and_expired_codes_and_bad_keys(served: Any, monkeypatch: Any) -> None:
    site, gateway, _ = served
    refused(Browser(site.url).enrol(codes.new_code()), 403, "not known")
    refused(Browser(site.url).enrol(""), 403, "not known")
    old = gateway.store.add_code(now=time.time() - codes.CODE_SECONDS - 5)
    refused(Browser(site.url).enrol(old), 403, "expired 5 seconds ago", "7 days")
    code = gateway.store.add_code()
    for key in (b"", bytes(31), bytes(65), b"\x04" + bytes(64), bytes(5000)):
        browser = Browser(site.url)
        browser.key.public = key
        if len(key) < 5000:
            refused(browser.enrol(code), 400, "P-256", repr(unpadded(key)[:20]))
        else:
            refused(browser.enrol(code), 413, "4,096")
    call = Browser(site.url).call
    for body in (
        b"",
        b"[]",
        b"{",
        b'{"code": 1}',
        b"[" * 3000,
        json.dumps({"code": code}).encode(),
    ):
        refused(call("POST", "/device/enrol", body), 400, "code, public_key and name")
    first = Browser(site.url)
    assert first.enrol(code).status == 200
    again = Browser(site.url, key=first.key)
    refused(again.enrol(gateway.store.add_code()), 409, "enrolled already")


def test_guessing_codes_is_slow(served: Any) -> None:
    site, gateway, _ = served
    answers = [Browser(site.url).enrol(codes.new_code()) for _ in range(24)]
    assert [answer.status for answer in answers[:20]] == [403] * 20
    refused(answers[-1], 429, "127.0.0.1", "0.5 requests a second")
    assert gateway.refused["too many requests of one address"] >= 3


def test_a_federation_that_began_is_closed_unless_it_is_open(served: Any) -> None:
    site, gateway, _ = served
    code = gateway.store.add_code()
    (site.folder / "members.json").write_text("{}")
    refused(Browser(site.url).enrol(code), 403, "open: false")
    gateway.is_open = True
    assert Browser(site.url).enrol(code).status == 200
    gateway.most_devices = 1
    refused(Browser(site.url).enrol(gateway.store.add_code()), 403, "1 devices", "at most 1")
    gateway.finished = True
    refused(Browser(site.url).enrol(gateway.store.add_code()), 409, "finished")


# Signatures


@pytest.mark.parametrize("kind", [Ecdsa, Ed25519])
def test_only_what_the_device_signed_counts(served: Any, kind: type[Ecdsa | Ed25519]) -> None:
    site, gateway, _ = served
    browser = Browser(site.url, key=kind())
    assert browser.enrol(gateway.store.add_code()).status == 200
    target = "/device/message?wait=0"
    assert browser.signed("GET", target).status == 204
    headers = browser.signed_headers("GET", target)
    refused(browser.call("GET", "/device/message?wait=1", headers=headers), 401, browser.device)
    refused(browser.call("GET", "/device/model", headers=headers), 401, "signature")
    refused(browser.call("POST", "/device/update", b"x", headers), 401, "signature")
    later = headers | {"Coterie-Time": str(int(headers["Coterie-Time"]) + 1)}
    refused(browser.call("GET", target, headers=later), 401, "signature")
    for signature in ("", "x", "!!", unpadded(bytes(64)), unpadded(b"\xff" * 64), "A" * 5000):
        wrong = headers | {"Coterie-Signature": signature}
        refused(browser.call("GET", target, headers=wrong), 401, "signature")
    other = Browser(site.url, key=kind(), device=browser.device)
    refused(other.signed("GET", target), 401, browser.device)
    body = update_of(0)
    signed = browser.signed_headers("POST", "/device/update", body)
    refused(browser.call("POST", "/device/update", body + b"\0", signed), 401, "signature")
    assert browser.call("GET", target, headers=headers).status == 204


def test_repeats_are_refused(served: Any) -> None:
    site, gateway, _ = served
    (browser,) = site.browsers(gateway, 1)
    target = "/device/message?wait=0"
    headers = browser.signed_headers("GET", target)
    assert browser.call("GET", target, headers=headers).status == 204
    refused(browser.call("GET", target, headers=headers), 409, headers["Coterie-Time"])
    # A second valid signature of the same text: r and -s.
    raw = app.from_base64url(headers["Coterie-Signature"])
    s = ORDER_OF_P256 - int.from_bytes(raw[32:], "big")
    twin = headers | {"Coterie-Signature": unpadded(raw[:32] + s.to_bytes(32, "big"))}
    refused(browser.call("GET", target, headers=twin), 409, "again")


def test_repeats_are_refused_after_many_requests_and_after_a_restart(
    site: Site, monkeypatch: Any
) -> None:
    monkeypatch.setattr(freshness, "MOST_REMEMBERED", 8)
    target = "/device/message?wait=0"
    with site.listening() as (gateway, _):
        (browser,) = site.browsers(gateway, 1)
        headers = browser.signed_headers("GET", target)
        assert browser.call("GET", target, headers=headers).status == 204
        for _ in range(9):
            assert browser.signed("GET", target).status == 204
        refused(browser.call("GET", target, headers=headers), 409, "older than")
        last = browser.signed_headers("GET", target)
        assert browser.call("GET", target, headers=last).status == 204
        time.sleep(0.005)
    with site.listening():
        refused(browser.call("GET", target, headers=last), 409, "older than")
        assert browser.signed("GET", target).status == 204


def test_clocks(served: Any) -> None:
    site, gateway, _ = served
    (browser,) = site.browsers(gateway, 1)
    now = time.time_ns() // 1_000_000
    target = "/device/message?wait=0"
    for at in (now - 301_000, now + 301_000, 0, 10**14, 10**16):
        headers = browser.signed_headers("GET", target, at=at)
        answer = browser.call("GET", target, headers=headers)
        refused(answer, 401, str(at)[:15], "300 seconds")
        assert abs(int(answer.headers["coterie-now"]) - now) < 60_000
    assert browser.call("GET", target, headers=headers | {"Coterie-Time": "soon"}).status == 401
    ahead = browser.signed_headers("GET", target, at=now + 200_000)
    assert browser.call("GET", target, headers=ahead).status == 204


def test_unknown_and_revoked_devices(served: Any) -> None:
    site, gateway, _ = served
    (browser,) = site.browsers(gateway, 1)
    unknown = Browser(site.url, device="0123456789abcdef")
    refused(unknown.message(0), 401, "'0123456789abcdef'", "one-time code")
    refused(Browser(site.url).message(0), 401, "''")
    assert browser.message(0).status == 204
    gateway.store.revoke(browser.device)
    for answer in (browser.message(0), browser.signed("GET", "/device/model")):
        refused(answer, 401, browser.device, "revoked")


def test_a_revoked_device_does_not_count_in_the_open_round(served: Any) -> None:
    site, gateway, _ = served
    first, second = site.browsers(gateway)
    with site.asking(gateway) as replies:
        message = first.message(0)
        assert first.update(message, update_of(0)).status == 200
        gateway.store.revoke(first.device)
        refused(first.update(message, update_of(0)), 401, "revoked")
        assert second.update(second.message(0), update_of(1)).status == 200
    assert decode(replies[0]).arrays["users"].tolist() == [1]


# Sizes, speeds and rates


def test_large_bodies_are_refused_before_they_are_read(served: Any) -> None:
    site, gateway, _ = served
    (browser,) = site.browsers(gateway, 1)
    most = gateway.rules.most_bytes
    # A row for every item, of five factors, a bias and its index, with room for a header.
    assert 120 * 7 * 4 < most < 120 * 7 * 4 + (1 << 17)
    for size in (most + 1, 1 << 40, 10**19):
        with socket.create_connection(("127.0.0.1", site.port), 10) as raw:
            head = browser.signed_headers("POST", "/device/update") | {"Content-Length": str(size)}
            lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
            raw.sendall(f"POST /device/update HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
            answer = http.client.HTTPResponse(raw)
            answer.begin()
            refused(Answer(answer.status, {}, answer.read()), 413, str(size)[:20], f"{most:,}")
    with socket.create_connection(("127.0.0.1", site.port), 10) as raw:
        head = browser.signed_headers("POST", "/device/update")
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        raw.sendall(
            "POST /device/update HTTP/1.1\r\nHost: localhost\r\n"
            f"Transfer-Encoding: chunked\r\n{lines}\r\n".encode()
        )
        chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        for _ in range(4):
            raw.sendall(chunk)
        answer = http.client.HTTPResponse(raw)
        answer.begin()
        refused(Answer(answer.status, {}, answer.read()), 413, "more", f"{most:,}")


def test_slow_bodies_are_refused(served: Any, monkeypatch: Any) -> None:
    site, gateway, _ = served
    monkeypatch.setattr(app, "BODY_SECONDS", 0.3)
    (browser,) = site.browsers(gateway, 1)
    head = browser.signed_headers("POST", "/device/update", b"xxxx") | {"Content-Length": "4"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    for path, more in (("update", lines), ("enrol", "Content-Length: 4\r\n")):
        with socket.create_connection(("127.0.0.1", site.port), 10) as raw:
            request = f"POST /device/{path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\nx"
            raw.sendall(request.encode())
            answer = http.client.HTTPResponse(raw)
            answer.begin()
            refused(Answer(answer.status, {}, answer.read()), 408, f"/device/{path}")


def test_a_device_that_calls_too_often_waits_and_others_do_not(site: Site) -> None:
    with site.listening(devices=RateLimit("device", 5, 0.01)) as (gateway, _):
        first, second = site.browsers(gateway)
        answers = [first.message(0) for _ in range(6)]
        assert [answer.status for answer in answers[:5]] == [204] * 5
        refused(answers[5], 429, first.device, "Wait 100 seconds")
        assert second.message(0).status == 204


def test_forged_requests_do_not_use_up_the_rate_of_a_device(site: Site) -> None:
    with site.listening(devices=RateLimit("device", 5, 0.01)) as (gateway, _):
        (browser,) = site.browsers(gateway, 1)
        forger = Browser(site.url, device=browser.device)
        for _ in range(10):
            refused(forger.message(0), 401, "signature")
        assert browser.message(0).status == 204


# Messages and updates


def test_a_message_and_an_update(served: Any) -> None:
    site, gateway, _ = served
    browsers = site.browsers(gateway)
    refused(browsers[0].signed("GET", "/device/model"), 404, "no model yet")
    with site.asking(gateway, t=4) as replies:
        for k, browser in enumerate(browsers):
            message = browser.message(0)
            found = decode(message.body)
            assert found.arrays["users"].tolist() == [k]
            assert found.arrays["accepted"].tolist() == [-1]
            assert found.common.keys() == {"item_rows", "item_bias"}
            place = [message.headers[f"coterie-{n}"] for n in ("run", "round", "attempt", "state")]
            assert place == ["a run", "4", "1", "training"]
            body = update_of(k, 4, items=(k, 30))
            for _ in range(2):
                # The same bytes may come again: the answer may have been lost.
                receipt = json.loads(browser.update(message, body).body)
                assert receipt == {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
                if k == 0:
                    assert browser.message(0).status == 204
    assert replies[0] == encode(
        4,
        {
            "users": np.array([0, 1], np.int32),
            "samples": np.ones(2, np.int64),
            "offsets": np.array([0, 2, 4], np.int64),
            "items": np.array([0, 30, 1, 30], np.int32),
            "item_rows": np.full((4, 6), 9, np.int32),
            "user_rows": np.empty((2, 0), np.int32),
            "dense": np.empty((2, 0), np.int32),
        },
    )
    table = browsers[0].signed("GET", "/device/model")
    assert table.headers["coterie-round"] == "4"
    assert decode(table.body).common["item_rows"].shape == (120, 5)


def test_an_update_for_another_user_or_round_or_a_second_one(served: Any) -> None:
    site, gateway, _ = served
    first, second = site.browsers(gateway)
    with site.asking(gateway, t=1):
        message = first.message(0)
        refused(first.update(message, update_of(1, 1)), 422, "unknown user", "user 0")
        refused(first.update(message, update_of(0, 2)), 422, "stale round")
        for name, value in (("run", "other"), ("round", "2"), ("attempt", "2"), ("round", "")):
            changed = Answer(200, message.headers | {f"coterie-{name}": value}, b"")
            refused(first.update(changed, update_of(0, 1)), 409, repr(value), "'a run'")
        assert first.update(message, update_of(0, 1)).status == 200
        refused(first.update(message, update_of(0, 1, value=8)), 409, "round 1", "same bytes")
        reply = second.message(0)
        assert second.update(reply, update_of(1, 1)).status == 200
    # The round is closed: the same bytes are known, others are not taken.
    assert first.update(message, update_of(0, 1)).status == 200
    refused(first.update(message, update_of(0, 1, value=8)), 409, "same bytes")
    changed = Answer(200, message.headers | {"coterie-round": "2"}, b"")
    refused(first.update(changed, update_of(0, 2)), 409, "'2'", "not open")
    stored = gateway.store.last_message(first.device)
    assert stored.reply == update_of(0, 1)


def test_malformed_updates_are_refused_and_the_round_goes_on(served: Any) -> None:
    """Mutations of valid bytes, and noise. What is taken is what the server would take."""
    site, gateway, gate = served
    gate.devices = RateLimit("device", 1e6, 1e6)
    gate.addresses = RateLimit("address", 1e6, 1e6)
    rng = np.random.default_rng(5)
    first, second = site.browsers(gateway)
    with site.asking(gateway, seconds=60) as replies:
        message = first.message(0)
        taken = 0
        for k in range(60):
            body = (
                rng.bytes(int(rng.integers(0, 200))) if k % 4 == 0 else mangled(update_of(0), rng)
            )
            if body == update_of(0):
                continue
            answer = first.update(message, body)
            if answer.status == 200:
                taken += 1
            elif not taken:
                refused(answer, 422, first.device, "round 0")
        if not taken:
            assert first.update(message, update_of(0)).status == 200
        assert second.update(second.message(0), update_of(1)).status == 200
    assert decode(replies[0]).arrays["users"].tolist()[-1] == 1
    assert gateway.refused


def test_a_device_may_decline(served: Any) -> None:
    """An update of no users says so, and the round does not wait for the deadline."""
    site, gateway, _ = served
    first, second = site.browsers(gateway)
    none = np.empty((0, 0), np.int32)
    declined = encode(
        0,
        {
            "users": np.empty(0, np.int32),
            "samples": np.empty(0, np.int64),
            "offsets": np.zeros(1, np.int64),
            "items": np.empty(0, np.int32),
            "item_rows": np.empty((0, 6), np.int32),
            "user_rows": none,
            "dense": none,
        },
    )
    began = time.monotonic()
    with site.asking(gateway) as replies:
        assert first.update(first.message(0), declined).status == 200
        assert second.update(second.message(0), update_of(1)).status == 200
    assert time.monotonic() < began + 5
    assert decode(replies[0]).arrays["users"].tolist() == [1]
    with site.asking(gateway, t=1) as replies:
        for browser in (first, second):
            body = encode(1, decode(declined).arrays)
            assert browser.update(browser.message(0), body).status == 200
    assert decode(replies[0]).arrays["users"].tolist() == []


def test_a_held_call_ends_when_there_is_a_message(served: Any) -> None:
    site, gateway, _ = served
    (browser,) = site.browsers(gateway, 1)
    found: list[tuple[float, Answer]] = []

    def hold() -> None:
        answer = browser.message(20)
        found.append((time.monotonic(), answer))

    thread = threading.Thread(target=hold)
    thread.start()
    time.sleep(0.1)
    assert not found
    opened = time.monotonic()
    with site.asking(gateway, 1):
        thread.join(5)
        assert found[0][1].status == 200
        assert found[0][0] < opened + 2
        assert browser.update(found[0][1], update_of(0)).status == 200
    refused(browser.signed("GET", "/device/message?wait=soon"), 400, "'soon'")
    began = time.monotonic()
    assert browser.message(1).status == 204
    assert 0.9 < time.monotonic() - began < 3


def test_a_second_held_call_ends_the_first(served: Any) -> None:
    site, gateway, _ = served
    (browser,) = site.browsers(gateway, 1)
    done: list[str] = []

    def hold(name: str, seconds: int) -> None:
        assert browser.message(seconds).status == 204
        done.append(name)

    first = threading.Thread(target=hold, args=("first", 20))
    first.start()
    time.sleep(0.2)
    second = threading.Thread(target=hold, args=("second", 1))
    second.start()
    first.join(5)
    assert done[0] == "first"
    second.join(5)
    assert done == ["first", "second"]


def test_refusals_are_counted_for_the_operator(served: Any) -> None:
    site, gateway, _ = served
    Browser(site.url, device="a\x9bb").message(0)
    Browser(site.url).call("GET", "/device/%1b")
    assert gateway.refused == {"an unknown device": 1, "an unknown path": 1}
    # A terminal obeys control characters, so that none are in it.
    text = gateway.last_refused["an unknown device"]
    assert "127.0.0.1 (a\\u009bb)" in text
    assert text.isprintable()
    merged = NodesWithDevices(InProcessNodes([]), gateway, 1.0)
    assert merged.refused == {"device: an unknown device": 1, "device: an unknown path": 1}
    assert merged.last_refused["device: an unknown device"] == text


def test_a_store_that_fails_is_not_hidden(served: Any) -> None:
    site, gateway, _ = served
    (browser,) = site.browsers(gateway, 1)
    (site.folder / store.FILE).write_bytes(b"not a database at all, but long enough" * 40)
    answer = browser.message(0)
    assert (answer.status, answer.error) == (503, "the gateway cannot write")
