"""A real browser over the real server, whose every complaint is collected."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (1200, 500)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="neither chromium nor chrome is here")


@contextmanager
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        try:
            yield opened
        finally:
            opened.close()


class Tab:
    """One page of a browser of some width."""

    def __init__(self, opened: Any, width: int = 1200, scheme: str = "light") -> None:
        self.context = opened.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        self.page = self.context.new_page()
        self.width = width
        self.problems: list[str] = []
        self.addresses: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self.addresses.append(request.url))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, address: str, sees: str) -> None:
        """Open a page, and wait until it shows a text."""
        self.page.goto(address)
        self.page.get_by_text(sees).first.wait_for(timeout=20_000)

    def sideways(self) -> int:
        """Pixels that the page is wider than the window."""
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        return int(wide) - self.width

    def text(self, selector: str) -> list[str]:
        return list(self.page.locator(selector).all_text_contents())
