"""Chromium without a screen, as tests use it: one page by itself, or driven by Playwright."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="neither chromium nor chrome is here")
POLICY = "<meta http-equiv=Content-Security-Policy [^>]*>"
WIDTHS = """
<script>addEventListener('load', () => {
  document.querySelectorAll('details').forEach((one) => { one.open = true })
  const all = [...document.querySelectorAll('body *')]
  const scrolls = all.filter((one) => one.scrollWidth > one.clientWidth + 1 &&
    ['auto', 'scroll'].includes(getComputedStyle(one).overflowX)).map((one) => one.outerHTML)
  const cut = all.filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
  const left = [...document.querySelectorAll('.figures > *')].map(
    (one) => Math.round(one.getBoundingClientRect().left))
  document.title = JSON.stringify({
    inner: innerWidth, wide: document.documentElement.scrollWidth, left: [...new Set(left)],
    scrolls: scrolls.map((text) => text.slice(0, 80)),
    cut: cut.map((one) => one.outerHTML.slice(0, 80)) })
})</script>
"""


@contextmanager
def driven() -> Iterator[Any]:
    """A browser that Playwright drives."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        try:
            yield opened
        finally:
            opened.close()


def measured(tmp_path: Path, text: str, width: int) -> dict[str, Any]:
    """What is cut or scrolls sideways at this width, with all folded parts opened."""
    # A page without scripts forbids those of tests, too.
    found = browse(tmp_path, re.sub(POLICY, "", text) + WIDTHS, width)
    title = re.findall(r"<title>(.*?)</title>", found)[0]
    read: dict[str, Any] = json.loads(title.replace("&lt;", "<").replace("&gt;", ">"))
    return read


def browse(tmp_path: Path, text: str, width: int, *options: str) -> str:
    """The page as a browser of this width leaves it."""
    (tmp_path / "report.html").write_text(text)
    done = subprocess.run(
        [
            str(BROWSER),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--window-size={width},900",
            "--virtual-time-budget=8000",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--disable-background-networking",
            *options,
            "--dump-dom",
            (tmp_path / "report.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout
