"""The files of the pages: no way to put markup into a page, and nothing from elsewhere."""

from __future__ import annotations

import posixpath
import re

import pytest

from coterie.console.static_files import PLOTLY, static_files

pytest.importorskip("plotly")
FORBIDDEN = (
    r"innerHTML|outerHTML|insertAdjacentHTML|ContextualFragment|DOMParser|document\.write|"
    r"\beval\(|new Function"
)


def own() -> dict[str, str]:
    return {name: file.content.decode() for name, file in static_files().items() if name != PLOTLY}


@pytest.mark.parametrize("name", [name for name in own() if name.endswith(".mjs")])
def test_text_never_becomes_markup(name: str) -> None:
    assert re.findall(FORBIDDEN, own()[name]) == []


@pytest.mark.parametrize("name", own())
def test_nothing_comes_from_elsewhere(name: str) -> None:
    """Names of XML are no addresses."""
    text = own()[name].replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://", text) == []
    assert re.findall(r"url\(", text) == []


def test_the_modules_of_the_first_page_are_loaded_at_once() -> None:
    """A module that is not named would be found only when another one is read."""
    files = own()
    named = re.findall(r'href="/static/([^"]+\.mjs)"', files["index.html"])
    needed = {"app.mjs"}
    while missing := {found for name in needed for found in imports(files, name)} - needed:
        needed |= missing
    scripts = re.findall(r'src="/static/([^"]+\.mjs)"', files["index.html"])
    assert scripts == ["early.mjs", "app.mjs"]
    assert sorted([*named, *scripts]) == sorted(needed)
    assert "chart.mjs" not in needed


def imports(files: dict[str, str], name: str) -> list[str]:
    """The modules that one needs before it runs."""
    found = re.findall(r"^import .* from '([^']+)'", files[name], re.MULTILINE)
    return [posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in found]


def test_every_module_is_used() -> None:
    files = own()
    used = {"app.mjs"} | {each for name in files for each in imports(files, name)}
    used |= {
        found.removeprefix("./") for found in re.findall(r"import\('([^']+)'", files["app.mjs"])
    }
    assert used == {name for name in files if name.endswith(".mjs")}


def test_plotly_is_the_installed_one_and_adds_no_inline_styles() -> None:
    script = static_files()[PLOTLY].content
    first, _, rest = script.partition(b"\n")
    ids = re.findall(rb'getElementById\("([0-9a-f]{64})"\)', rest)
    assert ids
    assert all(each in first for each in ids)
