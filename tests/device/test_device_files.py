"""The page's files: nothing from elsewhere, nothing inline, no text as markup."""

from __future__ import annotations

import re

import pytest
from javascript import STATIC

MODULES = sorted(STATIC.glob("*.mjs"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_use_no_markup_and_no_other_host(path):
    text = path.read_text()
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
    assert not re.search(markup, text)
    assert not re.search(r"[\"'`]https?:", text)
    imported = re.findall(r"from \"(.*?)\"", text)
    assert all((STATIC / name).is_file() for name in imported)
    assert all(name.startswith("./") for name in imported)


def test_only_one_module_fetches():
    """Every request is counted, because there is one place that makes requests."""
    makers = r"(?<![.#\w])fetch\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon|importScripts"
    assert [path.name for path in MODULES if re.search(makers, path.read_text())] == ["network.mjs"]


def test_the_page_has_nothing_inline():
    text = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    assert re.findall(r"<script[^>]*>(.*?)</script>", text) == [""]
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text)
    style = (STATIC / "device.css").read_text()
    assert "@import" not in style
    assert "url(" not in style
