"""Configuration of the documentation site, which `make docs` builds."""

import re

from sphinx.application import Sphinx

from coterie import __version__

project = "Coterie"
author = "the Coterie developers"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["papers/figures"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"Coterie {release}"
html_static_path = ["assets"]
html_css_files = ["site.css", "cards.css", "papers.css"]
html_show_copyright = False
html_theme_options = {"top_of_page_buttons": []}
smartquotes_action = "qe"  # not D: `--` is how options start
highlight_language = "sh"
default_role = "code"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.xref_missing"]


BLOCK = re.compile(r'(?<=<div class="highlight-sh notranslate">).*?(?=</pre>)', re.DOTALL)
HYPHENS = re.compile(r"(<[^>]*>)|([^\s<>]*-[^\s<>]+)")


def keep_options_whole(
    app: Sphinx, page: str, template: str, context: dict[str, object], doctree: object
) -> None:
    """Mark words with hyphens in commands, so that a narrow page does not break `--option`."""

    def mark(word: re.Match[str]) -> str:
        return word[1] or f'<span class="whole">{word[2]}</span>'

    body = context.get("body")
    if isinstance(body, str):
        context["body"] = BLOCK.sub(lambda block: HYPHENS.sub(mark, block[0]), body)


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", keep_options_whole)
