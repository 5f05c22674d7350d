"""The device page in a browser, against a small gateway."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe import faults as faults_of
from browser import needs_browser
from fake_gateway import CODE, USER, FakeGateway, serving

from coterie import kernels
from coterie.algorithms.fpl import FPL, client_update, init_clients
from coterie.core import streams
from coterie.data.training_set import PrivacyPreferences, TrainingSet
from coterie.evaluation.ranking import best_items
from coterie.federated.federation import NodeData
from coterie.federated.nodes import read_reply
from coterie.federated.validation import Expected, validate
from coterie.federated.wire import decode, encode
from coterie.models.factors import score_rows
from coterie.types import Rows, Sizes

pytestmark = needs_browser
CANARY = "<img src=x onerror=\"window.canary = 'title'\">"
TITLES = [
    *(f"Film {k}" for k in range(58)),
    CANARY,
    "A title that is very long: " + "and that goes on " * 8 + "W" * 60,
]
LIKED = [1, 12, 23, 34, 45, 58]
SETTINGS = FPL(embedding_size=8, triples=12, rounds_an_epoch=1, disclosure=0.5)


@pytest.fixture
def gateway() -> FakeGateway:
    for name in ("fpl", "samples", "sums"):
        # Compiling takes longer than a page waits in these tests.
        kernels.load(name)
    return FakeGateway(TITLES, SETTINGS, n_rounds=3)


@pytest.fixture
def address(gateway: FakeGateway) -> Iterator[str]:
    with serving(gateway) as found:
        yield found


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open the page; at the end of the test, nothing may have gone wrong in it."""
    contexts = []
    faults: list[str] = []

    def opened(address: str, width: int = 1200, **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        watch(page)
        page.goto(address)
        page.wait_for_selector("main:not([hidden])")
        return page

    def watch(page: Any) -> None:
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)

    opened.faults = faults  # type: ignore[attr-defined]
    yield opened
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.canary") is None
        context.close()
    assert faults == []


def pick(page: Any, items: list[int]) -> None:
    for item in items:
        page.fill("#search", TITLES[item])
        page.locator("#results button").first.click()
    page.fill("#search", "")
    page.wait_for_function(
        "n => document.querySelectorAll('#likes li').length === n", arg=len(items)
    )


def join(page: Any) -> None:
    page.fill("#code", CODE)
    page.click("#join-button")
    page.wait_for_selector("#joined:not([hidden])")


def wait_for_message(page: Any, t: int) -> None:
    page.wait_for_function(
        "title => document.querySelector('#message-title').textContent === title"
        " && !document.querySelector('#consent').hidden",
        arg=f"The message of round {t + 1}",
    )


def with_first_message(page: Any, liked: list[int] = LIKED) -> Any:
    """The page once it has joined and shows what it would send."""
    pick(page, liked)
    join(page)
    wait_for_message(page, 0)
    return page


def wait_for_sent(page: Any, n: int) -> None:
    page.wait_for_function("n => document.querySelectorAll('#log tr').length === n", arg=n)


def wait_for_text(page: Any, selector: str, text: str) -> None:
    page.locator(selector).filter(has_text=text).wait_for()


def fact(page: Any, name: str) -> str:
    return str(page.inner_text(f"#fact-{name}"))


def test_nothing_is_sent_before_consent_and_then_what_was_shown(
    gateway: FakeGateway, address: str, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    page = with_first_message(open_page(address))
    assert gateway.received == []
    assert "POST /device/update" not in gateway.requests
    assert page.inner_text("#decided") == "Nothing has been sent yet."
    with page.expect_download() as saved:
        page.click("text=The bytes")
        page.click("#save-bytes")
    shown = Path(saved.value.path()).read_bytes()
    n_bytes = int(fact(page, "bytes").replace(",", ""))
    page.click("#send")
    wait_for_sent(page, 1)
    assert gateway.received == [shown]
    assert len(shown) == n_bytes
    row = page.inner_text("#log tr")
    assert "received" in row
    assert hashlib.sha256(shown).hexdigest()[:12] in row


def test_a_declined_message_is_sent_as_an_update_of_no_users(
    gateway: FakeGateway, address: str, open_page: Callable[..., Any]
) -> None:
    """The next round begins at once, from the row that counted before."""
    page = with_first_message(open_page(f"{address}?draws=simulated"))
    shown = fact(page, "bytes")
    page.click("#decline")
    wait_for_message(page, 1)
    (refusal,) = gateway.received
    columns = decode(refusal).arrays
    assert [len(columns[name]) for name in ("users", "samples", "items", "item_rows")] == [0] * 4
    assert len(refusal) < 100 < int(shown.replace(",", ""))
    assert not validate([read_reply(gateway.message(0), refusal)], expected(gateway)).refused
    assert "declined" in page.inner_text("#log tr")
    assert page.inner_text("#log-summary").startswith("0 sent, 1 declined")
    page.click("#send")
    wait_for_sent(page, 2)

    node = python_client(0.5, hidden=[])
    twin = FakeGateway(TITLES, SETTINGS, n_rounds=3)
    message = replace(twin.message(1), private_state=init_clients(twin.world, node))
    result = client_update(twin.world, message, node)
    assert isinstance(result, tuple)
    assert gateway.received[1] == encode(1, result[0].columns())


def expected(gateway: FakeGateway) -> Expected:
    return Expected.of(gateway.message(0), Sizes(len(TITLES), SETTINGS.embedding_size + 1, 0, 0))


def python_client(pi: float, hidden: list[int]) -> NodeData:
    liked = np.array(LIKED, np.int32)
    rows = Rows(np.array([0, len(liked)]), liked)
    nothing = Rows(np.zeros(2, np.int64), np.empty(0, np.int32))
    preferences = PrivacyPreferences(nothing, np.empty(0, np.float32), np.isin(liked, hidden))
    training = TrainingSet(1, len(TITLES), rows, rows, None, preferences=preferences)
    return NodeData(np.array([USER], np.int32), training, streams.key(0, "devices"))


def test_rounds_are_those_of_python_and_lists_need_no_network(
    gateway: FakeGateway, address: str, open_page: Callable[..., Any]
) -> None:
    """Three rounds with one consent, with the draws of a simulation, then recommendations."""
    page = open_page(f"{address}?draws=simulated")
    pick(page, LIKED)
    page.click(f"button[aria-label='Private: {TITLES[12]}']")
    join(page)
    wait_for_message(page, 0)
    page.click("#send-all")
    wait_for_text(page, "#status", "Training is over")
    page.wait_for_selector("#recommend:not([disabled])")
    wait_for_sent(page, 3)

    twin = FakeGateway(TITLES, SETTINGS, n_rounds=3)
    node = python_client(0.5, hidden=[12])
    private = init_clients(twin.world, node)
    for t in range(3):
        message = replace(twin.message(t), private_state=private)
        result = client_update(twin.world, message, node)
        assert isinstance(result, tuple)
        updates, private = result
        data = encode(t, updates.columns())
        assert gateway.received[t] == data
        twin.take(data)

    n_requests = len(gateway.requests)
    page.click("#recommend")
    page.wait_for_selector("#best li")
    assert page.inner_text("#silence").startswith("0 requests while")
    assert "now silent" in page.inner_text("#network")
    assert len(gateway.requests) == n_requests
    row = private["user_rows"]
    scores = score_rows(row, twin.state.item_rows, twin.state.item_bias, None)[0]
    expected = best_items(scores, np.array(LIKED, np.int32), 10)
    listed = page.eval_on_selector_all("#best li", "all => all.map((each) => each.textContent)")
    assert listed == [TITLES[item] for item in expected]


@pytest.mark.long
def test_the_rate_changes_what_would_be_sent(
    gateway: FakeGateway, address: str, open_page: Callable[..., Any]
) -> None:
    page = with_first_message(open_page(address))

    def set_rate(percent: int) -> None:
        page.locator("#rate").fill(str(percent))
        page.dispatch_event("#rate", "change")

    def likes_in_it() -> int:
        return int(fact(page, "likes").split(" ")[0])

    set_rate(100)
    page.locator("#fact-likes").filter(has_not_text=re.compile("^0")).wait_for()
    at_most = likes_in_it()
    worst = page.inner_text("#worst")
    set_rate(0)
    wait_for_text(page, "#fact-likes", f"0 of {len(LIKED)}")
    assert 1 < at_most <= len(LIKED)
    assert "bias-sign would be right about" in worst
    first = page.inner_text("#attackers tr:first-child td:nth-child(2)")
    assert first.startswith("claims nothing")
    assert gateway.received == []


@pytest.mark.long
def test_likes_row_and_log_outlive_a_reload_and_the_key_cannot_be_read(
    gateway: FakeGateway, address: str, open_page: Callable[..., Any]
) -> None:
    page = open_page(f"{address}#code={CODE}")
    assert "#" not in page.url
    pick(page, LIKED)
    page.click("#join-button")
    wait_for_message(page, 0)
    page.click("#send")
    wait_for_message(page, 1)
    page.reload()
    wait_for_message(page, 1)
    assert page.locator("#likes li").count() == len(LIKED)
    assert page.locator("#log tr").count() == 1
    found = page.evaluate(
        """async () => {
          const { DeviceStore } = await import("./store.mjs");
          const { keys } = await (await DeviceStore.open()).get("identity");
          const refused = await crypto.subtle.exportKey("pkcs8", keys.privateKey).then(
            () => "exported", (error) => error.name);
          return [keys.privateKey.extractable, refused];
        }"""
    )
    assert found == [False, "InvalidAccessError"]
    assert len(gateway.received) == 1


@pytest.mark.long
def test_a_second_tab_takes_no_part(
    gateway: FakeGateway, address: str, open_page: Callable[..., Any]
) -> None:
    page = with_first_message(open_page(address))
    second = page.context.new_page()
    second.goto(address)
    wait_for_text(second, "#status", "Another tab")


@pytest.mark.long
def test_refused_codes_and_revoked_devices_are_told(
    gateway: FakeGateway, address: str, open_page: Callable[..., Any]
) -> None:
    page = open_page(address)
    pick(page, LIKED[:1])
    page.fill("#code", "WRONG")
    page.click("#join-button")
    wait_for_text(page, "#join-note", "the code is not known")
    gateway.is_revoked = True
    join(page)
    wait_for_text(page, "#status", "was revoked")
    page.wait_for_selector("#take-part:not([hidden])")
    calls = len(gateway.requests)
    page.wait_for_timeout(300)
    assert len(gateway.requests) == calls
    # A browser notes refused requests as errors on its console.
    refused = [fault for fault in open_page.faults if re.search(r"status of 40[13]", fault)]
    assert open_page.faults == refused
    open_page.faults.clear()


@pytest.mark.long
def test_a_file_of_likes_is_read_in_the_page(
    address: str, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text('title,stars\nFilm 3,5\n"film 7",4\nNo such film,1\ni9,2\n')
    page = open_page(address)
    page.set_input_files("#csv", path)
    page.wait_for_selector("#likes li")
    titles = page.locator("#likes .title").all_inner_texts()
    assert titles == ["Film 3", "Film 7", "Film 9"]
    assert "3 items found. 1 row not in the catalogue: No such film" in page.inner_text("#csv-note")
    for content, reason in (
        (b"", "it has no rows; expected a column item_id or title"),
        (b"user;stars\nann;5\n", "none of its 2 rows is in the catalogue (user, ann); expected"),
        (bytes(range(256)) * 99, "is in the catalogue (?"),
    ):
        path.write_bytes(content)
        page.set_input_files("#csv", path)
        wait_for_text(page, "#csv-note", reason)
        assert len(page.inner_text("#csv-note")) < 400
    assert page.locator("#likes li").count() == 3


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (500, "dark")])
def test_pages_fit(
    address: str, open_page: Callable[..., Any], width: int, scheme: str, tmp_path: Path
) -> None:
    """No sideways scrolling with everything on the page, however long a title is."""
    page = open_page(address, width, color_scheme=scheme)
    assert is_narrow(page)
    with_first_message(page, [*LIKED, len(TITLES) - 1])
    page.fill("#search", "e")
    page.eval_on_selector_all("details", "all => all.forEach((each) => { each.open = true })")
    assert is_narrow(page)
    page.screenshot(path=tmp_path / f"message-{width}-{scheme}.png", full_page=True)
    page.click("#send-all")
    page.wait_for_selector("#recommend:not([disabled])")
    page.click("#recommend")
    page.wait_for_selector("#best li")
    assert is_narrow(page)
    page.screenshot(path=tmp_path / f"lists-{width}-{scheme}.png", full_page=True)


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(
    address: str, open_page: Callable[..., Any], axe: str, scheme: str
) -> None:
    """Before joining, with a message that waits, with all of it unfolded, and after training."""
    page = open_page(address, color_scheme=scheme)
    found = {"before joining": faults_of(page, axe)}
    page.fill("#search", "e")
    page.wait_for_selector("#results button")
    found["search"] = faults_of(page, axe)
    with_first_message(page, [*LIKED, len(TITLES) - 1])
    found["a message"] = faults_of(page, axe)
    page.eval_on_selector_all("details", "all => all.forEach((each) => { each.open = true })")
    found["unfolded"] = faults_of(page, axe)
    page.click("#send-all")
    page.wait_for_selector("#recommend:not([disabled])")
    page.click("#recommend")
    page.wait_for_selector("#best li")
    found["after training"] = faults_of(page, axe)
    page.click("#leave")
    found["leaving"] = faults_of(page, axe)
    assert {when: each for when, each in found.items() if each} == {}


def is_narrow(page: Any) -> bool:
    return bool(
        page.evaluate(
            """() => {
              const wide = [...document.querySelectorAll("body *")].filter((one) =>
                one.getBoundingClientRect().right > innerWidth + 1 ||
                (one.scrollWidth > one.clientWidth + 1 &&
                 ["auto", "scroll"].includes(getComputedStyle(one).overflowX)));
              return document.documentElement.scrollWidth <= innerWidth && wide.length === 0;
            }"""
        )
    )
