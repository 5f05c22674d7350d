"""Configuration of the documentation site, which `make docs` builds."""

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
html_css_files = ["cards.css", "papers.css"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.xref_missing"]
