"""The site: Markdown guides, the papers' pages and the API, built by `make docs`."""

from coterie import __version__

project, author, release = "Coterie", "the Coterie developers", __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["papers/figures"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"Coterie {release}"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.xref_missing"]
