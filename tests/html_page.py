"""A page as tests read it: its elements and text, and what a browser would load for it."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link"}
EVIL = "<script>alert('x')</script><img src=http://evil.example/x.png onerror=alert(1)>&\"'.csv"


class Page(HTMLParser):
    """Parses a page: elements, text and table rows; every element must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return "".join(self.words)


def external_parts(read: Page) -> list[str]:
    """Addresses that a browser would load, active elements and event handlers."""
    addresses = [
        value
        for _, attributes in read.elements
        for name, value in attributes.items()
        if name.split(":")[-1] in ("src", "href", "srcset", "data", "action")
        and not str(value).startswith("#")
    ]
    active = [
        tag
        for tag, _ in read.elements
        if tag in ("script", "link", "iframe", "object", "embed", "img", "form")
    ]
    handlers = [
        name for _, attributes in read.elements for name in attributes if name.startswith("on")
    ]
    return [str(value) for value in addresses] + active + handlers
