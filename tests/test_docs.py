"""The docs: the site builds without warnings, links lead somewhere, and the front page is short."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
LONGEST_README = 90
"""Lines: two screens."""


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    site = tmp_path / "site"
    options = ["-q", "-W", "--keep-going", "-d", str(tmp_path / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(DOCS), str(site)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for page in DOCS.rglob("*.md"):
        built = site / page.relative_to(DOCS).with_suffix(".html")
        assert built.stat().st_size > 5000, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        target, _, heading = link.partition("#")
        path = page.parent / target if target else page
        assert path.exists(), f"{page.name} links to {link}"
        if heading:
            assert heading in anchors(path), f"{page.name} links to {link}"


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub and MyST link them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def test_readme_has_at_most_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LONGEST_README


@pytest.mark.parametrize(
    "page",
    PAGES,
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_source_paths_on_pages_exist(page: Path) -> None:
    """A path in backticks, such as `src/coterie/api.py`, is a file of the checkout."""
    pattern = r"`((?:src|tests|benchmarks|docs|examples)/[\w./-]+)`"
    for path in re.findall(pattern, page.read_text()):
        assert (ROOT / path).exists(), f"{page.name} names {path}"


@pytest.mark.parametrize("page", ["commands.md", "settings.md"])
def test_reference_pages_are_what_the_code_says(page: str) -> None:
    """Repair: python docs/reference_pages.py."""
    spec = importlib.util.spec_from_file_location("reference_pages", DOCS / "reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / page).read_text() == module.PAGES[page]()
