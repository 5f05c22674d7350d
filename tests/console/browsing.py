"""A page of a browser, whose every complaint is collected, and what every page must keep."""

from __future__ import annotations

from typing import Any

from consoles import Console

WIDTHS = (1200, 500)
CANARY = "<img src=x onerror=\"document.title='XSS'\"><script>document.title='XSS'</script>"
"""A text that would change the title of a page if it were read as markup."""


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

    def is_whole(self, address: str, sees: str) -> None:
        """Open a page and all that is folded on it: nothing overflows, and no text is markup."""
        self.open(address, sees)
        self.page.wait_for_timeout(400)
        self.page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
        assert self.sideways() <= 0, address
        assert self.page.locator("main img, main script, main iframe").count() == 0, address
        assert self.page.title() != "XSS"

    def asked_only(self, console: Console) -> None:
        """Nothing was loaded from elsewhere."""
        servers = {address.split("/")[2] for address in self.addresses if "://" in address}
        assert servers == {f"127.0.0.1:{console.port}"}
